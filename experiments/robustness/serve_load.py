"""Send requests to `attnlab serve` from many clients at once, then stop it by SIGTERM under load.

    python experiments/robustness/serve_load.py RUN

Every client keeps one connection and sends one sentence at a time, of random tokens of the run's validation
inputs. The script reports failures, p50 and p99 of the times of the requests, the server's resident memory
after every 1,000 requests, and at SIGTERM the requests that got a complete answer, beside the server's own
count of answers. Writes serve_load.csv, a row per 1,000 requests. The exit code is 1 if a request failed
before the signal, or if the counts differ.
"""

import argparse
import csv
import http.client
import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from attnlab.files.predictions import read_predictions
from attnlab.files.run_directory import Run

HERE = Path(__file__).parent
ATTNLAB = str(Path(sys.executable).with_name("attnlab"))
PART = 1000


class Load:
    """Clients that send requests until `target` of them are started, or the server is gone.

    Attributes:
        seconds: time of each answered request.
        failures: what went wrong with each other request.
        memory: resident memory of the server, in bytes, after every `PART` answers.
    """

    def __init__(self, port: int, server: int, sentences: list[str], target: int) -> None:
        self.port, self.server, self.sentences, self.target = port, server, sentences, target
        self.lock = threading.Lock()
        self.started = 0
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self.memory: list[int] = []

    def run(self, clients: int) -> None:
        """Start the clients and wait for them."""
        threads = [threading.Thread(target=self.client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def client(self, number: int) -> None:
        """Send requests over one connection."""
        draw, connection = (
            random.Random(number),
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=120),
        )
        while self._start():
            body = json.dumps({"sentences": [draw.choice(self.sentences)]})
            began = time.perf_counter()
            try:
                connection.request("POST", "/api/translate", body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                self._fail(repr(error))
                return
            if response.status != 200:
                self._fail(f"status {response.status}: {answer[:200]!r}")
                continue
            assert json.loads(answer)["results"][0]["predictions"][0]
            self._finish(time.perf_counter() - began)

    def _start(self) -> bool:
        with self.lock:
            if self.started == self.target:
                return False
            self.started += 1
            return True

    def _fail(self, reason: str) -> None:
        with self.lock:
            self.failures.append(reason)

    def _finish(self, seconds: float) -> None:
        with self.lock:
            self.seconds.append(seconds)
            if len(self.seconds) % PART == 0:
                self.memory.append(resident(self.server))


def resident(process: int) -> int:
    """Return the resident memory of a process, in bytes."""
    status = Path(f"/proc/{process}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024


def percentile(values: list[float], share: float) -> float:
    """Return the smallest value that is at least as large as this share of the values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> int:
    """Run the measurement; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--output", type=Path, default=HERE / "serve_load.csv")
    options = parser.parse_args()
    (predictions,) = Run(options.run.absolute()).predictions.glob("val.jsonl")
    sentences = [prediction.source for prediction in read_predictions(predictions)]
    server = subprocess.Popen(
        [ATTNLAB, "serve", str(options.run), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    address = re.search(r":(\d+)/", server.stdout.readline())
    assert address is not None
    port = int(address[1])

    load, began = Load(port, server.pid, sentences, options.requests), time.perf_counter()
    load.run(options.clients)
    seconds = time.perf_counter() - began
    print(f"{len(load.seconds)} answers in {seconds:.0f} s, {len(load.failures)} failures")
    p50, p99 = (1000 * percentile(load.seconds, share) for share in (0.5, 0.99))
    print(f"p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    print("memory in MiB:", *(round(size / 2**20, 1) for size in load.memory))
    with options.output.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["requests", "p50_ms", "p99_ms", "memory_bytes"])
        for part, memory in enumerate(load.memory, start=1):
            times = load.seconds[(part - 1) * PART : part * PART]
            rows.writerow(
                [part * PART, *(round(1000 * percentile(times, q), 2) for q in (0.5, 0.99)), memory]
            )

    stopped = Load(port, server.pid, sentences, 10**9)
    clients = threading.Thread(target=stopped.run, args=(options.clients,))
    clients.start()
    time.sleep(2)
    server.send_signal(signal.SIGTERM)
    clients.join()
    _, messages = server.communicate(timeout=60)
    answered = len(load.seconds) + len(stopped.seconds)
    further = len(stopped.seconds)
    print(f"SIGTERM after {further} further answers: code {server.returncode}, {messages.strip()!r}")
    print(f"the clients got {answered} answers; connections that ended: {sorted(set(stopped.failures))}")
    count = re.search(r"(\d+) requests answered", messages)
    return int(bool(load.failures) or count is None or int(count[1]) != answered)


if __name__ == "__main__":
    sys.exit(main())

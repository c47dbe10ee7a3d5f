"""`attnlab serve` as a user starts and stops it."""

import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from commands import attnlab, clean_environment
from exports import write_checkpoint
from forked import ATTNLAB, ForkedProcess


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_checkpoint(tmp_path_factory.mktemp("serve"), "data=synthetic", "data.train_size=9"))


@pytest.mark.slow
def test_server_starts_answers_and_stops(run: str, tmp_path: Path) -> None:
    command = [ATTNLAB, "serve", run, run, "--port", "0"]
    pipe = subprocess.PIPE
    with ForkedProcess(
        command, cwd=tmp_path, env=clean_environment(), stdout=pipe, stderr=pipe, text=True
    ) as server:
        address, _, hint = server.stdout.readline().partition(" ")
        assert hint.strip() == "(Ctrl-C stops the server)"
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
        body = {"sentences": ["3 4 5"], "beam_size": 5}
        answer = httpx.post(f"{address}api/translate", json=body, timeout=60)
        if not answer.text.startswith("{"):
            server.kill()  # leaving the block waits for the server
            pytest.fail(f"{answer.status_code} {answer.text}\n{server.stderr.read()}")
        assert [len(result["predictions"]) for result in answer.json()["results"]] == [1, 1]
        taken = attnlab("serve", run, "--port", address.split(":")[-1].strip("/"), folder=tmp_path, code=1)
        assert re.fullmatch(
            r"attnlab: Cannot listen on 127\.0\.0\.1 port \d+: .*; choose another --port\n", taken.stderr
        )
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
        assert server.stderr.read() == "stopped: 1 requests answered\n"


@pytest.mark.slow
@pytest.mark.parametrize(("host", "reached"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.2", "127.0.0.2")])
def test_other_addresses_print_a_random_token(host: str, reached: str, run: str, tmp_path: Path) -> None:
    command = [ATTNLAB, "serve", run, "--port", "0", "--host", host]
    with ForkedProcess(
        command, cwd=tmp_path, env=clean_environment(), stdout=subprocess.PIPE, text=True
    ) as server:
        line = server.stdout.readline()
        match = re.match(rf"http://{re.escape(host)}:(\d+)/#token=(\S{{20,}}) ", line)
        if match is None:
            server.kill()  # leaving the block waits for the server
            pytest.fail(line)
        port, token = match.groups()
        models = f"http://{reached}:{port}/api/models"
        assert httpx.get(models).status_code == 401
        assert httpx.get(models, headers={"Authorization": f"Bearer {token}"}).status_code == 200
        server.terminate()
        assert server.wait(60) == 0

"""Headless Chromium, controlled over the DevTools protocol."""

import base64
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
TIMEOUT = 60  # seconds


class Page:
    """A browser tab that records the errors and network requests of its page."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.numbers = itertools.count(1)
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Performance.enable", timeDomain="threadTicks")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        self.connection.send(json.dumps({**message, "sessionId": self.session} if self.session else message))
        while True:
            answer = json.loads(self.connection.recv(timeout=TIMEOUT))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def wait_for(self, method: str) -> None:
        """Wait until an event has been received."""
        while not any(event["method"] == method for event in self.events):
            self.events.append(json.loads(self.connection.recv(timeout=TIMEOUT)))

    def open(self, path: Path, **window: Any) -> None:
        """Open a file by its file:// address and wait until it is loaded."""
        self.navigate(path.as_uri(), **window)

    def navigate(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open an address and wait until it is loaded."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", **size, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")

    def run(self, expression: str) -> Any:
        """Evaluate a JavaScript expression; wait for the value of a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def each(self, selector: str, expression: str) -> list[Any]:
        """Evaluate a JavaScript expression for each element `e` that matches the selector."""
        return list(
            self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => {expression})")
        )

    def point_at(self, selector: str, place: int = 0) -> None:
        """Move the mouse to the centre of an element."""
        x, y = self.middle(selector, place)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str, place: int = 0) -> None:
        """Click at the centre of an element."""
        x, y = self.middle(selector, place)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.draw()

    def press(self, key: str) -> None:
        """Press a named key, such as ArrowDown."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def middle(self, selector: str, place: int = 0) -> tuple[float, float]:
        """Scroll an element into view and return its centre in pixels."""
        element = f"document.querySelectorAll({json.dumps(selector)})[{place}]"
        for _ in range(2):  # lazy layout of visible content may move the element
            self.run(f"{element}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
            self.draw()
        box = self.run(f"{element}.getBoundingClientRect().toJSON()")
        return box["left"] + box["width"] / 2, box["top"] + box["height"] / 2

    def draw(self) -> None:
        """Wait until the next frame is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")

    def errors(self) -> list[str]:
        """Return exceptions, console messages and policy violations of the page."""
        self.run("0")  # all earlier events have been received then
        details = {
            "Runtime.exceptionThrown": lambda event: event["exceptionDetails"],
            "Runtime.consoleAPICalled": lambda event: event if event["type"] != "log" else None,
            "Log.entryAdded": lambda event: event["entry"],
        }
        errors = (
            details[event["method"]](event["params"]) for event in self.events if event["method"] in details
        )
        return [json.dumps(error) for error in errors if error is not None]

    def requests(self) -> list[str]:
        """Return the URLs that the page requested."""
        self.run("0")
        sent = (event for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def busy(self) -> float:
        """Return the CPU time of the page so far in milliseconds, drawing included."""
        metrics = self.call("Performance.getMetrics")["metrics"]
        return next(1000 * metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Save a screenshot of the whole page, or of the visible part."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))


def find() -> str | None:
    """Return the path of an installed browser."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Start a browser with a new profile in the folder; yield its tab."""
    command = find()
    if command is None:
        pytest.skip("no browser is installed: install chromium or google-chrome")
    options = (
        "--headless=new",
        "--no-sandbox",  # root cannot use the sandbox
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
    )
    silence = subprocess.DEVNULL
    with subprocess.Popen([command, *options], stdout=silence, stderr=silence) as process:
        try:
            with connect(_address(folder, process), max_size=None) as connection:
                yield Page(connection)
        finally:
            process.terminate()


def _address(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """Wait for the browser and return the address of its DevTools socket."""
    port_file = folder / "DevToolsActivePort"
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        if port_file.is_file() and len(lines := port_file.read_text().splitlines()) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise RuntimeError(f"the browser did not start in {TIMEOUT} s")

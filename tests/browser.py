"""Chromium without a window, driven over its DevTools protocol."""

from __future__ import annotations

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
PATIENCE = 60  # seconds


class Page:
    """A tab. What went wrong in it and what it asked for is noted from the start."""

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
        """Call a method of the protocol, and wait for its answer."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        self.connection.send(json.dumps({**message, "sessionId": self.session} if self.session else message))
        while True:
            answer = json.loads(self.connection.recv(timeout=PATIENCE))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def wait_for(self, method: str) -> None:
        """Wait for an event that has not come yet."""
        while not any(event["method"] == method for event in self.events):
            self.events.append(json.loads(self.connection.recv(timeout=PATIENCE)))

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a file as a double click would."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", **size, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for("Page.loadEventFired")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; of a promise, what it brings."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def each(self, selector: str, expression: str) -> list[Any]:
        """The value of a JavaScript expression for each element `e`."""
        return list(
            self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => {expression})")
        )

    def point_at(self, selector: str, place: int = 0) -> None:
        """Move the mouse to the middle of an element."""
        x, y = self.middle(selector, place)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str, place: int = 0) -> None:
        """Click at the middle of an element."""
        x, y = self.middle(selector, place)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.draw()

    def press(self, key: str) -> None:
        """Press a key that has a name, such as ArrowDown."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def middle(self, selector: str, place: int = 0) -> tuple[float, float]:
        """Where an element is, once it was brought into view."""
        element = f"document.querySelectorAll({json.dumps(selector)})[{place}]"
        for _ in range(2):  # what comes into sight is laid out, and may move the element
            self.run(f"{element}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
            self.draw()
        box = self.run(f"{element}.getBoundingClientRect().toJSON()")
        return box["left"] + box["width"] / 2, box["top"] + box["height"] / 2

    def draw(self) -> None:
        """Wait until a frame is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")

    def errors(self) -> list[str]:
        """What the page complained of, its policy included."""
        self.run("0")  # what happened before has then been told
        told = {
            "Runtime.exceptionThrown": lambda event: event["exceptionDetails"],
            "Runtime.consoleAPICalled": lambda event: event if event["type"] != "log" else None,
            "Log.entryAdded": lambda event: event["entry"],
        }
        found = (told[event["method"]](event["params"]) for event in self.events if event["method"] in told)
        return [json.dumps(complaint) for complaint in found if complaint is not None]

    def requests(self) -> list[str]:
        """The addresses it asked for."""
        self.run("0")
        sent = (event for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def busy(self) -> float:
        """Milliseconds of processor time that the page has taken so far, drawing included."""
        metrics = self.call("Performance.getMetrics")["metrics"]
        return next(1000 * metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Take a picture, of the whole page or of the part in view."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))


def find() -> str | None:
    """The command of a browser."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A tab of a fresh browser, whose profile lies in the folder."""
    command = find()
    if command is None:
        pytest.skip("no browser: install chromium or google-chrome to check pages")
    options = (
        "--headless=new",
        "--no-sandbox",  # a container's root has none
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
    """Where the browser listens, once it does."""
    told = folder / "DevToolsActivePort"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        if told.is_file() and len(lines := told.read_text().splitlines()) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise RuntimeError(f"the browser did not start in {PATIENCE} s")

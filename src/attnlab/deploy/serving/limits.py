"""Limits of the server: sizes of requests, and the time that a client may take to send one."""

import asyncio
from dataclasses import dataclass

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 30.0
"""Time in which a client must send the head of a request, and then its body."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the requests; larger ones are refused with status 413, too many with 429."""

    sentences: int = 64  # sentences per request
    characters: int = 1000  # characters per sentence, and per prefix
    waiting: int = 1024  # sentences of all clients that may wait for one model
    batch_size: int = 64  # sentences that are decoded together
    body: int = 2**20  # bytes of a request
    beam_size: int = 20  # largest beam


class Connection(H11Protocol):
    """HTTP connection that is closed if the head of a request does not arrive in `REQUEST_SECONDS`.

    uvicorn itself limits only the time between two requests.
    """

    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """End the time limit with the head of a request; start it with the first bytes of another one."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self.deadline is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self.deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None


class RequestCount:
    """Counts the requests whose head arrived, and those that were answered completely."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.accepted = self.answered = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.accepted += 1
        await self.app(scope, receive, send)
        self.answered += 1


class BodyLimit:
    """ASGI middleware that reads the body of a request, and refuses a larger or a slow one."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body up to the limit, then call the application with it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            body = await asyncio.wait_for(self._read(receive), REQUEST_SECONDS)
        except TimeoutError:
            await JSONResponse({"detail": "The body did not arrive in time"}, 408)(scope, receive, send)
            return
        if body is None:
            return  # the client has closed the connection
        if len(body) > self.limit:
            detail = f"The request is larger than {self.limit:,} bytes: send fewer sentences at a time"
            await JSONResponse({"detail": detail}, 413)(scope, receive, send)
            return
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def read() -> Message:
            return next(messages, None) or await receive()

        await self.app(scope, read, send)

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the body, or its beginning if it exceeds the limit; None if the connection was closed."""
        body = b""
        while len(body) <= self.limit:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        return body

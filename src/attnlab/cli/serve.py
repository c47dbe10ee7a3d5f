"""`attnlab serve`: translate in a browser, and by a JSON interface."""

import argparse
import secrets
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from attnlab.cli import arguments
from attnlab.errors import UserError, needs

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help=arguments.RUN)
    parser.add_argument(
        "--port",
        type=arguments.whole_number(0, 65535),
        default=8000,
        help="port; 0 for any free one (default: 8000)",
    )
    parser.add_argument(
        "--host",
        type=_address,
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default: 127.0.0.1, this machine only); others need a token",
    )
    parser.add_argument(
        "--token",
        help="secret that requests must contain (default: none for this machine only, else a random one)",
    )
    parser.add_argument(
        "--connections",
        type=arguments.positive,
        default=128,
        metavar="N",
        help="largest number of connections; further ones are refused (default: 128)",
    )
    arguments.add_trust(parser)


def main(options: argparse.Namespace) -> int:
    """Serve the models until the process is stopped; returns the exit code."""
    with needs("serve", "attnlab serve needs FastAPI and uvicorn"):
        from attnlab.deploy.serving.app import LOCAL_NAMES, create_app
    from attnlab.deploy.serving.models import load_models

    # Before the models are loaded, which takes seconds
    with _listen(options.host, options.port) as listening:
        models = load_models(arguments.without_reports(options.runs), trust=options.trust)
        host = f"[{options.host}]" if ":" in options.host else options.host
        token = options.token or (None if host in LOCAL_NAMES else secrets.token_urlsafe())
        app = create_app(models, token=token)
        fragment = f"#token={quote(token, safe='')}" if token else ""
        port = listening.getsockname()[1]
        print(f"http://{host}:{port}/{fragment}   (Ctrl-C stops the server)", flush=True)
        server = make_server(app, options.connections)
        with suppress(KeyboardInterrupt):  # uvicorn finishes its requests, then sends the signal again
            server.run(sockets=[listening])
    print(f"stopped: {server.server_state.total_requests} requests answered", file=sys.stderr)
    return 0


def make_server(app: "FastAPI", connections: int) -> "uvicorn.Server":
    """Return a server with uvicorn's limits, and with the parser that obeys Content-Length."""
    import uvicorn

    config = uvicorn.Config(
        app,
        http="h11",
        h11_max_incomplete_event_size=2**14,  # bytes of the head of a request
        limit_concurrency=connections,
        timeout_keep_alive=5,  # seconds between two requests
        log_level="warning",
        access_log=False,
    )
    return uvicorn.Server(config)


def _address(text: str) -> str:
    if not text.strip():  # an empty one would be every address of this machine
        raise argparse.ArgumentTypeError("it is empty: give an address; 0.0.0.0 is every address")
    return text


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UserError(f"Cannot listen on {host} port {port}: {error}; choose another --port") from error

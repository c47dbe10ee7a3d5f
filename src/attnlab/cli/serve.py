"""`attnlab serve`: a page and a JSON interface for trained models."""

from __future__ import annotations

import argparse
import ipaddress
import secrets
import socket
import sys
from contextlib import suppress

from attnlab.errors import UserError


def main(options: argparse.Namespace) -> int:
    """Serve the models until the process is stopped; returns the exit code."""
    server_socket = _listen(options.host, options.port)  # before the models are loaded, which takes seconds
    token = options.token or (None if _is_loopback(options.host) else secrets.token_urlsafe())
    try:
        import uvicorn

        from attnlab.deploy.serving.app import Limits, create_app
    except ImportError as error:
        raise UserError(f"{error.name} is not installed: pip install 'attnlab[serve]'") from error
    from attnlab.deploy.serving.models import load_models

    models = load_models(options.runs, trust=options.trust)
    limits = Limits(waiting=options.queue, batch_size=options.batch)
    port = server_socket.getsockname()[1]
    fragment = f"#token={token}" if token else ""
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"http://{host}:{port}/{fragment}   (Ctrl-C stops the server)", flush=True)
    config = uvicorn.Config(create_app(models, limits, token=token), log_level="warning", access_log=False)
    with suppress(KeyboardInterrupt):  # uvicorn finishes its requests, then sends the signal again
        uvicorn.Server(config).run(sockets=[server_socket])
    print("stopped", file=sys.stderr)
    return 0


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UserError(f"Cannot listen on {host} port {port}: {error}; choose another --port") from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

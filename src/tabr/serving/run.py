"""The service as a process: its tokens, its address, its start and its end."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket
from pathlib import Path

import uvicorn

from tabr.errors import DataError
from tabr.serving.app import create_app
from tabr.serving.guards import Limits, Tokens
from tabr.serving.served_model import ServedModel
from tabr.serving.service import warm_up

TOKEN, READ_TOKEN = "TABR_TOKEN", "TABR_READ_TOKEN"
SHORTEST = 16  # characters of a token
MOST_CONNECTIONS = 512


def read_tokens(write: Path | None = None, read: Path | None = None) -> Tokens:
    """Return the tokens from files, or else from environment variables."""
    return Tokens(_token(write, TOKEN), _token(read, READ_TOKEN))


def _token(path: Path | None, variable: str) -> str | None:
    text = path.read_text("utf-8") if path is not None else os.environ.get(variable)
    if text is None:
        return None
    token = text.strip()
    source = str(path) if path is not None else variable
    if len(token) < SHORTEST or not token.isascii() or " " in token:
        raise DataError(
            f"a token must have at least {SHORTEST} characters of ASCII without spaces,"
            f" however the one in {source} has not: `openssl rand -hex 32` makes one"
        )
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    with contextlib.suppress(ValueError):  # which is a name
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def serve(
    path: Path,
    *,
    store: str | Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    device: str | None = None,
) -> None:
    """Serve a model file until the process is asked to end.

    Changes are kept in `store`, a folder or a postgresql:// address; None is a folder
    beside the model. Port 0 is any free one. Without tokens, only this machine may ask.
    """
    tokens = tokens or Tokens()
    if not tokens.needed and not is_loopback(host):
        raise DataError(
            f"without a token the service may listen on this machine alone, however"
            f" {host} can be reached by others: set {TOKEN} or use --token-file"
        )
    listening = _listen(host, port)
    if store is None:
        store = path.with_name(f"{path.name}.memory")
    served = ServedModel(path, store, device)
    warm_up(served)
    config = uvicorn.Config(
        create_app(served, tokens, limits),
        access_log=False,
        log_level="warning",
        server_header=False,
        date_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=15,
        h11_max_incomplete_event_size=64 << 10,
        timeout_graceful_shutdown=10,
    )
    server = _Server(config)
    access = "a token is needed" if tokens.needed else "no token: this machine alone"
    server.message = (
        f"{len(served.model.candidates_):,} candidates, version {served.version};"
        f" {access}. Page at /, API at /docs; ctrl-c ends it"
    )
    # A ctrl-c arrives here once more, after the server has ended in good order.
    with contextlib.suppress(KeyboardInterrupt):
        server.run([listening])


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket at the address, before any work is done."""
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise DataError(
            f"the service needs a free address, however {host}:{port} cannot be had"
            f" ({error.strerror}): choose another --port or --host"
        ) from error
    return listening


class _Server(uvicorn.Server):
    """A server that prints its address and a message once it listens."""

    message = ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            print(f"http://{host}:{port}  {self.message}", flush=True)


def log_requests() -> None:
    """Write a line for each request to stderr, without contents."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("tabr.serving").setLevel(logging.INFO)

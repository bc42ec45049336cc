"""The service as a process: its tokens, its address, its start and its end."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from tabr.errors import DataError, LabelWarning
from tabr.serving.access.connections import HEAD, Connections
from tabr.serving.access.origins import Origins, check_name, is_loopback
from tabr.serving.access.tokens import TokenFile, Tokens, new_secret
from tabr.serving.app import create_app
from tabr.serving.guards import Limits
from tabr.serving.served_model import KEPT_FILES, ServedModel
from tabr.serving.service import Compacting, warm_up

TOKEN, READ_TOKEN = "TABR_TOKEN", "TABR_READ_TOKEN"
SHORTEST = 16  # characters of a token


def read_tokens(
    write: Path | None = None, read: Path | None = None, named: Path | None = None
) -> Tokens:
    """Return the tokens from files; the first two else from environment variables."""
    file = None if named is None else TokenFile(named)
    return Tokens(_token(write, TOKEN), _token(read, READ_TOKEN), file)


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


@dataclass(frozen=True)
class Address:
    """Where the service listens.

    Attributes:
        host: The address; others than this machine reach it with a token alone.
        port: The port; 0 is any free one.
        names: More names by which clients ask, such as that of a proxy.
        proxies: Addresses of proxies, whose X-Forwarded-For tells the client. The
            connections of a proxy count as those of many clients.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    names: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()


def serve(
    path: Path,
    address: Address | None = None,
    *,
    store: str | Path | None = None,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    device: str | None = None,
    new_store: bool = False,
    accept_loss: bool = False,
    compacting: Compacting | None = None,
    keep: int = KEPT_FILES,
    key: Path | None = None,
) -> None:
    """Serve a model file until the process is asked to end.

    Changes are kept in `store`, a folder or a postgresql:// address; None is a folder
    beside the model; `new_store` sets an old one aside, and `accept_loss` goes on with
    one that has lost changes. None of `tokens` makes one, which is printed with the
    address; with empty ones all of this machine may ask.
    """
    address = address or Address()
    origins = Origins(address.host, tuple(map(check_name, address.names)))
    if not (tokens and tokens.needed) and not is_loopback(address.host):
        raise DataError(
            f"without a token the service may listen on this machine alone, however"
            f" {address.host} can be reached by others: set {TOKEN} or use --token-file"
        )
    # In the fragment, which a browser sends to nobody.
    fragment = ""
    if tokens is None:
        tokens = Tokens(new_secret())
        fragment = f"/#token={tokens.write}"
    listening = listen(address.host, address.port)
    if store is None:
        store = path.with_name(f"{path.name}.memory")
    # Answers say it to whom it concerns.
    warnings.simplefilter("ignore", LabelWarning)
    served = ServedModel(
        path,
        store,
        device,
        new_store=new_store,
        accept_loss=accept_loss,
        keep=keep,
        key=key,
    )
    if served.has_begun_store:
        print(f"tabr: a new store was begun: {served.store.place}", file=sys.stderr)
    warm_up(served)
    app = create_app(served, tokens, limits, origins=origins, compacting=compacting)
    server = _Server(configure(app, Connections(proxies=address.proxies)))
    server.fragment = fragment
    access = "a token is needed" if tokens.needed else "no token: this machine alone"
    if fragment:
        access = "the address carries a token, made for this run"
    server.message = (
        f"{len(served.model.candidates_):,} candidates, version {served.version};"
        f" {access}. Page at /, API at /docs; ctrl-c ends it"
    )
    # A ctrl-c arrives here once more, after the server has ended in good order.
    with contextlib.suppress(KeyboardInterrupt):
        server.run([listening])


def configure(app: FastAPI, connections: Connections) -> uvicorn.Config:
    """Return how the server runs an app."""
    return uvicorn.Config(
        app,
        http=connections.protocol(),
        ws="none",
        access_log=False,
        log_level="error",  # and no line for whatever a client sends
        server_header=False,
        date_header=False,
        # Else whoever is on this machine could say who the client is.
        proxy_headers=bool(connections.proxies),
        forwarded_allow_ips=sorted(connections.proxies),
        timeout_keep_alive=round(connections.limits.idle_seconds),
        h11_max_incomplete_event_size=HEAD,
        timeout_graceful_shutdown=10,
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket at the address, before any work is done."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Where a socket does not name its protocol, asyncio leaves Nagle's algorithm on,
    # which holds the second part of each answer back for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
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
    """A server that prints its address once it listens, and always ends in order.

    A second ctrl-c only ends the wait for open connections.
    """

    message = fragment = ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            host = f"[{host}]" if ":" in host else host
            print(f"http://{host}:{port}{self.fragment}  {self.message}", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End; the model is closed even if nobody waits for connections."""
        await super().shutdown(sockets)
        if self.force_exit and not self.lifespan.shutdown_event.is_set():
            await self.lifespan.shutdown()


def log_requests() -> None:
    """Write a line for each request to stderr, without contents."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("tabr.serving").setLevel(logging.INFO)

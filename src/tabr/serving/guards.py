"""Checks before a request is answered: its token, its size and its time."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tabr.serving import messages
from tabr.serving.service import Metrics

logger = logging.getLogger("tabr.serving")

Rights = Literal["read", "write"]
OPEN = ("/", "/healthz", "/readyz", "/docs")  # and /static: without any data

HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "geolocation=(), camera=(), microphone=()",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Tokens:
    """The tokens for writing and for reading; without any, all clients may write."""

    write: str | None = field(default=None, repr=False)
    read: str | None = field(default=None, repr=False)

    @property
    def needed(self) -> bool:
        """Whether a client must send a token."""
        return self.write is not None or self.read is not None

    def rights(self, header: str | None) -> Rights | None:
        """Return the rights that an Authorization header gives; None is no right.

        The comparison takes the same time for all headers.
        """
        if not self.needed:
            return "write"
        scheme, _, token = (header or "").partition(" ")
        sent = token.strip().encode()
        may_read, may_write = (
            secrets.compare_digest(sent, (expected or "").encode()) and bool(expected)
            for expected in (self.read, self.write)
        )
        if scheme.lower() != "bearer":
            return None
        return "write" if may_write else "read" if may_read else None


@dataclass(frozen=True)
class Limits:
    """The most that a request may take."""

    body_bytes: int = 16 << 20
    body_seconds: float = 15.0  # until the body has arrived
    rows: int = 1000  # of a request in JSON
    bulk_rows: int = 200_000  # of a table
    seconds: float = 60.0  # until the answer is complete


def _is_change(scope: Scope) -> bool:
    """Whether a request asks for a change of the candidates or their files."""
    asks = scope["method"] not in ("GET", "HEAD", "OPTIONS")
    return asks and scope["path"].startswith(("/v1/candidates", "/v1/compact"))


class Guard:
    """The middleware: it checks, adds headers, counts, and logs without contents."""

    def __init__(
        self, app: ASGIApp, tokens: Tokens, limits: Limits, metrics: Metrics
    ) -> None:
        self.app, self.tokens, self.limits = app, tokens, limits
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0  # until the answer begins

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            self._admit(scope)
            content = await self._read(scope, receive)
            body: list[Message] = [{"type": "http.request", "body": content}]

            async def replay() -> Message:
                return body.pop() if body else await receive()

            inner = self.app(scope, replay, answer)
            await asyncio.wait_for(inner, self.limits.seconds)
        except (HTTPException, TimeoutError) as error:
            detail: dict[str, str] = {}
            if isinstance(error, TimeoutError):
                error = HTTPException(503, "the answer took too long")
                if _is_change(scope):  # which may yet be made
                    error, detail = HTTPException(504), messages.UNKNOWN
            if not status:  # nothing more is read from the connection
                headers = {"connection": "close", **(error.headers or {})}
                detail = detail or {"detail": error.detail}
                refusal = JSONResponse(detail, error.status_code, headers)
                await refusal(scope, receive, answer)
        finally:
            status, seconds = status or 500, time.perf_counter() - start
            self.metrics.count(scope, status, seconds)
            method, path = scope["method"], scope["path"]
            logger.info("%s %s %d %.1f ms", method, path, status, 1000 * seconds)

    def _admit(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        rights = self.tokens.rights(headers.get("authorization"))
        is_open = path in OPEN or path.startswith("/static/")
        if rights is None and not is_open:
            raise HTTPException(
                401,
                "a token must come as `Authorization: Bearer TOKEN`, however none or a"
                " wrong one came",
                {"www-authenticate": "Bearer"},
            )
        scope.setdefault("state", {})["rights"] = rights
        if _is_change(scope) and rights != "write":
            raise HTTPException(403, "this token may read and not write: use another")
        length = headers.get("content-length", "0")
        self._check_size(int(length) if length.isdigit() else math.inf)

    def _check_size(self, n_bytes: float) -> None:
        if n_bytes > self.limits.body_bytes:
            most = f"{self.limits.body_bytes / 2**20:.3g} MiB"
            raise HTTPException(413, f"a body may have at most {most}: send fewer rows")

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body, unless it is too long or comes too slowly."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in Request(scope, receive).stream():
                    body += part
                    self._check_size(len(body))
        except TimeoutError:
            raise HTTPException(408, "the body took too long to come") from None
        except ClientDisconnect:
            raise HTTPException(400, "the client left") from None
        return bytes(body)

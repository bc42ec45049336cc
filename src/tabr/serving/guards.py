"""Checks before a request is answered: its token, its size and its time."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tabr.serving.metrics import Metrics

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
_ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


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
    """The most that a request may take.

    Attributes:
        body_bytes: Size of a body.
        body_seconds: Time until the body has arrived.
        rows: Rows of a request in JSON.
        bulk_rows: Rows of a table.
        seconds: Time until the answer is complete.
    """

    body_bytes: int = 16 << 20
    body_seconds: float = 15.0
    rows: int = 1000
    bulk_rows: int = 200_000
    seconds: float = 60.0


class Refusal(Exception):
    """A request that is refused."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        """Take the status, a sentence, and headers to send."""
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers

    def response(self) -> JSONResponse:
        """Return the refusal as an answer, the last on its connection."""
        headers = {"connection": "close", **self.headers}
        return JSONResponse({"detail": self.detail}, self.status, headers)


class Guard:
    """The middleware: it checks, adds headers, counts, and logs without contents."""

    def __init__(
        self, app: ASGIApp, tokens: Tokens, limits: Limits, metrics: Metrics
    ) -> None:
        """Guard an app."""
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
                message["headers"] = [*message.get("headers", []), *_ENCODED]
            await send(message)

        try:
            self._admit(scope)
            body: list[Message] = [
                {"type": "http.request", "body": await self._read(receive)}
            ]

            async def replay() -> Message:
                return body.pop() if body else await receive()

            inner = self.app(scope, replay, answer)
            await asyncio.wait_for(inner, self.limits.seconds)
        except (Refusal, TimeoutError) as error:
            late = Refusal(503, "the answer took too long")
            refusal = error if isinstance(error, Refusal) else late
            if not status:
                await refusal.response()(scope, receive, answer)
        finally:
            seconds = time.perf_counter() - start
            self._record(scope, status or 500, seconds)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "other"
        self.metrics.count(route, status, seconds)
        method, path = scope["method"], scope["path"]
        logger.info("%s %s %d %.1f ms", method, path, status, 1000 * seconds)

    def _admit(self, scope: Scope) -> None:
        headers = {
            k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]
        }
        path: str = scope["path"]
        rights = self.tokens.rights(headers.get("authorization"))
        is_open = path in OPEN or path.startswith("/static/")
        if rights is None and not is_open:
            raise Refusal(
                401,
                "a token must come as `Authorization: Bearer TOKEN`, however none or a"
                " wrong one came",
                **{"www-authenticate": "Bearer"},
            )
        scope.setdefault("state", {})["rights"] = rights
        changes = scope["method"] not in ("GET", "HEAD", "OPTIONS")
        writes = path.startswith(("/v1/candidates", "/v1/compact")) and changes
        if writes and rights != "write":
            raise Refusal(403, "this token may read and not write: use another")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.limits.body_bytes:
            raise self._too_large()

    def _too_large(self) -> Refusal:
        most = self.limits.body_bytes / 2**20
        return Refusal(413, f"a body may have at most {most:.3g} MiB: send fewer rows")

    async def _read(self, receive: Receive) -> bytes:
        """Return the body, unless it is too long or comes too slowly."""
        parts, n_bytes = [], 0
        end = time.monotonic() + self.limits.body_seconds
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                message = await asyncio.wait_for(receive(), left)
            except TimeoutError:
                raise Refusal(408, "the body took too long to come") from None
            if message["type"] != "http.request":
                raise Refusal(400, "the client left")
            parts.append(message.get("body", b""))
            n_bytes += len(parts[-1])
            if n_bytes > self.limits.body_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                return b"".join(parts)

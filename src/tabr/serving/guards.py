"""What stands before the service: who may do what, how much, and for how long."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("tabr.serving")

Rights = Literal["read", "write"]
OPEN = ("/", "/healthz", "/readyz", "/docs")  # and /static: they tell nothing of rows

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
    """Who may write and who may only read; without both everybody may do all."""

    write: str | None = field(default=None, repr=False)
    read: str | None = field(default=None, repr=False)

    @property
    def needed(self) -> bool:
        """Tell whether a token must come."""
        return self.write is not None or self.read is not None

    def rights(self, header: str | None) -> Rights | None:
        """Return what the sender of an Authorization header may do; None is nothing.

        Every token is compared in the same time, whatever came.
        """
        if not self.needed:
            return "write"
        scheme, _, token = (header or "").partition(" ")
        given = token.strip().encode()
        found: Rights | None = None
        for name, known in (("read", self.read), ("write", self.write)):
            same = secrets.compare_digest(given, (known or "").encode())
            if same and known and scheme.lower() == "bearer":
                found = name  # type: ignore[assignment]
        return found


@dataclass(frozen=True)
class Limits:
    """How much a request may ask for.

    Attributes:
        body_bytes: Of a body.
        body_seconds: Until it has come.
        rows: Of a request in JSON.
        bulk_rows: Of a table.
        seconds: Until it is answered.
    """

    body_bytes: int = 16 << 20
    body_seconds: float = 15.0
    rows: int = 1000
    bulk_rows: int = 200_000
    seconds: float = 60.0


class Refusal(Exception):
    """A request that is not let in."""

    def __init__(self, status: int, detail: str, **headers: str) -> None:
        """Keep the status, a sentence, and headers to send."""
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers


class Guard:
    """Checks tokens and bodies, adds headers, and logs without contents."""

    def __init__(self, app: ASGIApp, tokens: Tokens, limits: Limits) -> None:
        """Stand before an app."""
        self.app, self.tokens, self.limits = app, tokens, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), [500]
        begun = [False]

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                begun[0] = True
                status[0] = message["status"]
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
        except Refusal as refusal:
            if not begun[0]:
                await _refuse(refusal, answer)
        except TimeoutError:
            if not begun[0]:
                await _refuse(Refusal(503, "the answer took too long"), answer)
        finally:
            logger.info(
                "%s %s %d %.1f ms",
                scope["method"],
                scope["path"],
                status[0],
                1000 * (time.perf_counter() - start),
            )

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
        """Read a body, unless it is too long or comes too slowly."""
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


_ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


async def _refuse(refusal: Refusal, send: Any) -> None:
    body = json.dumps({"detail": refusal.detail}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *((k.encode(), v.encode()) for k, v in refusal.headers.items()),
    ]
    start = {"type": "http.response.start", "status": refusal.status}
    await send({**start, "headers": headers})
    await send({"type": "http.response.body", "body": body})

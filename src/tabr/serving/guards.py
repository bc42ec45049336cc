"""Checks before a request is answered: who asks, from where, how much, how long."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tabr.serving.origins import Origins
from tabr.serving.service import Metrics
from tabr.serving.tokens import Tokens

logger = logging.getLogger("tabr.serving")

OPEN = ("/", "/healthz", "/readyz", "/docs")  # and /static: without any data
# Types of a body that a browser sends for no foreign page, unless it asks first.
BODIES = ("application/json", "text/csv", "application/vnd.apache.arrow.stream")

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
class Limits:
    """The most that a request may take."""

    body_bytes: int = 16 << 20
    body_seconds: float = 15.0  # until the body has arrived
    rows: int = 1000  # of a request in JSON
    bulk_rows: int = 200_000  # of a table
    seconds: float = 60.0  # until the answer is complete


class Guard:
    """The middleware: it checks, adds headers, counts, and logs without contents."""

    def __init__(
        self,
        app: ASGIApp,
        tokens: Tokens,
        origins: Origins,
        limits: Limits,
        metrics: Metrics,
    ) -> None:
        self.app, self.tokens, self.origins = app, tokens, origins
        self.limits, self.metrics = limits, metrics

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
            if isinstance(error, TimeoutError):
                error = HTTPException(503, "the answer took too long")
            if not status:  # nothing more is read from the connection
                headers = {"connection": "close", **(error.headers or {})}
                detail = {"detail": error.detail}
                refusal = JSONResponse(detail, error.status_code, headers)
                await refusal(scope, receive, answer)
        finally:
            status, seconds = status or 500, time.perf_counter() - start
            self.metrics.count(scope, status, seconds)
            method, path = scope["method"], scope["path"]
            logger.info("%s %s %d %.1f ms", method, path, status, 1000 * seconds)

    def _admit(self, scope: Scope) -> None:
        """Refuse by its headers a request that may not come."""
        self.origins.check(scope)
        self._check_token(scope)
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        n_bytes = int(length) if length.isdecimal() else math.inf
        if n_bytes == 0 and "transfer-encoding" not in headers:
            return
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        if media not in BODIES:
            raise HTTPException(
                415, f"a body must come as {', '.join(BODIES)}, however: {media!r:.80}"
            )
        self._check_size(n_bytes)

    def _check_token(self, scope: Scope) -> None:
        path, state = scope["path"], scope.setdefault("state", {})
        token = self.tokens.find(Headers(scope=scope).get("authorization"))
        state["client"] = token and token.name
        state["rights"] = token.rights if token else None
        if not self.tokens.needed:
            state["rights"] = "write"
        elif token is not None and token.is_over:
            state["rights"] = None
        is_open = path in OPEN or path.startswith("/static/")
        if state["rights"] is None and not is_open:
            wrong = "none or a wrong one" if token is None else "one that has expired"
            raise HTTPException(
                401,
                "a token must come as `Authorization: Bearer TOKEN`, however"
                f" {wrong} came",
                {"www-authenticate": "Bearer"},
            )
        changes = scope["method"] not in ("GET", "HEAD", "OPTIONS")
        writes = path.startswith(("/v1/candidates", "/v1/compact")) and changes
        if writes and state["rights"] != "write":
            raise HTTPException(403, "this token may read and not write: use another")

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

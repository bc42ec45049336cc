"""Checks before a request is answered: who asks, from where, how much, how long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tabr.serving import messages
from tabr.serving.access.origins import Origins
from tabr.serving.access.shares import ShareLimits, Shares
from tabr.serving.access.tokens import Tokens
from tabr.serving.service import Metrics

logger = logging.getLogger("tabr.serving")

OPEN = ("/", "/healthz", "/readyz", "/docs")  # and /static: without any data
METHODS = ("POST", "PUT", "PATCH", "DELETE")  # that may have a body
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
    seconds: float = 60.0  # until the answer, or a part of a long one, is complete
    shares: ShareLimits = field(default_factory=ShareLimits)


def _is_change(scope: Scope) -> bool:
    """Whether a request asks for a change of the candidates or their files."""
    asks = scope["method"] not in ("GET", "HEAD", "OPTIONS")
    return asks and scope["path"].startswith(("/v1/candidates", "/v1/compact"))


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
        self.shares = Shares(limits.shares)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0  # until the answer begins
        scope.setdefault("state", {})

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            await self._pass_on(scope, receive, answer)
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
            asked = printable(f"{scope['method']} {scope['path']}")
            client = scope["state"].get("client") or "-"
            ms = 1000 * seconds
            logger.info("%s %d %.1f ms %s", asked, status, ms, client)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request answered while there is room for it and its body."""
        n_bytes = self._admit(scope)
        if _is_open(scope["path"]):  # which takes nothing, and must always answer
            await asyncio.wait_for(self.app(scope, receive, send), self.limits.seconds)
            return
        client = scope["client"][0] if scope.get("client") else ""
        with self.shares.request(client):
            async with self.shares.body(client, n_bytes):
                content = await self._read(scope, receive) if n_bytes else b""
                body: list[Message] = [{"type": "http.request", "body": content}]

                async def replay() -> Message:
                    return body.pop() if body else await receive()

                async with asyncio.timeout(self.limits.seconds) as limit:

                    def go_on() -> None:
                        """Give what comes in parts the time for one more."""
                        now = asyncio.get_running_loop().time()
                        limit.reschedule(now + self.limits.seconds)

                    scope["state"]["go_on"] = go_on
                    await self.app(scope, replay, send)

    def _admit(self, scope: Scope) -> int:
        """Return how long the body may be; refuse what may not come by its headers."""
        self.origins.check(scope)
        self._check_token(scope)
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if length == "0" and "transfer-encoding" not in headers:
            return 0
        if scope["method"] not in METHODS or not scope["path"].startswith("/v1/"):
            raise HTTPException(413, "this request has no body, however one came")
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        if media not in BODIES:
            raise HTTPException(
                415, f"a body must come as {', '.join(BODIES)}, however: {media!r:.80}"
            )
        # What does not tell its length may be as long as any.
        n_bytes = int(length[:20]) if length.isdecimal() else 0
        self._check_size(n_bytes)
        return n_bytes or self.limits.body_bytes

    def _check_token(self, scope: Scope) -> None:
        path, state = scope["path"], scope["state"]
        token = self.tokens.find(Headers(scope=scope).get("authorization"))
        state["client"] = token and token.name
        state["rights"] = token.rights if token else None
        if not self.tokens.needed:
            state["rights"] = "write"
        elif token is not None and token.is_over:
            state["rights"] = None
        if state["rights"] is None and not _is_open(path):
            wrong = "none or a wrong one" if token is None else "one that has expired"
            raise HTTPException(
                401,
                "a token must come as `Authorization: Bearer TOKEN`, however"
                f" {wrong} came",
                {"www-authenticate": "Bearer"},
            )
        if _is_change(scope) and state["rights"] != "write":
            raise HTTPException(403, "this token may read and not write: use another")

    def _check_size(self, n_bytes: int) -> None:
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


def printable(text: str, longest: int = 200) -> str:
    """Return a client's text for a line of the log, where it can forge nothing.

    >>> print(printable("/a\\n\\x1b[2J b"))
    /a\\n\\x1b[2J b
    """
    safe = text[:longest].encode("unicode_escape").decode("ascii")
    return safe if len(text) <= longest else f"{safe}..."


def _is_open(path: str) -> bool:
    """Whether a path is for all, with a token or without."""
    return path in OPEN or path.startswith("/static/")

"""What requests may hold at the same time: their number, and the bytes of bodies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from starlette.exceptions import HTTPException

SMALL = 64 << 10  # bytes that a connection holds anyway: such bodies need no room
AGAIN = {"retry-after": "1"}


@dataclass(frozen=True)
class ShareLimits:
    """The most that all requests and those of one client may hold.

    A client is an address. One that is greedy so has to wait for itself.
    """

    requests: int = 256
    requests_of_client: int = 64
    body_bytes: int = 256 << 20
    body_bytes_of_client: int = 64 << 20
    seconds: float = 15.0  # until there is room for a body


class Shares:
    """What the requests in progress hold."""

    def __init__(self, limits: ShareLimits) -> None:
        self.limits = limits
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._freed = asyncio.Condition()

    @contextmanager
    def request(self, client: str) -> Iterator[None]:
        """Count a request while it is in progress, or refuse it."""
        if self._requests[client] >= self.limits.requests_of_client:
            text = "too many requests of this client are in progress: try again"
            raise HTTPException(429, text, AGAIN)
        if self._requests.total() >= self.limits.requests:
            text = "too many requests are in progress: try again"
            raise HTTPException(503, text, AGAIN)
        self._requests[client] += 1
        try:
            yield
        finally:
            _subtract(self._requests, client, 1)

    @asynccontextmanager
    async def body(self, client: str, n_bytes: int) -> AsyncIterator[None]:
        """Wait until there is room for a body, and keep it.

        Nobody reads from a connection meanwhile, so what is sent waits at the sender.
        """
        if n_bytes <= SMALL:
            yield
            return
        try:
            async with asyncio.timeout(self.limits.seconds), self._freed:
                await self._freed.wait_for(lambda: self._has_room(client, n_bytes))
                self._bytes[client] += n_bytes
        except TimeoutError:
            text = "too many large bodies came at the same time: try again"
            raise HTTPException(503, text, AGAIN) from None
        try:
            yield
        finally:
            _subtract(self._bytes, client, n_bytes)
            async with self._freed:
                self._freed.notify_all()

    def _has_room(self, client: str, n_bytes: int) -> bool:
        """Whether a body fits; one alone always does."""
        own, total = self._bytes[client], self._bytes.total()
        return (not own or own + n_bytes <= self.limits.body_bytes_of_client) and (
            not total or total + n_bytes <= self.limits.body_bytes
        )


def _subtract(counter: Counter[str], client: str, n: int) -> None:
    """Subtract, and forget clients that hold nothing."""
    counter[client] -= n
    if not counter[client]:
        del counter[client]

"""Connections: how long one may keep the service waiting, and how many there may be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD = 64 << 10  # bytes of the head of a request
FEW_PIECES, LEAST_PIECE = 500, 128  # of a body; the second in bytes, on average

_TEXT = b'{"detail":"too many connections are open: try again"}'
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nretry-after: 1\r\nconnection: close\r\n\r\n%b"
) % (len(_TEXT), _TEXT)


@dataclass(frozen=True)
class ConnectionLimits:
    """The most that connections may take.

    Attributes:
        total: How many may be open.
        of_client: How many of one address.
        header_seconds: Until the head of a request is complete.
        idle_seconds: Between two requests.
        stall_seconds: While a client reads nothing of its answer.
    """

    total: int = 512
    of_client: int = 128
    header_seconds: float = 10.0
    idle_seconds: float = 15.0
    stall_seconds: float = 20.0


class Connections:
    """The connections that are open, by the address of the client.

    A connection without a request in progress makes room for a new one, the one that
    never had a request first: who opens connections and says nothing keeps nobody out.
    """

    def __init__(
        self, limits: ConnectionLimits | None = None, proxies: Iterable[str] = ()
    ) -> None:
        self.limits = limits or ConnectionLimits()
        self.proxies = frozenset(proxies)
        self._open: dict[str, dict[Connection, None]] = {}  # the longest idle first

    def protocol(self) -> type[Connection]:
        """Return the protocol of these connections, as uvicorn takes it."""

        class Own(Connection):
            all = self

        return Own

    def admit(self, connection: Connection) -> bool:
        """Whether there is a place for a connection, perhaps that of an idle one."""
        peer = connection.peer
        own = self._open.get(peer, {})
        is_full = len(own) >= self.limits.of_client and peer not in self.proxies
        if is_full and not self._close_idle(own):
            return False
        if sum(map(len, self._open.values())) >= self.limits.total:
            groups = sorted(self._open.values(), key=len, reverse=True)
            if not any(map(self._close_idle, groups)):
                return False
        self._open.setdefault(peer, {})[connection] = None
        return True

    def touch(self, connection: Connection) -> None:
        """Count a connection as the last one used."""
        own = self._open.get(connection.peer, {})
        if connection in own:
            del own[connection]
            own[connection] = None

    def remove(self, connection: Connection) -> None:
        """Forget a connection."""
        own = self._open.get(connection.peer, {})
        own.pop(connection, None)
        if not own:
            self._open.pop(connection.peer, None)

    def _close_idle(self, group: dict[Connection, None]) -> bool:
        """Close a connection of a group that nobody waits for; tell whether one was."""
        idle = [connection for connection in group if connection.is_idle]
        if not idle:
            return False
        chosen = next((c for c in idle if c.cycle is None), idle[0])
        self.remove(chosen)
        chosen.transport.close()
        return True


class Pieces(h11.Connection):
    """The reading of a connection, which refuses bodies in too many small pieces.

    A piece costs the same whatever it holds: a body in pieces of one byte would keep
    all others waiting.
    """

    n_pieces = n_bytes = 0

    def next_event(self) -> Any:
        """Return what came next."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.n_pieces = self.n_bytes = 0
        elif isinstance(event, h11.Data):
            self.n_pieces += 1
            self.n_bytes += len(event.data)
            if (
                self.n_pieces > FEW_PIECES
                and self.n_bytes < self.n_pieces * LEAST_PIECE
            ):
                raise h11.RemoteProtocolError("the body comes in too small pieces")
        return event


class Connection(H11Protocol):
    """One connection; a client that sends or reads nothing loses it."""

    all: Connections

    def __init__(self, config: Config, *more: Any, **others: Any) -> None:
        super().__init__(config, *more, **others)
        self.conn = Pieces(h11.SERVER, config.h11_max_incomplete_event_size or HEAD)

    def connection_made(self, transport: Any) -> None:
        """Take the connection, or say that there are too many."""
        super().connection_made(transport)
        self._waiting: asyncio.TimerHandle | None = None
        self._stalling: asyncio.TimerHandle | None = None
        self.peer = self.client[0] if self.client else ""
        if self.all.admit(self):
            self._watch_header()
        else:
            transport.write(BUSY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and its timers."""
        self.all.remove(self)
        for timer in (self._waiting, self._stalling):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress and no answer on its way."""
        is_answered = self.cycle is None or self.cycle.response_complete
        is_sent = not self.transport.get_write_buffer_size()
        return self.conn.their_state is h11.IDLE and is_answered and is_sent

    def data_received(self, data: bytes) -> None:
        """Take what came; the head of a request must be complete in time."""
        super().data_received(data)
        self._watch_header()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, unless an answer has begun; then only close."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # so it says nothing any more
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self.all.touch(self)
        super().on_response_complete()
        self._watch_reading()

    def pause_writing(self) -> None:
        """Wait for a client that does not read as fast as the answer comes."""
        super().pause_writing()
        self._watch_reading()

    def _should_upgrade(self) -> bool:
        """Whether to speak another protocol: never, and without a word in the log."""
        return False

    def _watch_header(self) -> None:
        is_incomplete = self.conn.their_state is h11.IDLE
        if not is_incomplete and self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        elif is_incomplete and self._waiting is None:
            seconds = self.all.limits.header_seconds
            self._waiting = self.loop.call_later(seconds, self.transport.close)

    def _watch_reading(self) -> None:
        """Look later whether anything of the answer was taken."""
        size = self.transport.get_write_buffer_size()
        if size and self._stalling is None:
            seconds = self.all.limits.stall_seconds
            self._stalling = self.loop.call_later(seconds, self._end_stalled, size)

    def _end_stalled(self, before: int) -> None:
        self._stalling = None
        if self.transport.get_write_buffer_size() >= before:
            self.transport.abort()
        else:
            self._watch_reading()

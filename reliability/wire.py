"""A wire to a server that can be cut, or hang, at the moment of a commit."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal

Moment = Literal["before", "after"]


class Wire:
    """A wire to a server, with a port of its own on this machine.

    Attributes:
        cut: When the next commit is cut: "before" it, or "after" it and before the
            answer.
        hangs: Whether the wire then stays, but nothing passes any more.
        dies: Whether nobody is let through afterwards.
        is_dead: Whether nobody is let through.
        n_cut: How many commits were cut.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self.cut: Moment | None = None
        self.hangs = self.dies = self.is_dead = False
        self.n_cut = 0
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._hanging: list[socket.socket] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            if self.is_dead:
                client.close()
                continue
            server = socket.create_connection(self._server)
            self._pairs.append((client, server))
            for source, target in ((client, server), (server, client)):
                arguments = source, target, source is client
                threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, asks: bool) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                if source in self._hanging:
                    continue
                if asks and b"COMMIT\0" in content and (when := self._take_cut()):
                    if self._is_over(source, target, content, when):
                        break
                    continue
                target.sendall(content)
        for end in (source, target):
            if end not in self._hanging:
                end.close()

    def _take_cut(self) -> Moment | None:
        with self._lock:
            when, self.cut = self.cut, None
            return when

    def _is_over(
        self, client: socket.socket, server: socket.socket, asked: bytes, when: Moment
    ) -> bool:
        """Cut, or let hang; whether the wire has ended."""
        self.n_cut += 1
        self.is_dead = self.dies
        if self.hangs:
            self._hanging += client, server
        else:
            client.shutdown(socket.SHUT_RDWR)  # no answer comes through
        if when == "after":
            server.sendall(asked)
        if not self.hangs:
            server.shutdown(socket.SHUT_WR)
        return not self.hangs

    def end_all(self) -> None:
        """Cut all connections now, also those that hang."""
        pairs, self._pairs = self._pairs, []
        self._hanging = []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let nobody in any more, and cut all connections."""
        self._door.close()
        self.end_all()

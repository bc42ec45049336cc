"""Clients that hold a service up: idle, slow, large, unread.

In: a service on this machine. Out: for each kind, how many connections were opened and
how they ended, whether `/healthz` went on answering meanwhile, to another client and to
the same, and how much memory the service took more.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from reliability.services import Running, new_model, running
from reliability.trials import Trial

Sending = Callable[[asyncio.StreamWriter], Awaitable[None]]

OTHER = "127.0.0.2"  # from where the client comes that attacks nothing
MOST_MIB = 512  # above the model's need
MOST_SECONDS = 5.0  # of an answer of /healthz, at an attack by the same machine


@dataclass
class Watch:
    """What a client sees while the service is attacked: its answers, and the memory.

    It asks `/healthz` on new connections, in turn as another client and as one with
    the address of the attacker.
    """

    service: Running
    statuses: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    most_kib: int = 0

    def __enter__(self) -> Watch:
        self._first_kib = self._kib()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()

    def _kib(self) -> int:
        text = Path(f"/proc/{self.service.process.pid}/status").read_text("utf-8")
        return int(text.split("VmRSS:")[1].split()[0])

    def _run(self) -> None:
        is_over = False
        while not is_over:  # at least once
            is_over = self._end.wait(0.05)
            for source, who in ((OTHER, "another client"), ("127.0.0.1", "the same")):
                began = time.perf_counter()
                try:
                    status, _ = self.service.ask("GET", "/healthz", source=source)
                    said = "answered" if status == 200 else "refused"
                except (OSError, http.client.HTTPException, ValueError):
                    said = "not answered"
                self.statuses[f"{said} to {who}"] += 1
                if source == OTHER:
                    self.slowest = max(self.slowest, time.perf_counter() - began)
            self.most_kib = max(self.most_kib, self._kib() - self._first_kib)

    def counts(self) -> dict[str, int | float | str]:
        """Return what was seen, for the page."""
        said = {f"`/healthz` {k}": n for k, n in sorted(self.statuses.items())}
        return {
            **said,
            "slowest of another client, s": round(self.slowest, 2),
            "memory taken more, MiB": self.most_kib >> 10,
        }

    @property
    def held(self) -> bool:
        """Whether another client was answered each time, and memory was bounded."""
        wrong = ("refused to another client", "not answered to another client")
        return (
            not any(self.statuses[name] for name in wrong)
            and self.statuses["answered to another client"] > 0
            and self.slowest < MOST_SECONDS
            and self.most_kib < MOST_MIB << 10
        )


# --- one connection ---------------------------------------------------------------


async def _idle(writer: asyncio.StreamWriter) -> None:
    """Send nothing."""


async def _slow_head(writer: asyncio.StreamWriter) -> None:
    """Send a head that never ends."""
    writer.write(b"GET /v1/model HTTP/1.1\r\nhost: localhost\r\n")
    while True:
        writer.write(b"x: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.5)


def _head(line: str, service: Running, length: str) -> bytes:
    token = f"authorization: Bearer {service.token}\r\n" if service.token else ""
    return (
        f"{line} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"{token}{length}\r\n\r\n"
    ).encode()


def _slow_body(service: Running) -> Sending:
    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(_head("POST /v1/predict", service, f"content-length: {16 << 20}"))
        while True:
            writer.write(b"[" * 100)
            await writer.drain()
            await asyncio.sleep(0.5)

    return send


def _large_body(service: Running, line: str, n_bytes: int) -> Sending:
    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(_head(line, service, f"content-length: {n_bytes}"))
        for _ in range(n_bytes >> 16):
            writer.write(b" " * (1 << 16))
            await writer.drain()

    return send


def _small_chunks(
    service: Running,
) -> Sending:
    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(_head("POST /v1/predict", service, "transfer-encoding: chunked"))
        while True:
            writer.write(b"1\r\n \r\n" * 1000)
            await writer.drain()
            await asyncio.sleep(0.01)

    return send


def _unread(service: Running) -> Sending:
    async def send(writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        while True:
            writer.write(_head("GET /v1/candidates?n=1000", service, "x: y") * 10)
            await writer.drain()
            await asyncio.sleep(0.05)

    return send


async def _one(
    service: Running,
    send: Sending,
    seconds: float,
    is_read: bool,
) -> str:
    """Open a connection and send; return how it ended."""
    try:
        reader, writer = await asyncio.open_connection(service.host, service.port)
    except OSError:
        return "could not be opened"
    sending = asyncio.ensure_future(send(writer))
    try:
        async with asyncio.timeout(seconds):
            if is_read:
                answer = await reader.read(64)
                status = answer.split(b" ")[1:2]
                return f"answered {status[0].decode()}" if status else "closed"
            await sending
            return "sent all"
    except TimeoutError:
        return "still open"
    except OSError:
        return "closed"
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.transport.abort()


async def _all(
    service: Running,
    send: Sending,
    n: int,
    seconds: float,
    is_read: bool,
) -> Counter[str]:
    tasks = [_one(service, send, seconds, is_read) for _ in range(n)]
    return Counter(await asyncio.gather(*tasks))


# --- trials -----------------------------------------------------------------------


def attacks(service: Running, share: float = 1.0) -> list[tuple[str, int, Any]]:
    """Return each kind of attack: its title, how many connections, what each sends."""
    large = 16 << 20

    def n(number: int) -> int:
        return max(1, round(share * number))

    return [
        ("Connections that say nothing", n(600), _idle),
        ("Heads that never end", n(600), _slow_head),
        ("Bodies that hardly come", n(300), _slow_body(service)),
        (
            "Bodies of 16 MiB where none belongs",
            n(150),
            _large_body(service, "POST /healthz", large),
        ),
        (
            "Bodies of 16 MiB where one belongs",
            n(150),
            _large_body(service, "POST /v1/predict", large),
        ),
        ("Bodies in pieces of one byte", n(100), _small_chunks(service)),
        ("Answers that nobody reads", n(200), _unread(service)),
    ]


def attack(service: Running, title: str, n: int, send: Any, seconds: float) -> Trial:
    """Make one attack, and ask as another client meanwhile."""
    is_read = title != "Answers that nobody reads"
    with Watch(service) as watch:
        ends = asyncio.run(_all(service, send, n, seconds, is_read))
    counted = {f"connections {end}": n for end, n in sorted(ends.items())}
    return Trial(
        title,
        f"{n} connections at the same time, for up to {seconds:g} s; meanwhile"
        " `/healthz` is asked by another client, and by one of the same address.",
        {**counted, **watch.counts()},
        held=watch.held and service.process.poll() is None,
    )


def trials(
    seconds: float = 40.0, share: float = 1.0, options: Sequence[str] = ("--no-token",)
) -> list[Trial]:
    """Make all attacks on one service, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        path, row = new_model(Path(folder), 2000)
        with running(path, *options) as service:
            service.ask("POST", "/v1/predict", {"rows": [row]})
            found = []
            for title, n, send in attacks(service, share):
                found.append(attack(service, title, n, send, seconds))
                print(title, json.dumps(found[-1].counts), flush=True)
            status, _ = service.ask("POST", "/v1/predict", {"rows": [row]})
            assert status == 200, "the service does not predict any more"
    return found

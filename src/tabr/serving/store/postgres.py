"""A store in PostgreSQL, which several servers may share."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from tabr.errors import DataError
from tabr.optional import require
from tabr.serving.store.connection import Connection, StoreError

_CLIENT = {  # unless the address has others
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "client_encoding": "utf8",
    "application_name": "tabr",
}
# Set in each transaction, as a pool may give us another connection each time. A writer
# whose machine is gone must not keep the others out.
_SERVER = {
    "idle_in_transaction_session_timeout": "5min",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


_LOCK_TIMEOUT = "55P03"


def settings_of(url: str) -> dict[str, str]:
    """Return the arguments of the driver for an address."""
    psycopg = require("psycopg", extra="serve")
    try:
        settings = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        settings = None
    if settings is None or not _is_plain(url, settings.get("port") or ""):
        raise DataError(  # without the driver's words: they may quote the password
            "the address of a store reads postgresql://user:password@host:port/name,"
            " with %-codes for special characters, however this one does not: write"
            " it so"
        ) from None
    return {**_CLIENT, **settings}


def _is_plain(url: str, port: str) -> bool:
    """Whether no part of a password can have been read as something else."""
    server, *path = url.partition("://")[2].partition("?")[0].split("/")
    is_once = server.count("@") <= 1 and not any("@" in part for part in path)
    return is_once and all(c in "0123456789," for c in port)


def _lock_number(name: str) -> int:
    digest = hashlib.sha256(f"tabr:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class PostgresConnection(Connection):
    """A connection to a server."""

    bytes_type = "bytea"
    is_shared = True
    patience_seconds = 5.0  # for the answer to a statement; then the server is lost
    _TURN_SECONDS = 3.0  # of waiting for other writers, between signs of life

    def __init__(self, settings: dict[str, str], identity: str) -> None:
        """Connect by these arguments of the driver; writers of a model wait in turn."""
        psycopg = require("psycopg", extra="serve")
        self.driver_error = psycopg.Error
        self._settings, self._lock = settings, _lock_number(identity)
        self._is_silent = False
        host = settings.get("host") or settings.get("hostaddr") or "localhost"
        port, name = settings.get("port") or 5432, settings.get("dbname") or ""
        self.place = f"postgresql://{host}:{port}/{name}"  # without user and password
        with self.errors():
            self.database = psycopg.connect(
                **settings, autocommit=True, prepare_threshold=None
            )
        self.pid = self.database.info.backend_pid

    def begin(self, writes: bool) -> None:
        """Begin a transaction that sees one state, or excludes writers of the model."""
        if not writes:
            self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return
        # Each statement must see what was committed while we waited for the lock.
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        turn = min(self._TURN_SECONDS, self.wait_seconds)
        settings = _SERVER | {"lock_timeout": f"{1000 * turn:.0f}ms"}
        calls = (f"set_config('{name}', '{settings[name]}', true)" for name in settings)
        self.execute(f"SELECT {', '.join(calls)}")
        # A server may be set up to answer before it has synced: not here.
        self.execute(
            "SELECT set_config('synchronous_commit', 'on', true)"
            " WHERE current_setting('synchronous_commit') = 'off'"
        )
        self._wait_for(self._lock)

    def _wait_for(self, lock: int) -> None:
        """Wait for other writers, in turns, so that a lost server is found out."""
        end = time.monotonic() + self.wait_seconds
        self.execute("SAVEPOINT turn")
        while True:
            try:
                self.execute("SELECT pg_advisory_xact_lock(%s::bigint)", lock)
                return
            except StoreError as error:
                is_late = getattr(error.__context__, "sqlstate", None) == _LOCK_TIMEOUT
                if not is_late or time.monotonic() >= end:
                    raise
            self.execute("ROLLBACK TO SAVEPOINT turn")

    def outlive(self, lost: PostgresConnection) -> None:
        """End what a lost connection may still do at the server.

        It may hold the lock of writers, or have a commit on its way.
        """
        with contextlib.suppress(StoreError):  # a pool may not let us
            self.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s"
                " AND usename = current_user"
                " AND application_name = current_setting('application_name')",
                lost.pid,
            )

    def has_tables(self) -> bool:
        """Whether the tables exist; no one else makes them during the transaction."""
        self._wait_for(_lock_number("tables"))
        ((exists,),) = self.execute("SELECT to_regclass('tabr_store') IS NOT NULL")
        return bool(exists)

    def is_undone(self, error: BaseException | None) -> bool:
        """Whether the server has told of the failure itself."""
        return not self.is_lost

    def _execute(self, sql: str, values: tuple[Any, ...]) -> Any:
        with self._patience():
            return self.database.execute(sql, values or None, binary=True)

    @contextmanager
    def _patience(self) -> Iterator[None]:
        """Hang up if the block takes too long; what waits in it then fails.

        Neither the driver nor TCP finds out that a server that takes what is sent
        does not answer.
        """
        lock, is_answered = threading.Lock(), False

        def hang_up() -> None:
            with lock, contextlib.suppress(self.driver_error, OSError):
                if not is_answered:
                    self._is_silent = True
                    with socket.socket(fileno=os.dup(self.database.fileno())) as line:
                        line.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self.patience_seconds, hang_up)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            with lock:
                is_answered = True
            timer.cancel()

    def reason(self, error: object) -> str:
        """Return a driver's message as part of a sentence, without passwords."""
        if self._is_silent:
            return f"it has not answered for {self.patience_seconds:g} s"
        line = super().reason(error)
        for name in ("password", "sslpassword"):
            if secret := self._settings.get(name):
                for form in (secret, quote(secret, safe="")):
                    line = line.replace(form, "***")
        return line

"""A store in PostgreSQL, which several servers may share."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote

from tabr.errors import DataError
from tabr.optional import require
from tabr.serving.store.connection import Connection

_CLIENT = {  # unless the address has others
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
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

    def __init__(self, settings: dict[str, str], identity: str) -> None:
        """Connect by these arguments of the driver; writers of a model wait in turn."""
        psycopg = require("psycopg", extra="serve")
        self.driver_error = psycopg.Error
        self._settings, self._lock = settings, _lock_number(identity)
        host = settings.get("host") or settings.get("hostaddr") or "localhost"
        port, name = settings.get("port") or 5432, settings.get("dbname") or ""
        self.place = f"postgresql://{host}:{port}/{name}"  # without user and password
        with self.errors():
            self.database = psycopg.connect(
                **settings, autocommit=True, prepare_threshold=None
            )

    def begin(self, writes: bool) -> None:
        """Begin a transaction that sees one state, or excludes writers of the model."""
        if not writes:
            self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return
        # Each statement must see what was committed while we waited for the lock.
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        settings = _SERVER | {"lock_timeout": f"{1000 * self.wait_seconds:.0f}ms"}
        calls = (f"set_config('{name}', '{settings[name]}', true)" for name in settings)
        self.execute(f"SELECT {', '.join(calls)}")
        # A server may be set up to answer before it has synced: not here.
        self.execute(
            "SELECT set_config('synchronous_commit', 'on', true)"
            " WHERE current_setting('synchronous_commit') = 'off'"
        )
        self._wait_for(self._lock)

    def _wait_for(self, lock: int) -> None:
        self.execute("SELECT pg_advisory_xact_lock(%s::bigint)", lock)

    def has_tables(self) -> bool:
        """Whether the tables exist; no one else makes them during the transaction."""
        self._wait_for(_lock_number("tables"))
        ((exists,),) = self.execute("SELECT to_regclass('tabr_store') IS NOT NULL")
        return bool(exists)

    def is_undone(self, error: BaseException | None) -> bool:
        """Whether the server has told of the failure itself."""
        return not self.is_lost

    def _execute(self, sql: str, values: tuple[Any, ...]) -> Any:
        return self.database.execute(sql, values or None, binary=True)

    def reason(self, error: object) -> str:
        """Return a driver's message as part of a sentence, without passwords."""
        line = super().reason(error)
        for name in ("password", "sslpassword"):
            if secret := self._settings.get(name):
                for form in (secret, quote(secret, safe="")):
                    line = line.replace(form, "***")
        return line

"""A store in PostgreSQL, which several servers may share."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

from tabr.errors import DataError
from tabr.optional import require
from tabr.serving.store.contract import Store, StoreError
from tabr.serving.store.sql import Connection, SqlStore

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


class Address(NamedTuple):
    """The address of a database.

    Attributes:
        settings: The arguments of the driver.
        place: The address for messages, without users and passwords.
    """

    settings: Mapping[str, str]
    place: str

    def clean(self, text: object) -> str:
        """Return a driver's message as part of a sentence, without passwords."""
        line = " ".join(str(text).split())
        for name in ("password", "sslpassword"):
            if secret := self.settings.get(name):
                for form in (secret, quote(secret, safe="")):
                    line = line.replace(form, "***")
        return line


def open_postgres(url: str, identity: str, begin: bool) -> Store:
    """Open a store in PostgreSQL."""
    address = _read(url)
    lock = _lock_number(identity)
    return SqlStore(
        lambda: PostgresConnection(address, lock), identity, address.place, begin
    )


def _read(url: str) -> Address:
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
    host = settings.get("host") or settings.get("hostaddr") or "localhost"
    name = settings.get("dbname") or ""
    place = f"postgresql://{host}:{settings.get('port') or 5432}/{name}"
    return Address({**_CLIENT, **settings}, place)


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

    def __init__(self, address: Address, lock: int) -> None:
        """Connect; the writers of a model share the number of a lock."""
        self._psycopg = require("psycopg", extra="serve")
        self._address, self._lock = address, lock
        self.place = address.place
        with self._errors():
            self._database: Any = self._psycopg.connect(
                **address.settings, autocommit=True, prepare_threshold=None
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            raise self.failure(self._address.clean(error)) from None

    @property
    def is_lost(self) -> bool:
        """Whether the connection is of no more use."""
        return bool(self._database.closed)

    def begin_reading(self) -> None:
        """Begin a transaction that sees one state."""
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def begin_writing(self) -> None:
        """Begin a transaction that excludes other writers of this model."""
        # Each statement must see what was committed while we waited for the lock.
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        wait = {"lock_timeout": f"{1000 * self.wait_seconds:.0f}ms"}
        settings = [*(_SERVER | wait).items()]
        calls = ", ".join(["set_config(%s, %s, true)"] * len(settings))
        self.execute(f"SELECT {calls}", *(text for pair in settings for text in pair))
        # A server may be set up to answer before it has synced: not here.
        self.execute(
            "SELECT set_config('synchronous_commit', 'on', true)"
            " WHERE current_setting('synchronous_commit') = 'off'"
        )
        self._wait_for(self._lock)

    def _wait_for(self, lock: int) -> None:
        self.execute("SELECT pg_advisory_xact_lock(%s::bigint)", lock)

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        with self._errors(), self._database.cursor(binary=True) as cursor:
            cursor.execute(sql, values or None)
            rows: list[tuple[Any, ...]] = (
                cursor.fetchall() if cursor.description else []
            )
        return rows

    def commit(self) -> None:
        """End the transaction durably."""
        try:
            self.execute("COMMIT")
        except StoreError:
            if not self.is_lost:
                raise
            raise self.unknown("the connection was lost") from None

    def has_tables(self) -> bool:
        """Whether the tables exist; no one else makes them during the transaction."""
        self._wait_for(_lock_number("tables"))
        ((exists,),) = self.execute("SELECT to_regclass('tabr_store') IS NOT NULL")
        return bool(exists)

    def close(self) -> None:
        """End the connection, without what it has not committed."""
        with contextlib.suppress(self._psycopg.Error):
            self._database.close()

"""A store in an SQL database: its tables, statements and transactions."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

from tabr.errors import DataError
from tabr.serving.store.contract import (
    Change,
    ChangeKind,
    ChangesCompacted,
    KeyReused,
    Maker,
    NoStore,
    OtherModel,
    OutcomeUnknown,
    StoreError,
)

VERSION = 1  # of the tables
KEY_SECONDS = 7 * 24 * 3600  # for which a key outlives its change
PART_BYTES = 1 << 23  # of a model file: databases limit the size of a cell

# Text is ASCII throughout, so that any database gives it back as it was.
_TABLES = (
    "CREATE TABLE tabr_store (identity text PRIMARY KEY, version integer NOT NULL,"
    " settled text)",
    "CREATE TABLE tabr_changes (identity text NOT NULL, seq bigint NOT NULL,"
    " kind text NOT NULL, payload text NOT NULL, response text NOT NULL,"
    " key_hash text, fingerprint text NOT NULL, token text NOT NULL,"
    " at double precision NOT NULL, PRIMARY KEY (identity, seq),"
    " UNIQUE (identity, key_hash))",
    "CREATE TABLE tabr_keys (identity text NOT NULL, key_hash text NOT NULL,"
    " fingerprint text NOT NULL, seq bigint NOT NULL, kind text NOT NULL,"
    " response text NOT NULL, at double precision NOT NULL,"
    " PRIMARY KEY (identity, key_hash))",
    "CREATE TABLE tabr_checkpoints (identity text NOT NULL, part integer NOT NULL,"
    " seq bigint NOT NULL, content {bytes} NOT NULL, PRIMARY KEY (identity, part))",
)


class Connection(ABC):
    """A connection to a database; its failures are StoreErrors."""

    bytes_type: str  # as the database calls it
    is_shared: bool  # whether models share the database
    wait_seconds = 30.0  # for other writers
    place: str  # of the database, for messages

    @abstractmethod
    def begin_reading(self) -> None:
        """Begin a transaction that sees one state."""

    @abstractmethod
    def begin_writing(self) -> None:
        """Begin a transaction that excludes other writers of this model."""

    @abstractmethod
    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement with %s for values; return its rows."""

    @abstractmethod
    def commit(self) -> None:
        """End the transaction durably.

        Raises:
            OutcomeUnknown: It may or may not have worked.
        """

    @abstractmethod
    def has_tables(self) -> bool:
        """Whether the tables exist; no one else makes them during the transaction."""

    @property
    @abstractmethod
    def is_lost(self) -> bool:
        """Whether the connection is of no more use."""

    @abstractmethod
    def close(self) -> None:
        """End the connection, without what it has not committed."""

    def failure(self, reason: object) -> StoreError:
        """Return the error for a statement that failed."""
        return StoreError(
            f"changes are kept in {self.place}, however it cannot be used ({reason}):"
            " nothing was changed, try again when it can"
        )

    def unknown(self, reason: object) -> OutcomeUnknown:
        """Return the error for a commit that failed half way."""
        return OutcomeUnknown(
            f"changes are kept in {self.place}, however whether it has kept this one"
            f" was not clear ({reason})"
        )


class Session:
    """Transactions on one connection, for one thread after another.

    The connection is made when it is needed, and again after it was lost.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        begin: Callable[[Connection], None],
    ) -> None:
        """Take a function that connects, and one that begins a transaction."""
        self._connect, self._begin = connect, begin
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._is_closed = False

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Commit the whole block or, if it raises, nothing of it."""
        with self._lock:
            connection = self._begun()
            try:
                yield connection
                connection.commit()
            except BaseException:
                self._undo(connection)
                raise

    def _begun(self) -> Connection:
        if self._is_closed:
            raise StoreError("a store must be open, however this one was closed")
        is_old = self._connection is not None
        connection = self._connection = self._connection or self._connect()
        try:
            self._begin(connection)
        except BaseException as error:
            was_lost = connection.is_lost
            self._undo(connection)
            if is_old and was_lost and isinstance(error, StoreError):
                return self._begun()  # a new one is tried once
            raise
        return connection

    def _undo(self, connection: Connection) -> None:
        try:
            connection.execute("ROLLBACK")
        except StoreError:  # the end of the connection undoes it, too
            self._connection = None
            connection.close()

    def close(self) -> None:
        """End the connection for good."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
            self._connection = None


class SqlStore:
    """A store in an SQL database."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        identity: str,
        place: str,
        begin: bool,
    ) -> None:
        """Open the store, or begin it.

        Args:
            connect: Makes a connection.
            identity: The SHA-256 of the model file.
            place: The database, for messages.
            begin: Whether a missing store is begun; otherwise NoStore is raised.
        """
        self._identity, self._place = identity, place
        self._writer = Session(connect, lambda connection: connection.begin_writing())
        self._reader = Session(connect, lambda connection: connection.begin_reading())
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            with self._writer.transaction() as database:
                self._prepare(database, begin)
            on_error.pop_all()

    def _prepare(self, database: Connection, begin: bool) -> None:
        versions: dict[str, int] = {}
        if has_tables := database.has_tables():
            rows = database.execute("SELECT identity, version FROM tabr_store")
            versions = dict(rows)
        for version in set(versions.values()) - {VERSION}:
            raise StoreError(
                f"a store must have format {VERSION}, however {self._place} has"
                f" {version}: use the version of tabr that wrote it, or another store"
            )
        if self._identity in versions:
            return
        if not begin:
            raise NoStore(
                f"a store must have been begun with this model, however {self._place}"
                " was not: begin it"
            )
        if versions and not database.is_shared:
            raise OtherModel(
                f"a store serves the model file it was begun with, however"
                f" {self._place} was begun with {next(iter(versions)):.12} and this"
                f" file is {self._identity:.12}: serve that file, or give another store"
            )
        if not has_tables:
            for sql in _TABLES:
                database.execute(sql.format(bytes=database.bytes_type))
        sql = "INSERT INTO tabr_store (identity, version) VALUES (%s, %s)"
        database.execute(sql, self._identity, VERSION)

    def close(self) -> None:
        """Close the connections."""
        self._writer.close()
        self._reader.close()

    # --- reading ----------------------------------------------------------------------

    def checkpoint(self) -> tuple[int, bytes] | None:
        """Return the checkpoint: the number of its last change, and its model file."""
        sql = "SELECT seq, content FROM tabr_checkpoints WHERE identity = %s"
        with self._reader.transaction() as database:
            parts = database.execute(f"{sql} ORDER BY part", self._identity)
        if not parts:
            return None
        return parts[0][0], b"".join(content for _, content in parts)

    def changes(self, after: int) -> list[Change]:
        """Return the changes with larger numbers, in order."""
        with self._reader.transaction() as database:
            return self._newer(database, after)

    def _newer(self, database: Connection, after: int) -> list[Change]:
        first, last = self._ends(database)
        if after < first:
            raise ChangesCompacted(
                f"changes up to {first} of {self._place} were compacted, however those"
                f" after {after} were asked for: begin again from the checkpoint"
            )
        rows = database.execute(
            "SELECT seq, kind, payload, response FROM tabr_changes"
            " WHERE identity = %s AND seq > %s ORDER BY seq",
            self._identity,
            after,
        )
        if after > last or len(rows) != last - after:
            raise StoreError(
                f"{self._place} must hold each change up to the last, however it has"
                f" {len(rows)} after {after} and ends with {last}: it was set back or"
                " damaged; start the service again"
            )
        return [_change(*row) for row in rows]

    def _ends(self, database: Connection) -> tuple[int, int]:
        """Return the numbers of the last compacted change and of the last one."""
        ((compacted, last),) = database.execute(
            "SELECT (SELECT max(seq) FROM tabr_checkpoints WHERE identity = %s),"
            " (SELECT max(seq) FROM tabr_changes WHERE identity = %s)",
            self._identity,
            self._identity,
        )
        return compacted or 0, max(compacted or 0, last or 0)

    def _change_of_key(
        self, database: Connection, key_hash: str, fingerprint: str
    ) -> Change | None:
        """Return the change with this key, if there is one."""
        rows = database.execute(
            "SELECT seq, kind, payload, response, fingerprint FROM tabr_changes"
            " WHERE identity = %s AND key_hash = %s UNION ALL"
            " SELECT seq, kind, '{}', response, fingerprint FROM tabr_keys"
            " WHERE identity = %s AND key_hash = %s",
            *(self._identity, key_hash) * 2,
        )
        if not rows:
            return None
        *change, fingerprint_of_change = rows[0]
        if fingerprint_of_change != fingerprint:
            raise KeyReused(
                "a key stands for one request, however this one came before with"
                " another: use a new key for a new request"
            )
        return _change(*change)

    # --- writing ----------------------------------------------------------------------

    def append(
        self, make: Maker, *, after: int, key: str | None = None, fingerprint: str = ""
    ) -> tuple[Change, bool]:
        """Add a change; see `Store.append`."""
        key_hash = None if key is None else _hash(key)
        fingerprint, token = _hash(fingerprint), secrets.token_hex(16)
        try:
            with self._writer.transaction() as database:
                if key_hash is not None:
                    old = self._change_of_key(database, key_hash, fingerprint)
                    if old is not None:
                        return old, False
                newer = self._newer(database, after)
                kind, payload, response = make(newer)
                values = _kind(kind), _to_json(payload), _to_json(response)
                seq = after + len(newer) + 1
                database.execute(
                    "INSERT INTO tabr_changes (identity, seq, kind, payload, response,"
                    " key_hash, fingerprint, token, at)"
                    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                    *(self._identity, seq, *values),
                    *(key_hash, fingerprint, token, time.time()),
                )
        except OutcomeUnknown as error:
            if not self._has_kept(token):
                again = "it has not, so nothing was changed; try again"
                raise StoreError(f"{error}: {again}") from None
        return _change(seq, *values), True

    def _has_kept(self, token: str) -> bool:
        """Whether a change was kept whose commit has failed half way.

        The transaction waits until the failed one has ended. It writes, because a write
        of SQLite covers what a failed one has left in the log.
        """
        write = "UPDATE tabr_store SET settled = %s WHERE identity = %s"
        read = "SELECT seq FROM tabr_changes WHERE identity = %s AND token = %s"
        try:
            with self._writer.transaction() as database:
                database.execute(write, token, self._identity)
                return bool(database.execute(read, self._identity, token))
        except StoreError as error:
            raise OutcomeUnknown(
                f"a change was given to {self._place}, however whether it was kept is"
                f" not known ({error}): send it again with the same key"
            ) from error

    def compact(self, seq: int, model: bytes) -> None:
        """Replace the changes up to this one by a model file that has them."""
        of_old = "WHERE identity = %s AND seq <= %s"
        with self._writer.transaction() as database:
            first, last = self._ends(database)
            if not 0 <= seq <= last:
                raise ValueError(
                    f"a checkpoint holds changes up to one of {last}, however: {seq=}"
                )
            if seq < first:  # another service was faster
                return
            execute, identity = database.execute, self._identity
            execute(
                "INSERT INTO tabr_keys (identity, key_hash, fingerprint, seq, kind,"
                " response, at) SELECT identity, key_hash, fingerprint, seq, kind,"
                f" response, at FROM tabr_changes {of_old} AND key_hash IS NOT NULL",
                identity,
                seq,
            )
            execute(f"DELETE FROM tabr_changes {of_old}", identity, seq)
            execute("DELETE FROM tabr_checkpoints WHERE identity = %s", identity)
            for part, start in enumerate(range(0, max(1, len(model)), PART_BYTES)):
                execute(
                    "INSERT INTO tabr_checkpoints (identity, part, seq, content)"
                    " VALUES (%s, %s, %s, %s)",
                    *(identity, part, seq, model[start : start + PART_BYTES]),
                )
            too_old = time.time() - KEY_SECONDS
            sql = "DELETE FROM tabr_keys WHERE identity = %s AND at < %s"
            execute(sql, identity, too_old)


def _change(seq: int, kind: ChangeKind, payload: str, response: str) -> Change:
    return Change(seq, kind, json.loads(payload), json.loads(response))


def _kind(kind: ChangeKind) -> ChangeKind:
    if kind not in get_args(ChangeKind):
        raise ValueError(
            f"a change is one of {get_args(ChangeKind)}, however: {kind!r}"
        )
    return kind


def _to_json(value: dict[str, Any]) -> str:
    """Return the JSON of a value, which gives back exactly this value."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"a change must be plain JSON, however: {error}") from error
    if json.loads(text) != value:  # as with tuples, and names that are no text
        raise DataError("a change must be plain JSON, however JSON alters this one")
    return text


def _hash(text: str) -> str:
    """Return a short ASCII name for any text, which fits into an index."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

"""The changes of a model's candidates, kept in order.

A change that `append` returned is on disk, once and whole, whatever happens to process
or machine afterwards. Any number of processes may share a store, and any threads may
call it: writers wait for writers, readers for readers. A forked process opens its own.

PostgreSQL keeps this promise as it is set up by default, with `fsync` on.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from tabr.errors import DataError, TabrError
from tabr.serving.store.connection import (
    Connection,
    NoStore,
    OutcomeUnknown,
    Session,
    StoreError,
)
from tabr.serving.store.postgres import PostgresConnection, settings_of
from tabr.serving.store.sqlite import SqliteConnection, file_at
from tabr.text import is_exact_json, json_text

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

ChangeKind = Literal["add", "remove", "relabel"]


class Change(NamedTuple):
    """A change of a model's candidates; payload and response are plain JSON."""

    seq: int  # 1, 2, ... without gaps
    kind: ChangeKind
    payload: dict[str, Any]  # the request; empty if found by its key after compaction
    response: dict[str, Any]  # for the client


NewChange = tuple[ChangeKind, dict[str, Any], dict[str, Any]]  # kind, payload, response
Maker = Callable[[list[Change]], NewChange]  # from newer changes


class ChangesCompacted(StoreError):
    """The changes asked for are only in the checkpoint: begin again from it."""


class KeyReused(TabrError, ValueError):
    """A key came again, with another request."""


def open_store(address: str | Path, identity: str, *, begin: bool = True) -> Store:
    """Open the store of a model, or begin one.

    Args:
        address: A file or folder on a local disk, for SQLite, or a postgresql://
            address. A name without a dot that is not there yet becomes a folder.
        identity: The SHA-256 of the model file. A file serves one model; in PostgreSQL
            each model has its own changes.
        begin: Whether a missing store is begun; otherwise nothing is written.

    Raises:
        NoStore: There is no store of this model, and none may be begun.
        DataError: The file belongs to another model, or the address is of another kind.
        StoreError: The database cannot be opened.
    """
    if isinstance(address, Path) or "://" not in address:
        path = file_at(Path(address), begin)
        return Store(partial(SqliteConnection, path), identity, begin)
    scheme, _, rest = address.partition("://")
    if scheme not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise DataError(  # which may hold a password, so it is not shown
            "a store is a file, a folder or a postgresql:// address, however another"
            " address came: give one of them"
        )
    settings = settings_of(f"postgresql://{rest}")
    return Store(partial(PostgresConnection, settings, identity), identity, begin)


class Store:
    """The changes since the model file, or since the checkpoint that replaced it."""

    def __init__(
        self, connect: Callable[[], Connection], identity: str, begin: bool
    ) -> None:
        """Take what makes a connection; see `open_store`."""
        self._identity = identity
        self._writer, self._reader = Session(connect, True), Session(connect, False)
        try:
            with self._writer.transaction() as database:
                self._place = database.place
                self._prepare(database, begin)
        except BaseException:
            self.close()
            raise

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
            raise DataError(
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
        """Return the changes with larger numbers, in order.

        Raises:
            ChangesCompacted: Some of them are in the checkpoint alone.
        """
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
        """Add a change; no other comes between `make` and its change.

        Args:
            make: Called once at most, with the changes after `after`; returns kind,
                payload and response. If it raises, nothing is kept. It may read the
                store and must not write to it.
            after: The number of the last change that the caller has.
            key: The client's name for the request. A second time it changes nothing.
            fingerprint: Differs between requests that are not the same.

        Returns:
            The change, and whether it is new, not an old one with the same key.

        Raises:
            KeyReused: The key came before with another fingerprint.
            ChangesCompacted: Changes after `after` are in the checkpoint alone.
            OutcomeUnknown: The database was lost while it took the change.
            StoreError: Nothing was changed.
        """
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
                if kind not in (kinds := get_args(ChangeKind)):
                    raise ValueError(f"a change is one of {kinds}, however: {kind!r}")
                values = kind, _to_json(payload), _to_json(response)
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
        """Replace the changes up to this one by a model file that has them.

        Their keys are kept for a week. Nothing happens if the store has a checkpoint
        with more changes.
        """
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
            columns = "identity, key_hash, fingerprint, seq, kind, response, at"
            execute(
                f"INSERT INTO tabr_keys ({columns}) SELECT {columns} FROM tabr_changes"
                f" {of_old} AND key_hash IS NOT NULL",
                *(identity, seq),
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


def _to_json(value: dict[str, Any]) -> str:
    """Return the JSON of a value, which gives back exactly this value."""
    try:
        text, is_exact = json_text(value, allow_nan=False), is_exact_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"a change must be plain JSON, however: {error}") from error
    if not is_exact:  # as with tuples, and names that are no text
        raise DataError("a change must be plain JSON, however JSON alters this one")
    return text


def _hash(text: str) -> str:
    """Return a short ASCII name for any text, which fits into an index."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

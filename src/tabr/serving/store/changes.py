"""The changes of a model's candidates, kept in order.

A change that `append` returned is on disk, once and whole, whatever happens to process
or machine afterwards. Any number of processes may share a store, and any threads may
call it: writers wait for writers, readers for readers. A forked process opens its own.

PostgreSQL keeps this promise as it is set up by default, with `fsync` on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from tabr.errors import DataError, TabrError
from tabr.serving.store.chain import digest, first_link, link, ranges
from tabr.serving.store.connection import (
    MEND,
    Connection,
    Forgotten,
    NoStore,
    OutcomeUnknown,
    Session,
    StoreDamaged,
    StoreError,
)
from tabr.serving.store.postgres import PostgresConnection, settings_of
from tabr.serving.store.sqlite import SqliteConnection, file_at, path_of, set_aside
from tabr.serving.store.tables import (
    KEPT,
    LINKED,
    LOGGED,
    VERSION,
    content_digest,
    create,
    insert,
    response_ids,
    upgrade,
)
from tabr.serving.store.witness import Witness
from tabr.text import is_exact_json, json_text

KEY_SECONDS = 7 * 24 * 3600  # for which a key outlives its change
SETTLING_SECONDS = 10.0  # of asking whether a change was kept
PART_BYTES = 1 << 23  # of a model file: databases limit the size of a cell

ChangeKind = Literal["add", "remove", "relabel"]


class Change(NamedTuple):
    """A change of a model's candidates; payload and response are plain JSON."""

    seq: int  # 1, 2, ... without gaps
    kind: ChangeKind
    payload: dict[str, Any]  # the request; empty if found by its key after compaction
    response: dict[str, Any]  # for the client


_VERSIONS = "SELECT identity, version FROM tabr_store"
_OF_MODEL = "SELECT version FROM tabr_store WHERE identity = %s"
_SETTLE = "UPDATE tabr_store SET settled = %s WHERE identity = %s"


class Entry(NamedTuple):
    """Who changed what, and when."""

    seq: int
    kind: str
    ids: str  # in few characters: "3-5,9"
    n: int  # candidates
    who: str | None
    at: float  # seconds since 1970


@dataclass(frozen=True)
class Snapshot:
    """All that a store holds of a model at one moment.

    Attributes:
        identity: The SHA-256 of the model file.
        compacted: The last change in the checkpoint.
        link: The checksum of the last compacted change.
        last: The number of the last change.
        checkpoint: The model file with the compacted changes.
        changes: Rows of the others, and their links.
        keys: Rows of keys of compacted changes.
        log: Rows of the history of compacted changes.
    """

    identity: str
    compacted: int
    link: str
    last: int
    checkpoint: bytes | None
    changes: list[list[Any]]
    keys: list[list[Any]]
    log: list[list[Any]]


NewChange = tuple[ChangeKind, dict[str, Any], dict[str, Any]]  # kind, payload, response
Answer = tuple[str, str, dict[str, Any]]  # key, fingerprint and response of a request
Maker = Callable[[list[Change]], NewChange]  # from newer changes


class ChangesCompacted(StoreError):
    """The changes asked for are only in the checkpoint: begin again from it."""


class KeyReused(TabrError, ValueError):
    """A key came again, with another request."""


def open_store(
    address: str | Path,
    identity: str,
    *,
    begin: bool = True,
    accept_loss: bool = False,
) -> Store:
    """Open the store of a model, or begin one.

    Args:
        address: A file or folder on a local disk, for SQLite, or a postgresql://
            address. A name without a dot that is not there yet becomes a folder.
        identity: The SHA-256 of the model file. A file serves one model; in PostgreSQL
            each model has its own changes.
        begin: Whether a missing store is begun; otherwise nothing is written.
        accept_loss: Whether to go on with a store that ends before its witness, or has
            lost it.

    Raises:
        NoStore: There is no store of this model, and none may be begun.
        StoreDamaged: It has lost changes, or files.
        DataError: The file belongs to another model, or the address is of another kind.
        StoreError: The database cannot be opened.
    """
    if is_file(address):
        path = file_at(Path(address), begin)
        connect: Callable[[], Connection] = partial(SqliteConnection, path)
        return Store(connect, identity, begin, Witness(path), accept_loss)
    scheme, _, rest = str(address).partition("://")
    if scheme not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise DataError(  # which may hold a password, so it is not shown
            "a store is a file, a folder or a postgresql:// address, however another"
            " address came: give one of them"
        )
    settings = settings_of(f"postgresql://{rest}")
    return Store(partial(PostgresConnection, settings, identity), identity, begin)


def begin_anew(address: str | Path, identity: str) -> None:
    """Set the files of a store aside, whole or not; in a database it must be new."""
    if is_file(address):
        set_aside(path_of(Path(address)))
        return
    with contextlib.suppress(NoStore):
        open_store(address, identity, begin=False).close()
        raise DataError(
            "a new store needs a place without one, however this database has one of"
            " this model: give another database, or a schema of its own"
        )


def is_file(address: str | Path) -> bool:
    """Whether the address is that of a file or a folder."""
    return isinstance(address, Path) or "://" not in address


class Store:
    """The changes since the model file, or since the checkpoint that replaced it."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        identity: str,
        begin: bool,
        witness: Witness | None = None,
        accept_loss: bool = False,
    ) -> None:
        """Take what makes a connection; see `open_store`."""
        self._identity, self._witness = identity, witness
        self._writer, self._reader = Session(connect, True), Session(connect, False)
        self._probes = {writes: Session(connect, writes) for writes in (False, True)}
        self._has_failed = False  # to write, the last time
        try:
            with self._writer.transaction() as database:
                self.place = database.place
                self._prepare(database, begin)
                if witness is not None:
                    self._ask(witness, database, accept_loss)
        except BaseException:
            self.close()
            raise

    def _prepare(self, database: Connection, begin: bool) -> None:
        versions: dict[str, int] = {}
        if has_tables := database.has_tables():
            database.check()
            versions = dict(database.execute(_VERSIONS))
        for version in set(versions.values()) - {1, VERSION}:
            raise StoreError(
                f"a store must have format {VERSION}, however {self.place} has"
                f" {version}: use the version of tabr that wrote it, or another store"
            )
        if 1 in versions.values():
            upgrade(database)
            if self._witness is not None:
                self._witness.begin(*self._end(database))
        if self._identity in versions:
            self._ends(database)  # which refuses a file that held forgotten rows
            return
        if not begin:
            raise NoStore(
                f"a store must have been begun with this model, however {self.place}"
                " was not: begin it"
            )
        if versions and not database.is_shared:
            raise DataError(
                f"a store serves the model file it was begun with, however"
                f" {self.place} was begun with {self._present(database):.12} and this"
                f" file is {self._identity:.12}: serve that file, or give another store"
            )
        if self._witness is not None:
            self._begin_witness(self._witness)
        if not has_tables:
            create(database)
        sql = insert("tabr_store", "identity, version")
        database.execute(sql, self._identity, VERSION)

    def _present(self, database: Connection) -> str:
        """Return the model that a file is the store of."""
        sql = "SELECT identity FROM tabr_store WHERE successor IS NULL"
        return str(database.execute(sql)[0][0])

    def _begin_witness(self, witness: Witness) -> None:
        seen = witness.seen() if witness.exists else None
        if witness.exists and (seen is None or seen.reached > 0):
            raise StoreDamaged(
                f"the files of a store belong together, however {self.place} is empty"
                f" beside {witness.path.name}: {MEND}"
            )
        witness.begin(0, first_link(self._identity))

    def _ask(self, witness: Witness, database: Connection, accept_loss: bool) -> None:
        """Refuse a store that ends before its witness, or has another end."""
        seq, link_of_last = self._end(database)
        seen = witness.seen() if witness.exists else None
        if seen is None:
            wrong = f"the witness {witness.path} is missing or damaged"
        elif seen.reached > seq:
            wrong = f"{seen.reached} were acknowledged, as {witness.path.name} tells"
        elif self._link_at(database, seen.seq) not in (None, seen.link):
            wrong = f"change {seen.seq} is another one than {witness.path.name} tells"
        else:
            witness.reserve(seq, link_of_last)
            return
        if not accept_loss:
            database.keep_log()
            raise StoreDamaged(
                f"a store must hold all changes that were acknowledged, however"
                f" {self.place} ends with change {seq}, and {wrong}: {MEND}, or go on"
                " with what is left by --accept-loss"
            )
        witness.begin(seq, link_of_last)

    def close(self) -> None:
        """Close the connections."""
        for session in (self._writer, self._reader, *self._probes.values()):
            session.close()

    def check(self) -> None:
        """Refuse, by a StoreError, if changes cannot be read or kept at present.

        It does not wait for other readers and writers of this store, and writes only
        where the last change could not be kept.
        """
        with self._probes[False].transaction() as database:
            database.execute(_OF_MODEL, self._identity)
        if self._has_failed:
            with self._probes[True].transaction() as database:
                word = secrets.token_hex(16)
                database.execute(_SETTLE, word, self._identity)
            self._has_failed = False

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction for writing; whether it failed is kept for `check`."""
        try:
            with self._writer.transaction() as database:
                yield database
        except StoreError as error:
            self._has_failed = not isinstance(error, ChangesCompacted)
            raise
        self._has_failed = False

    # --- reading ----------------------------------------------------------------------

    def checkpoint(self) -> tuple[int, bytes] | None:
        """Return the checkpoint: the number of its last change, and its model file."""
        with self._reader.transaction() as database:
            return self._checkpoint(database)

    def beginning(self) -> tuple[tuple[int, bytes] | None, list[Change]]:
        """Return the checkpoint and the changes after it, both of one moment."""
        with self._reader.transaction() as database:
            checkpoint = self._checkpoint(database)
            return checkpoint, self._newer(database, checkpoint[0] if checkpoint else 0)

    def n_compacted(self) -> int:
        """Return the number of the last change that was compacted."""
        with self._reader.transaction() as database:
            return self._ends(database)[0]

    def n_changes(self) -> int:
        """Return the number of the last change."""
        with self._reader.transaction() as database:
            return self._ends(database)[1]

    def history(self, after: int, n: int) -> list[Entry]:
        """Return who made the next n changes, what they were and when.

        Of changes that earlier versions have compacted nothing is known.
        """
        page = "WHERE identity = %s AND seq > %s ORDER BY seq LIMIT %s"
        asked = self._identity, after, n
        with self._reader.transaction() as database:
            self._ends(database)
            old = database.execute(
                f"SELECT {LOGGED}, digest FROM tabr_log {page}", *asked
            )
            columns = "seq, kind, response, who, at"
            new = database.execute(f"SELECT {columns} FROM tabr_changes {page}", *asked)
        entries = []
        for *values, own in old:
            if digest(*values) != own:
                raise self._damaged(f"the log of change {values[0]} was altered")
            entries.append(Entry(*values))
        for seq, kind, response, who, at in new:
            ids = response_ids(response)
            entries.append(Entry(seq, kind, ranges(ids), len(ids), who, at))
        return entries[:n]

    def snapshot(self) -> Snapshot:
        """Return all that the store holds at this moment."""
        of_model = "WHERE identity = %s"
        with self._reader.transaction() as database:
            checkpoint = self._checkpoint(database)
            first, last = self._ends(database)
            self._newer(database, first)  # which checks the chain
            rows = [
                [list(row) for row in database.execute(sql, self._identity)]
                for sql in (
                    f"SELECT {LINKED}, link FROM tabr_changes {of_model} ORDER BY seq",
                    f"SELECT {KEPT}, digest FROM tabr_keys {of_model}",
                    f"SELECT {LOGGED}, digest FROM tabr_log {of_model} ORDER BY seq",
                )
            ]
            link_of_first = self._link_at(database, first)
        if link_of_first is None:
            raise self._damaged(f"change {first} is missing")
        content = None if checkpoint is None else checkpoint[1]
        return Snapshot(self._identity, first, link_of_first, last, content, *rows)

    def fill(self, snapshot: Snapshot) -> None:
        """Take all of a snapshot; the store must be new."""
        with self._writing() as database:
            if self._ends(database) != (0, 0) or self._checkpoint(database):
                raise StoreError(
                    f"a snapshot needs a new store, however {self.place} is not"
                )
            for table, columns, rows in (
                ("tabr_changes", f"identity, {LINKED}, link", snapshot.changes),
                ("tabr_keys", f"identity, {KEPT}, digest", snapshot.keys),
                ("tabr_log", f"identity, {LOGGED}, digest", snapshot.log),
            ):
                for row in rows:
                    database.execute(insert(table, columns), self._identity, *row)
            if snapshot.checkpoint is not None:
                self._write_checkpoint(
                    database, snapshot.compacted, snapshot.checkpoint, snapshot.link
                )
            self._newer(database, snapshot.compacted)  # which checks the chain
            if self._witness is not None:
                self._witness.begin(*self._end(database))

    def _checkpoint(self, database: Connection) -> tuple[int, bytes] | None:
        parts = database.execute(
            "SELECT seq, digest, content FROM tabr_checkpoints WHERE identity = %s"
            " ORDER BY part",
            self._identity,
        )
        if not parts:
            return None
        content = b"".join(bytes(part) for *_, part in parts)
        seq, whole, _ = parts[0]
        if content_digest(content) != whole:
            raise self._damaged("its checkpoint is not what was written")
        return seq, content

    def _damaged(self, what: str) -> StoreDamaged:
        return StoreDamaged(f"changes are kept in {self.place}, however {what}: {MEND}")

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
                f"changes up to {first} of {self.place} were compacted, however those"
                f" after {after} were asked for: begin again from the checkpoint"
            )
        rows = database.execute(
            f"SELECT {LINKED}, link FROM tabr_changes"
            " WHERE identity = %s AND seq > %s ORDER BY seq",
            self._identity,
            after,
        )
        if after > last or len(rows) != last - after:
            raise StoreDamaged(
                f"{self.place} must hold each change up to the last, however it has"
                f" {len(rows)} after {after} and ends with {last}: it was set back or"
                " damaged; start the service again"
            )
        before = self._link_at(database, after)
        for *values, own in rows:
            if before is None or link(before, *values) != own:
                raise self._damaged(f"change {values[0]} is not what was written")
            before = own
        return [_change(*row[:4]) for row in rows]

    def _link_at(self, database: Connection, seq: int) -> str | None:
        """Return the link of a change; None if it was compacted with later ones."""
        rows = database.execute(
            "SELECT link FROM tabr_changes WHERE identity = %s AND seq = %s"
            " UNION ALL SELECT link FROM tabr_checkpoints"
            " WHERE identity = %s AND seq = %s AND part = 0",
            *(self._identity, seq) * 2,
        )
        if rows:
            return str(rows[0][0])
        return first_link(self._identity) if seq == 0 else None

    def _end(self, database: Connection) -> tuple[int, str]:
        """Return the number and the link of the last change."""
        _, last = self._ends(database)
        end = self._link_at(database, last)
        if end is None:
            raise self._damaged(f"change {last} is missing")
        return last, end

    def _ends(self, database: Connection) -> tuple[int, int]:
        """Return the numbers of the last compacted change and of the last one."""
        ((compacted, last, successor),) = database.execute(
            "SELECT (SELECT max(seq) FROM tabr_checkpoints WHERE identity = %s),"
            " (SELECT max(seq) FROM tabr_changes WHERE identity = %s),"
            " (SELECT successor FROM tabr_store WHERE identity = %s)",
            *(self._identity,) * 3,
        )
        if successor is not None:
            raise Forgotten(self.place, successor)
        return compacted or 0, max(compacted or 0, last or 0)

    def _change_of_key(
        self, database: Connection, key_hash: str, fingerprint: str
    ) -> Change | None:
        """Return the change with this key, if there is one."""
        rows = database.execute(
            "SELECT seq, kind, payload, response, fingerprint FROM tabr_changes"
            " WHERE identity = %s AND key_hash = %s",
            self._identity,
            key_hash,
        ) or self._kept_key(database, key_hash)
        if not rows:
            return None
        *change, fingerprint_of_change = rows[0]
        if fingerprint_of_change != fingerprint:
            raise KeyReused(
                "a key stands for one request, however this one came before with"
                " another: use a new key for a new request"
            )
        return _change(*change)

    def _kept_key(self, database: Connection, key_hash: str) -> list[tuple[Any, ...]]:
        """Return what is kept of a key whose change was compacted."""
        rows = database.execute(
            f"SELECT {KEPT}, digest FROM tabr_keys"
            " WHERE identity = %s AND key_hash = %s",
            self._identity,
            key_hash,
        )
        for *values, own in rows:
            if digest(*values) != own:
                raise self._damaged("a key is not what was written")
            _, fingerprint, seq, kind, response, _ = values
            return [(seq, kind, "{}", response, fingerprint)]
        return []

    # --- writing ----------------------------------------------------------------------

    def append(
        self,
        make: Maker,
        *,
        after: int,
        key: str | None = None,
        fingerprint: str = "",
        who: str | None = None,
    ) -> tuple[Change, bool]:
        """Add a change; no other comes between `make` and its change.

        Args:
            make: Called once at most, with the changes after `after`; returns kind,
                payload and response. If it raises, nothing is kept. It may read the
                store and must not write to it.
            after: The number of the last change that the caller has.
            key: The client's name for the request. A second time it changes nothing.
            fingerprint: Differs between requests that are not the same.
            who: The name of the client, for the history.

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
        who, seq, at = _ascii(who), 0, time.time()
        try:
            with self._writing() as database:
                if key_hash is not None:
                    old = self._change_of_key(database, key_hash, fingerprint)
                    if old is not None:
                        return old, False
                newer = self._newer(database, after)
                kind, payload, response = make(newer)
                if kind not in (kinds := get_args(ChangeKind)):
                    raise ValueError(f"a change is one of {kinds}, however: {kind!r}")
                values = kind, _to_json(payload), _to_json(response)
                last, before = self._end(database)
                seq = last + 1
                row = (seq, *values, key_hash, fingerprint, token, who, at)
                own = link(before, *row)
                sql = insert("tabr_changes", f"identity, {LINKED}, link")
                database.execute(sql, self._identity, *row, own)
                if self._witness is not None:
                    self._witness.reserve(last, before)
        except OutcomeUnknown as error:
            if not self._has_kept(token, seq, at):
                again = "it has not, so nothing was changed; try again"
                raise StoreError(f"{error}: {again}") from None
        if self._witness is not None:
            self._testify(self._witness, seq, own)
        return _change(seq, *values), True

    def _testify(self, witness: Witness, seq: int, own: str) -> None:
        try:
            witness.add(seq, own)
        except StoreError as error:  # the room was there; the disk is failing
            raise OutcomeUnknown(
                f"change {seq} was kept in {self.place}, however not synced"
                f" ({error}): send it again with the same key"
            ) from error

    def _has_kept(self, token: str, seq: int, at: float) -> bool:
        """Whether a change was kept whose commit has failed half way.

        If others have compacted it since, the log still has its number and its time.

        The transaction waits until the failed one has ended. It writes, because a write
        of SQLite covers what a failed one has left in the log. A database that cannot
        be reached is asked again for a while.
        """
        read = "SELECT seq FROM tabr_changes WHERE identity = %s AND token = %s"
        logged = "SELECT at FROM tabr_log WHERE identity = %s AND seq = %s"
        end = time.monotonic() + SETTLING_SECONDS
        while True:
            try:
                with self._writer.transaction() as database:
                    database.execute(_SETTLE, token, self._identity)
                    if database.execute(read, self._identity, token):
                        return True
                    return (at,) in database.execute(logged, self._identity, seq)
            except StoreError as error:
                if time.monotonic() >= end:
                    raise OutcomeUnknown(
                        f"a change was given to {self.place}, however whether it was"
                        f" kept is not known ({error}): send it again with the same key"
                    ) from error
            time.sleep(0.2)

    def answer_to(self, key: str, fingerprint: str) -> dict[str, Any] | None:
        """Return what was answered to the request with this key, if it came before."""
        with self._reader.transaction() as database:
            old = self._change_of_key(database, _hash(key), _hash(fingerprint))
        return None if old is None else old.response

    def compact(self, seq: int, model: bytes, answer: Answer | None = None) -> None:
        """Replace the changes up to this one by a model file that has them.

        Their keys are kept for a week, and so is the answer to this request. Nothing
        else happens if the store has a checkpoint with more changes.
        """
        of_old = "WHERE identity = %s AND seq <= %s"
        with self._writing() as database:
            first, last = self._ends(database)
            if answer is not None:
                self._keep_answer(database, seq, *answer)
            if not 0 <= seq <= last:
                raise ValueError(
                    f"a checkpoint holds changes up to one of {last}, however: {seq=}"
                )
            if seq < first:  # another service was faster
                return
            execute, identity = database.execute, self._identity
            end = self._link_at(database, seq)
            self._keep_keys_and_log(database, seq)
            execute(f"DELETE FROM tabr_changes {of_old}", identity, seq)
            execute("DELETE FROM tabr_checkpoints WHERE identity = %s", identity)
            self._write_checkpoint(database, seq, model, end)
            too_old = time.time() - KEY_SECONDS
            sql = "DELETE FROM tabr_keys WHERE identity = %s AND at < %s"
            execute(sql, identity, too_old)
            if self._witness is not None:
                self._cut(self._witness, database)

    def claim(self) -> None:
        """Keep others out until the store is closed; refuse if some are in.

        In a database that servers share that is not known.
        """
        for session in (self._reader, *self._probes.values()):
            session.close()
        with self._writer.outside() as database:
            database.claim()

    def overwrite(self) -> None:
        """Leave nothing of what was deleted in the files of a claimed store."""
        with self._writer.transaction() as database:
            end = self._end(database)
        if self._witness is not None:
            self._witness.begin(*end)
        with self._writer.outside() as database:
            database.overwrite()

    def forget(
        self,
        ids: list[int],
        model: bytes,
        *,
        after: int,
        who: str | None = None,
    ) -> None:
        """Become the store of a model file that has all changes but not these rows.

        The history goes on, and so do keys, in one transaction. A request that added or
        relabelled one of the rows is refused if it comes again, whatever its key: of
        its rows not even a checksum is left.

        Args:
            ids: The rows.
            model: The file, which is the new checkpoint as well.
            after: The number of the last change that it has; it must be the last one.
            who: Who has asked for it, for the history.
        """
        old, new = self._identity, content_digest(model)
        with self._writing() as database:
            _, last = self._ends(database)
            if last != after:
                raise StoreError(
                    f"a file without the rows must have all {last} changes, however it"
                    f" has {after}, as others change them: try again when none does"
                )
            execute, seq = database.execute, last + 1
            self._keep_keys_and_log(database, last)
            for table in ("tabr_changes", "tabr_checkpoints"):
                execute(f"DELETE FROM {table} WHERE identity = %s", old)
            self._blank_keys(database, {*ids})
            for table in ("tabr_keys", "tabr_log"):
                sql = f"UPDATE {table} SET identity = %s WHERE identity = %s"
                execute(sql, new, old)
            execute(insert("tabr_store", "identity, version"), new, VERSION)
            sql = "UPDATE tabr_store SET successor = %s"
            execute(f"{sql} WHERE identity = %s OR successor = %s", new, old, old)
            named = ranges(sorted(ids)), len(ids), _ascii(who)
            entry = seq, "forget", *named, time.time()
            sql = insert("tabr_log", f"identity, {LOGGED}, digest")
            execute(sql, new, *entry, digest(*entry))
            self._identity = new
            end = digest("tabr", new, seq)
            self._write_checkpoint(database, seq, model, end)

    def _blank_keys(self, database: Connection, ids: set[int]) -> None:
        """Leave no checksum of a request about one of these rows."""
        sql = f"SELECT {KEPT} FROM tabr_keys WHERE identity = %s"
        for key_hash, _, *kept in database.execute(sql, self._identity):
            if ids.intersection(response_ids(kept[2])):
                values = key_hash, "", *kept
                database.execute(
                    "UPDATE tabr_keys SET fingerprint = %s, digest = %s"
                    " WHERE identity = %s AND key_hash = %s",
                    *("", digest(*values), self._identity, key_hash),
                )

    def _write_checkpoint(
        self, database: Connection, seq: int, model: bytes, end: str | None
    ) -> None:
        whole, columns = content_digest(model), "part, seq, content, link, digest"
        sql = insert("tabr_checkpoints", f"identity, {columns}")
        for part, start in enumerate(range(0, max(1, len(model)), PART_BYTES)):
            content = model[start : start + PART_BYTES]
            database.execute(sql, self._identity, part, seq, content, end, whole)

    def _keep_keys_and_log(self, database: Connection, seq: int) -> None:
        """Keep who changed what when, and the keys, of changes that are compacted."""
        rows = database.execute(
            f"SELECT {KEPT}, who FROM tabr_changes"
            " WHERE identity = %s AND seq <= %s ORDER BY seq",
            *(self._identity, seq),
        )
        key_sql = insert("tabr_keys", f"identity, {KEPT}, digest")
        log_sql = insert("tabr_log", f"identity, {LOGGED}, digest")
        for *kept, who in rows:
            key_hash, _, number, kind, response, at = kept
            if key_hash is not None:
                database.execute(key_sql, self._identity, *kept, digest(*kept))
            ids = response_ids(response)
            entry = number, kind, ranges(ids), len(ids), who, at
            database.execute(log_sql, self._identity, *entry, digest(*entry))

    def _cut(self, witness: Witness, database: Connection) -> None:
        """Forget the records before the last change; its own stays true."""
        with contextlib.suppress(StoreError):  # without room it stays long
            witness.begin(*self._end(database))

    def _keep_answer(
        self,
        database: Connection,
        seq: int,
        key: str,
        fingerprint: str,
        response: dict[str, Any],
    ) -> None:
        """Keep the answer to a request that is no change."""
        hashes = _hash(key), _hash(fingerprint)
        if self._change_of_key(database, *hashes) is None:
            kept = (*hashes, seq, "compact", _to_json(response), time.time())
            sql = insert("tabr_keys", f"identity, {KEPT}, digest")
            database.execute(sql, self._identity, *kept, digest(*kept))


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


def _ascii(name: str | None) -> str | None:
    return None if name is None else json.dumps(name)[1:-1]


def _hash(text: str) -> str:
    """Return a short ASCII name for any text, which fits into an index."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

"""A store in a file: SQLite with a write-ahead log, synced at every commit."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from pathlib import Path
from typing import Any

from tabr.serving.store.connection import (
    MEND,
    Connection,
    NoStore,
    StoreDamaged,
    StoreError,
)
from tabr.serving.store.witness import Witness
from tabr.tables.files import sync_folder

FILE = "memory.db"  # in a folder
_LOG_BYTES = 1 << 26  # to which a larger log is cut back
_SETTINGS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # where a plain sync stops at the drive's cache
    "PRAGMA checkpoint_fullfsync = ON",
    f"PRAGMA journal_size_limit = {_LOG_BYTES}",
    "PRAGMA secure_delete = ON",  # what is deleted becomes zeros
)
# A commit that fails with one of these has not written its last page, so nothing of it
# is valid. After a failed sync that is not known.
_CLEAN = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_CLAIM_MILLISECONDS = 1000  # of waiting until others have closed the file
_ENDS = ("", "-wal", "-shm", "-journal", "-witness")  # of the files of a store


def path_of(path: Path) -> Path:
    """Return the file of a store, by its own name or that of its folder."""
    path = path.absolute()
    if path.is_dir() or (not path.exists() and not path.suffix):
        path = path / FILE
    return path


def files_of(path: Path) -> list[Path]:
    """Return the files of a store that are there."""
    files = (path.with_name(path.name + end) for end in _ENDS)
    return [file for file in files if file.exists()]


def set_aside(path: Path) -> list[Path]:
    """Give the files of a store other names; return these."""
    moved = []
    word = time.strftime("before-%Y%m%dT%H%M%SZ", time.gmtime())
    for file in files_of(path):
        moved.append(file.rename(file.with_name(f"{file.name}.{word}")))
    return moved


def put_away(path: Path) -> list[Path]:
    """Return the files of earlier stores that lie beside a store."""
    name = re.escape(path.name)
    kinds = re.compile(rf"{name}(-[a-z]+)?\.before-\w+|{name}-wal\.damaged")
    folder = path.parent
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [file for file in found if kinds.fullmatch(file.name)]


def file_at(path: Path, begin: bool) -> Path:
    """Return the file of a store, in a folder that is made if need be."""
    path = path_of(path)
    if not path.exists() or path.stat().st_size == 0:
        own = (path, path.with_name(f"{path.name}-journal"))  # of its first moments
        left = [file.name for file in files_of(path) if file not in own]
        if left and not _is_unbegun(path):
            raise StoreDamaged(
                f"the files of a store belong together, however {path} is missing or"
                f" empty beside {', '.join(left)}: {MEND}"
            )
    if not begin and not path.exists():
        raise NoStore(f"a store must have been begun, however {path} is missing")
    try:
        _make_folder(path.parent)
    except OSError as error:
        raise StoreError(
            f"a store needs a folder, however {path.parent} cannot be made"
            f" ({error.strerror}): give another"
        ) from error
    return path


def _is_unbegun(path: Path) -> bool:
    """Whether a store ended while it was begun, so that it holds nothing yet."""
    witness = Witness(path)
    seen = witness.seen() if witness.exists else None
    return seen is not None and seen.reached == 0


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, durably."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(0o700, exist_ok=True)
    sync_folder(folder.parent)


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read."""
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _make_file(path: Path) -> None:
    """Make a file that only its owner may read; its log takes over the mode."""
    with contextlib.suppress(OSError):  # which the database words better
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


class SqliteConnection(Connection):
    """A connection to a file."""

    bytes_type = "blob"
    is_shared = False
    driver_error = sqlite3.Error

    def __init__(self, path: Path) -> None:
        """Open the file; refuse one that is not a store."""
        self.place, self._is_claimed = str(path), False
        _make_file(path)
        with self.errors():
            self.database = sqlite3.connect(
                path,
                timeout=self.wait_seconds,
                isolation_level=None,  # transactions begin explicitly
                check_same_thread=False,  # a session has a lock
            )
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        names = self._tables()
        if names and "tabr_store" not in names:  # before anything in it is changed
            raise StoreError(
                f"a store is a file that tabr made, however {self.place} is a database"
                " of something else: give another name"
            )
        for sql in _SETTINGS:
            self.execute(sql)
        ((mode,),) = self.execute("PRAGMA journal_mode = WAL")
        if mode != "wal":
            raise StoreError(
                f"a store needs a local disk, however SQLite cannot keep its log beside"
                f" {self.place}: give another folder"
            )

    def _tables(self) -> set[str]:
        sql = "SELECT name FROM sqlite_master WHERE type = 'table'"
        return {name for (name,) in self.execute(sql)}

    def begin(self, writes: bool) -> None:
        """Begin a transaction that sees one state, or excludes other writers."""
        self.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

    def check(self) -> None:
        """Refuse a file whose pages do not fit together."""
        ((verdict,),) = self.execute("PRAGMA integrity_check(1)")
        if verdict != "ok":
            raise StoreDamaged(
                f"changes are kept in {self.place}, however it is damaged"
                f" ({' '.join(str(verdict).split())}): {MEND}"
            )

    def claim(self) -> None:
        """Keep others out until the end; refuse if some are in.

        A log is given up only when nobody else has the file open.
        """
        is_alone = False
        with contextlib.suppress(StoreError):
            self.execute(f"PRAGMA busy_timeout = {_CLAIM_MILLISECONDS}")
            ((mode,),) = self.execute("PRAGMA journal_mode = TRUNCATE")
            self.execute("PRAGMA locking_mode = EXCLUSIVE")
            self.execute("BEGIN EXCLUSIVE")
            self.execute("COMMIT")
            is_alone = mode == "truncate"
        self._is_claimed = is_alone
        if not is_alone:
            raise StoreError(
                f"rows are forgotten while no service runs, however something uses"
                f" {self.place}: stop the service, and try again"
            )

    def overwrite(self) -> None:
        """Write the file anew without free pages.

        It has no log while it is claimed, but a journal that is cut to nothing after
        each transaction.
        """
        self.execute("VACUUM")

    def close(self) -> None:
        """End the connection, without what it has not committed."""
        if self._is_claimed:
            with contextlib.suppress(StoreError):  # which removes the empty journal
                self.execute("PRAGMA locking_mode = NORMAL")
                self._tables()
                self.execute("PRAGMA journal_mode = DELETE")
        super().close()

    def keep_log(self) -> None:
        """Copy the log, which closing the file would tidy away."""
        log, copy = Path(f"{self.place}-wal"), Path(f"{self.place}-wal.damaged")
        with contextlib.suppress(OSError):
            if log.exists() and not copy.exists():
                write_private(copy, log.read_bytes())

    def is_damage(self, error: Exception) -> bool:
        """Whether an error tells that the file is damaged."""
        code = getattr(error, "sqlite_errorcode", None)
        return code is not None and code & 0xFF in _DAMAGE

    def has_tables(self) -> bool:
        """Whether the tables exist."""
        return "tabr_store" in self._tables()

    def is_undone(self, error: BaseException | None) -> bool:
        """Whether the last page of a commit was not written."""
        return getattr(error, "sqlite_errorcode", None) in _CLEAN

    def _execute(self, sql: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        cursor: sqlite3.Cursor = self.database.execute(sql.replace("%s", "?"), values)
        return cursor

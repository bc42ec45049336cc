"""A store in a file: SQLite with a write-ahead log, synced at every commit."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from tabr.serving.store.connection import Connection, NoStore, StoreError
from tabr.tables.files import sync_folder

FILE = "memory.db"  # in a folder
_LOG_BYTES = 1 << 26  # to which a larger log is cut back
_SETTINGS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # where a plain sync stops at the drive's cache
    "PRAGMA checkpoint_fullfsync = ON",
    f"PRAGMA journal_size_limit = {_LOG_BYTES}",
)
# A commit that fails with one of these has not written its last page, so nothing of it
# is valid. After a failed sync that is not known.
_CLEAN = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)


def file_at(path: Path, begin: bool) -> Path:
    """Return the file of a store, in a folder that is made if need be."""
    path = path.absolute()
    if path.is_dir() or (not path.exists() and not path.suffix):
        path = path / FILE
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


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, durably."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


class SqliteConnection(Connection):
    """A connection to a file."""

    bytes_type = "blob"
    is_shared = False
    driver_error = sqlite3.Error

    def __init__(self, path: Path) -> None:
        """Open the file; refuse one that is not a store."""
        self.place = str(path)
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

    def has_tables(self) -> bool:
        """Whether the tables exist."""
        return "tabr_store" in self._tables()

    def is_undone(self, error: BaseException | None) -> bool:
        """Whether the last page of a commit was not written."""
        return getattr(error, "sqlite_errorcode", None) in _CLEAN

    def _execute(self, sql: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        cursor: sqlite3.Cursor = self.database.execute(sql.replace("%s", "?"), values)
        return cursor

"""Tables as files: CSV, Parquet and Feather, read and written whole."""

from __future__ import annotations

import errno
import gzip
import os
import secrets
import stat
import sys
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from tabr.errors import DataError
from tabr.tables.csv import ColumnType, read_csv, to_csv
from tabr.tables.frame import column_index
from tabr.text import closest

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".feather")
_DRAFT, _OLD_DRAFT = ".tabr-draft-", ".tabr-"  # older versions did not lock theirs
_DEAD_SECONDS = 24 * 60 * 60.0  # of one without a lock


def suffix_of(path: Path) -> str:
    """Return the suffix that tells a table's format."""
    name = path.name.lower()
    suffixes = [suffix for suffix in SUFFIXES if name.endswith(suffix)]
    if not suffixes:
        accepted = ", ".join(SUFFIXES)
        raise DataError(
            f"a table's name must end in one of {accepted}, however: {path}"
        )
    return suffixes[0]


def read_table(
    path: Path,
    types: Mapping[str, ColumnType] | None = None,
    *,
    keeps_zeros: Collection[str] = (),
) -> pd.DataFrame:
    """Read a table of any known format.

    CSV is read as `types` says, which a model knows of its columns; of the others those
    in `keeps_zeros` are text where a number begins with a zero.
    """
    suffix = suffix_of(path)
    try:
        if suffix in (".parquet", ".feather"):
            frame = _read_arrow(path, suffix)
        else:
            frame = read_csv(_unpacked(path), types, keeps_zeros=keeps_zeros)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        reason = str(error).strip().split("\n")[0]
        raise DataError(f"{path} cannot be read as {suffix[1:]}: {reason}") from error
    if frame.empty:
        n_rows, n_columns = frame.shape
        raise DataError(f"{path} is empty: {n_rows} rows and {n_columns} columns")
    return frame


def _read_arrow(path: Path, suffix: str) -> pd.DataFrame:
    """Read Parquet or Feather; each column must have a name of its own."""
    if suffix == ".parquet":
        column_index(pq.read_schema(path).names)
        frame = pd.read_parquet(path)
    else:
        frame = pd.read_feather(path)
    return frame.set_axis(column_index(frame.columns), axis=1)


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix.lower() == ".gz" else content


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table, whole or not at all."""
    suffix = suffix_of(path)
    with draft_of(path) as draft:
        if suffix == ".parquet":
            frame.to_parquet(draft, index=False)
        elif suffix == ".feather":
            frame.to_feather(draft)
        else:
            text = to_csv(frame, "\t" if "tsv" in suffix else ",").encode()
            draft.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path) as draft:
        draft.write_bytes(content)


@contextmanager
def draft_of(path: Path, *, is_private: bool = False) -> Iterator[Path]:
    """A path to write to, which takes the place of the file when all went well.

    Until then the old file stays, and only its owner can read the draft. Then a private
    file stays so; another has the mode and owner it had, or a new one those that the
    system gives. What fails leaves nothing behind, and what was killed is removed by
    the next draft.
    """
    path = Path(os.path.realpath(path))  # a link stays one
    remove_dead_drafts(path.parent)
    suffix = "".join(path.suffixes[-2:])  # which tells writers of tables the format
    draft, handle = _new_draft(path.parent, suffix)
    try:
        yield draft
        if os.name == "posix" and not is_private:
            _keep_access(handle, path)
        os.fsync(handle)
        if os.name != "posix":  # where an open file cannot be moved
            os.close(handle)
            handle = -1
        os.replace(draft, path)
        sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)
        if handle >= 0:
            os.close(handle)


def _new_draft(folder: Path, suffix: str) -> tuple[Path, int]:
    """Return an empty draft and its handle, whose lock says that it is alive."""
    while True:
        draft = folder / f"{_DRAFT}{secrets.token_hex(8)}{suffix}"
        handle = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        _lock(handle, wait=True)
        # Before it was locked, another process may have thought it dead.
        if draft.exists():
            return draft, handle
        os.close(handle)


def drafts_in(folder: Path) -> list[Path]:
    """Return the drafts in a folder, of living processes and of dead ones."""
    with os.scandir(folder) as entries:
        names = [e.name for e in entries if e.name.startswith((_DRAFT, _OLD_DRAFT))]
    return [folder / name for name in names]


def remove_dead_drafts(folder: Path) -> None:
    """Remove drafts that nobody writes any more: those whose process was killed."""
    for draft in drafts_in(folder):
        with suppress(OSError):  # another process removes it, or it is somebody else's
            _remove_if_dead(draft)


def _remove_if_dead(draft: Path) -> None:
    found = draft.lstat()
    has_lock = draft.name.startswith(_DRAFT) and os.name == "posix"
    is_old = time.time() - found.st_mtime > _DEAD_SECONDS
    if not stat.S_ISREG(found.st_mode) or not (has_lock or is_old):
        return
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(draft, flags)
    try:
        if _lock(handle, wait=False):
            draft.unlink()
    finally:
        os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    """Whether the file is now ours alone; the system ends that with the process."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return wait
    return True


def _keep_access(handle: int, path: Path) -> None:
    """Give a draft the mode and owner of the file, or the mode of a new one."""
    try:
        old = path.stat()
    except FileNotFoundError:
        os.fchmod(handle, 0o666 & ~_umask())
        return
    mode = stat.S_IMODE(old.st_mode) & 0o777
    own = os.fstat(handle)
    if own.st_gid != old.st_gid:
        try:
            os.fchown(handle, -1, old.st_gid)
        except OSError:  # another group may do no more than anybody
            mode = mode & 0o707 | (mode & 0o007) << 3
    if own.st_uid != old.st_uid:
        with suppress(OSError):
            os.fchown(handle, old.st_uid, -1)
    os.fchmod(handle, mode)


def _umask() -> int:
    """Return what new files lack, without a change that other threads would see."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text("utf-8", "replace").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def sync_folder(folder: Path) -> None:
    """Make names of a folder's files durable."""
    if os.name != "posix":  # elsewhere folders cannot be synced
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # cannot be synced
            raise
    finally:
        os.close(handle)


def check_column(frame: pd.DataFrame, name: str, path: Path) -> None:
    """Refuse a column that the table does not have."""
    if name not in frame.columns:
        near = closest(name, frame.columns)
        raise DataError(f"{path} has no column {name!r}; the closest are {near}")

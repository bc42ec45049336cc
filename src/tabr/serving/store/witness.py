"""The witness of a store in a file: which changes were acknowledged, kept beside it.

SQLite drops the end of a damaged log without a word. So each change leaves a record in
a file of its own, synced after the change is kept and before it is acknowledged: a
store that ends before its witness has lost something.

Records are written in turn, each in a slot that is reserved before the change is
committed: a full disk is found out while the change can still be refused. Whoever
writes first completes what another process left undone; both happen while the store is
locked, or are the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tabr.serving.store.connection import StoreDamaged, StoreError
from tabr.tables.files import draft_of

_SLOT = 64
_RECORD = struct.Struct(">8sQ32s")
_MAGIC = b"tabrwit1"
_NOTHING = bytes(_SLOT)
_PAGE = 64 * _SLOT


class Seen(NamedTuple):
    """The last change that a witness has seen."""

    seq: int
    link: str
    place: int  # of its record
    reached: int  # the last change of which there is any trace


def _pack(seq: int, link: str) -> bytes:
    record = _RECORD.pack(_MAGIC, seq, bytes.fromhex(link))
    return record + hashlib.sha256(record).digest()[: _SLOT - _RECORD.size]


def _unpack(slot: bytes) -> tuple[int, str] | None:
    if len(slot) < _SLOT or slot[:8] != _MAGIC:
        return None
    _, seq, link = _RECORD.unpack(slot[: _RECORD.size])
    return (seq, link.hex()) if _pack(seq, link.hex()) == slot else None


class Witness:
    """A file of records beside the file of a store."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(f"{store.name}-witness")

    @contextmanager
    def _open(self, mode: str) -> Iterator[BinaryIO]:
        try:
            with open(self.path, mode) as file:
                yield file  # type: ignore[misc]
        except OSError as error:
            raise StoreError(
                f"each change leaves a record in {self.path}, however it cannot be"
                f" used ({error.strerror}): nothing was changed, try again when it can"
            ) from error

    @property
    def exists(self) -> bool:
        """Whether there is a file."""
        return self.path.exists()

    def seen(self) -> Seen | None:
        """Return the last change that was seen; None if no record is whole."""
        with self._open("rb") as file:
            return _last(file)

    def begin(self, seq: int, link: str) -> None:
        """Forget all but the last change, or begin."""
        try:
            with draft_of(self.path, is_private=True) as draft:
                draft.write_bytes(_pack(seq, link))
        except OSError as error:
            raise StoreError(
                f"each change leaves a record in {self.path}, however it cannot be"
                f" written ({error.strerror}): nothing was changed"
            ) from error

    def reserve(self, seq: int, link: str) -> None:
        """Complete the records up to the last change, and make room for the next.

        To be called while the store is locked.
        """
        seen = self.seen()
        if seen is None or seen.seq < seq:
            self.add(seq, link)
            seen = self.seen()
        if seen is None or seen.reached > seq:
            raise StoreDamaged(
                f"a store must hold what its witness has seen, however {self.path} has"
                f" seen more than change {seq}: start the service again"
            )
        with self._open("rb+") as file:
            file.seek(seen.place + _SLOT)
            file.write(_NOTHING)
            file.truncate()

    def add(self, seq: int, link: str) -> None:
        """Write the record of a change, durably."""
        with self._open("rb+") as file:
            seen = _last(file)
            if seen is not None and seen.seq >= seq:
                return  # somebody else has completed it
            file.seek(0 if seen is None else seen.place + _SLOT)
            file.write(_pack(seq, link))
            file.flush()
            os.fsync(file.fileno())


def _last(file: BinaryIO) -> Seen | None:
    """Return the last whole record, looked for from the end."""
    size = file.seek(0, os.SEEK_END)
    place = (size - 1) // _SLOT * _SLOT
    reached = -1  # the place of the last trace
    while place >= 0:
        start = max(0, place + _SLOT - _PAGE)
        file.seek(start)
        page = file.read(place + _SLOT - start)
        for at in range(place, start - 1, -_SLOT):
            slot = page[at - start : at - start + _SLOT]
            record = _unpack(slot)
            if reached < 0 and any(slot):
                reached = at
            if record is not None:
                return Seen(*record, at, record[0] + (reached - at) // _SLOT)
        place = start - _SLOT
    return None

"""What a store promises: it keeps the changes of a model's candidates, in order.

A change that `append` returned is on disk, once and whole, whatever happens to process
or machine afterwards. Any number of processes may share a store, and any threads may
call it: writers wait for writers, readers for readers. A forked process opens its own.

PostgreSQL keeps this promise as it is set up by default, with `fsync` on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

from tabr.errors import DataError, TabrError

ChangeKind = Literal["add", "remove", "relabel"]


class Change(NamedTuple):
    """A change of a model's candidates.

    Attributes:
        seq: Its number: 1, 2, ... without gaps.
        kind: What was done.
        payload: The request, in plain JSON. Empty if the change was found by its key
            after it was compacted.
        response: The answer to the client, in plain JSON.
    """

    seq: int
    kind: ChangeKind
    payload: dict[str, Any]
    response: dict[str, Any]


NewChange = tuple[ChangeKind, dict[str, Any], dict[str, Any]]  # kind, payload, response
Maker = Callable[[list[Change]], NewChange]  # from newer changes


class StoreError(TabrError, RuntimeError):
    """The store failed; nothing was changed, and it may be tried again."""


class OutcomeUnknown(StoreError):
    """The change may or may not be kept; sending it again with its key is safe."""


class ChangesCompacted(StoreError):
    """The changes asked for are only in the checkpoint: begin again from it."""


class NoStore(StoreError):
    """No store of this model was begun at the address."""


class OtherModel(DataError):
    """The store belongs to another model file."""


class KeyReused(TabrError, ValueError):
    """A key came again, with another request."""


class Store(Protocol):
    """The changes since the model file, or since the checkpoint that replaced it."""

    def checkpoint(self) -> tuple[int, bytes] | None:
        """Return the checkpoint: the number of its last change, and its model file."""

    def changes(self, after: int) -> list[Change]:
        """Return the changes with larger numbers, in order.

        Raises:
            ChangesCompacted: Some of them are in the checkpoint alone.
        """

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

    def compact(self, seq: int, model: bytes) -> None:
        """Replace the changes up to this one by a model file that has them.

        Their keys are kept for a week. Nothing happens if the store has a checkpoint
        with more changes.
        """

    def close(self) -> None:
        """Close the connections."""

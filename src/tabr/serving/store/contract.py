"""What a service remembers: the changes of a model's memory, in order and for good.

A change that `append` returned is on disk, once and whole, whatever happens to process
or machine afterwards. Any number of processes may share a store. Any threads may call
one: writers wait for one another, and so do readers, but neither for the other. After
a fork the child opens its own.

PostgreSQL keeps this promise as it is set up by default, with `fsync` on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

from tabr.errors import DataError

ChangeKind = Literal["add", "remove", "relabel"]


class Change(NamedTuple):
    """A change of a model's memory.

    Attributes:
        seq: Its number: 1, 2, ... without gaps.
        kind: What was done.
        payload: Plain JSON: what was asked. Empty for an old change that a key led to
            after it was compacted.
        response: Plain JSON: what the client was told.
    """

    seq: int
    kind: ChangeKind
    payload: dict[str, Any]
    response: dict[str, Any]


Made = tuple[ChangeKind, dict[str, Any], dict[str, Any]]  # kind, payload, response
Make = Callable[[list[Change]], Made]  # from the changes that are newer


class StoreError(RuntimeError):
    """The store could not do it; nothing was changed, and it may be tried again."""


class Unsure(StoreError):
    """Whether the change was kept is not known; asking again with its key is safe."""


class Behind(StoreError):
    """The changes asked for were compacted: begin again from the checkpoint."""


class NoStore(StoreError):
    """No store of this model was begun at the address."""


class OtherModel(DataError):
    """The store belongs to another model file."""


class KeyReused(ValueError):
    """A key came again, with another request."""


class Store(Protocol):
    """Changes since the model file or since a checkpoint, which replaces it."""

    def checkpoint(self) -> tuple[int, bytes] | None:
        """Return the last change that the latest checkpoint has, and its model file."""

    def changes(self, after: int) -> list[Change]:
        """Return the changes with larger numbers, in order.

        Raises:
            Behind: Some of them are in the checkpoint alone.
        """

    def append(
        self, make: Make, *, after: int, key: str | None = None, fingerprint: str = ""
    ) -> tuple[Change, bool]:
        """Keep one more change; no other comes between.

        Args:
            make: Called once at most, with the changes after `after`; returns kind,
                payload and response. What it raises is raised on, and nothing is kept.
                It may read the store and must not write to it.
            after: The last change that the caller knows.
            key: The client's name for the request. One that is known changes nothing.
            fingerprint: Tells requests with the same key apart.

        Returns:
            The change and whether it is new, not an old one with the same key.

        Raises:
            KeyReused: The key is known with another fingerprint.
            Behind: Changes after `after` are in the checkpoint alone.
            Unsure: The database was lost while it took the change.
            StoreError: Nothing was changed.
        """

    def compact(self, seq: int, model: bytes) -> None:
        """Keep a model file that has the changes up to this one, and drop those.

        Their keys stay known for a week. Nothing happens if the store has a checkpoint
        with more changes.
        """

    def close(self) -> None:
        """Let go of the database."""

"""Checksums of what a store holds; that of a change covers all changes before it."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest(*values: Any) -> str:
    """Return the checksum of plain values."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def first_link(identity: str) -> str:
    """Return the beginning of the chain of a model's changes."""
    return digest("tabr", identity)


def link(before: str, *values: Any) -> str:
    """Return the checksum of a change, from that of the change before."""
    return digest(before, *values)


def ranges(ids: list[int]) -> str:
    """Return ids in few characters.

    >>> ranges([3, 4, 5, 9])
    '3-5,9'
    """
    parts: list[list[int]] = []
    for number in ids:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)

"""Rules as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabr.candidates.rules import Rule, pack_rule


def rule_words(rule: Rule) -> str:
    """Return in a sentence who may be a neighbour.

    >>> from tabr.candidates.rules import PastOnly
    >>> rule_words(PastOnly("sold", gap="1D"))
    "A neighbour must come before the row in 'sold', with a gap of 1D."
    """
    return f"A neighbour must {_clause(pack_rule(rule))}."


def _clause(part: Mapping[str, Any]) -> str:
    name = part["rule"]
    if name == "Joined":
        first, second = map(_clause, part["parts"])
        if part["by"] == "&":
            return f"{first}, and {second}"
        return f"either {first}, or {second}"
    if name == "Inverted":
        return f"not {_clause(part['part'])}"
    if name == "PastOnly":
        window = f", at most {part['window']} back" if part["window"] else ""
        gap = f", with a gap of {part['gap']}" if part["gap"] else ""
        return f"come before the row in {part['column']!r}{window}{gap}"
    if name == "SameGroup":
        return f"agree with the row in {part['column']!r}"
    if name == "NotSameGroup":
        return f"differ from the row in {part['column']!r}"
    read = ", ".join(map(repr, part["reads"]))
    return f"be allowed by a function of {read}"

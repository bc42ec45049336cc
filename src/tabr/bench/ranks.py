"""The paper's rule for comparing methods: ranks, and wins, ties and losses.

Two means are apart if they differ by more than the standard deviation of the better
one. Rank 1 is the best method and all that are not apart from it; those are set aside,
and the best of the others begins rank 2. This reproduces the paper's average ranks from
its published runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Score(NamedTuple):
    """The mean of a method's runs and their standard deviation, divided by n."""

    mean: float
    std: float


class Record(NamedTuple):
    """How often one method was better than another, as good, and worse."""

    win: int
    tie: int
    loss: int


def pooled(scores: Iterable[Score]) -> Score:
    """Return the score of all runs of several splits together, splits of one size.

    >>> pooled([Score(1.0, 0.0), Score(3.0, 0.0)])
    Score(mean=2.0, std=1.0)
    """
    parts = list(scores)
    mean = math.fsum(part.mean for part in parts) / len(parts)
    squares = (part.std**2 + (part.mean - mean) ** 2 for part in parts)
    return Score(mean, math.sqrt(math.fsum(squares) / len(parts)))


def ranks(scores: Mapping[str, Score], *, larger_is_better: bool) -> dict[str, int]:
    """Return the rank of each method, from 1.

    >>> scores = {"a": Score(0.90, 0.02), "b": Score(0.89, 0.5), "c": Score(0.8, 0.0)}
    >>> ranks(scores, larger_is_better=True)
    {'a': 1, 'b': 1, 'c': 2}
    """
    sign = 1 if larger_is_better else -1
    left, found, rank = dict(scores), dict[str, int](), 0
    while left:
        rank += 1
        best = max(left.values(), key=lambda score: sign * score.mean)
        together = [n for n, s in left.items() if abs(s.mean - best.mean) <= best.std]
        for name in together:
            found[name] = rank
            del left[name]
    return {name: found[name] for name in scores}


def duel(one: Score, other: Score, *, larger_is_better: bool) -> int:
    """Return 1 if the first is better, -1 if it is worse, 0 if they are not apart."""
    gain = one.mean - other.mean if larger_is_better else other.mean - one.mean
    std = one.std if gain > 0 else other.std
    if abs(gain) <= std:
        return 0
    return 1 if gain > 0 else -1


def record(outcomes: Sequence[int]) -> Record:
    """Count what `duel` returned.

    >>> record([1, 0, 1, -1])
    Record(win=2, tie=1, loss=1)
    """
    return Record(outcomes.count(1), outcomes.count(0), outcomes.count(-1))

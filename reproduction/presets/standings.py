"""Counts, ranks and gaps on a board."""

from __future__ import annotations

import math
from collections.abc import Collection
from statistics import fmean
from typing import NamedTuple

import pandas as pd

from reproduction.paper.scores import compare
from reproduction.paper.win_tie_loss import WinTieLoss
from reproduction.presets.boards import Board


class Count(NamedTuple):
    """A preset against a rival on some sets.

    Attributes:
        better: Sets with a better mean score.
        worse: Sets with a worse one; equal ones are in neither.
        outcomes: By the paper's rule, on sets where both have two runs or more.
        error: The geometric mean of the ratios of the errors less one, in percent;
            below zero the preset is better. Not a number without sets.
    """

    better: int
    worse: int
    outcomes: WinTieLoss
    error: float


def count(board: Board, rival: str, labels: Collection[str]) -> Count:
    """Return how the preset of a board stands to a rival on some sets."""
    name, results = board.preset.name, board.results
    signs, outcomes, ratios = [], [], []
    for label, line in board.lines.items():
        if label not in labels or rival not in line.cells:
            continue
        first, second = line.cells[name], line.cells[rival]
        larger = results.larger_is_better(label)
        gain = first.score.mean - second.score.mean
        signs.append(gain if larger else -gain)
        # A single run has no deviation: as the better one it could not tie.
        if first.n_runs > 1 and second.n_runs > 1:
            scores = first.score, second.score
            outcomes.append(compare(*scores, larger_is_better=larger))
        ratios.append(log_ratio(board.error(label, name), board.error(label, rival)))
    finite = [ratio for ratio in ratios if math.isfinite(ratio)]
    return Count(
        sum(sign > 0 for sign in signs),
        sum(sign < 0 for sign in signs),
        WinTieLoss(outcomes.count(1), outcomes.count(0), outcomes.count(-1)),
        100 * math.expm1(fmean(finite)) if finite else math.nan,
    )


def log_ratio(error: float, other: float) -> float:
    """Return the logarithm of a ratio of errors; NaN if one of them is zero.

    >>> log_ratio(0.2, 0.2), log_ratio(0.0, 0.2)
    (0.0, nan)
    """
    return math.log(error / other) if error > 0 and other > 0 else math.nan


def mean_ranks(board: Board, labels: Collection[str]) -> dict[str, float]:
    """Return the mean rank of all by their mean scores, over sets that all have.

    Equal ones share the mean of their ranks.
    """
    ranks: dict[str, list[float]] = {name: [] for name in board.names}
    for label in board.common_sets:
        if label in labels:
            errors = pd.Series({name: board.error(label, name) for name in ranks})
            for name, rank in zip(ranks, errors.rank(), strict=True):
                ranks[name].append(rank)
    return {name: fmean(parts) for name, parts in ranks.items() if parts}


def gaps_closed(board: Board, labels: Collection[str]) -> dict[str, float]:
    """Return the mean share of the way from the worst score to the best.

    On a set: (worst - score) / (worst - best), 0 for the worst and 1 for the best of
    the board. Over sets that all have; one where all are equal is left out.
    """
    shares: dict[str, list[float]] = {name: [] for name in board.names}
    for label in board.common_sets:
        errors = {name: board.error(label, name) for name in board.names}
        worst, best = max(errors.values()), min(errors.values())
        if label in labels and worst > best:
            for name, error in errors.items():
                shares[name].append((worst - error) / (worst - best))
    return {name: fmean(parts) for name, parts in shares.items() if parts}

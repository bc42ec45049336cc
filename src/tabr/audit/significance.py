"""Scores that are beyond chance, judged by the scores that are usual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

Floats = NDArray[np.float64]

FALSE_SHARE = 0.02  # of false ones among the rows that are named
MAX_CHANCE = 1e-5  # of an excess as large between parts that are alike
MIN_EXCESS_SHARE = 0.001  # of all rows
_MIN_SLOPE = 0.1
_EDGE = 0.1  # share of the named rows that may be false ones next to the bound
_JUMP = 0.25  # between scores, relative to how far the named rows lie beyond it
_WINDOWS = ((0.5, 0.9), (0.75, 0.95), (0.9, 0.99))
_TAILS = (0.98, 0.99, 0.995, 0.999, 0.9995, 1.0)  # lower ones move with density too


@dataclass(frozen=True)
class Verdict:
    """Scores of rows compared with usual ones."""

    named: NDArray[np.bool_]  # which rows are named, (q,)
    bound: float  # the score from which on they are
    is_excess: bool  # whether more rows score high than is usual
    excess: float  # about how many more, as a share of all rows
    usual: float  # the share of usual rows that would be named

    @property
    def false_share(self) -> float:
        """The share of the named rows that is there by chance, about."""
        return min(1.0, self.usual / max(float(self.named.mean()), 1e-12))


def beyond_tail(scores: Floats, usual: Floats) -> float:
    """Return the score beyond which the tail of usual scores is nearly empty.

    The tail is taken as exponential, read off at quantiles that a few copies among
    the usual rows do not move. By the rule of Benjamini and Hochberg the share of
    false ones beyond the bound stays under FALSE_SHARE.
    """
    bound = np.inf
    for low, high in _WINDOWS:
        at_low, at_high = np.quantile(usual, [low, high])
        # Where many scores are equal the tail would seem to end at once.
        slope = max(_MIN_SLOPE, (at_high - at_low) / np.log((1 - low) / (1 - high)))
        chance = np.sort((1 - high) * np.exp(-(scores - at_high) / slope))
        passed = chance <= FALSE_SHARE * np.arange(1, len(chance) + 1) / len(chance)
        n_passed = int(np.flatnonzero(passed)[-1]) + 1 if passed.any() else 1
        limit = FALSE_SHARE * n_passed / len(chance)
        bound = min(bound, at_high + slope * np.log((1 - high) / limit))
    return float(bound)


def beyond_usual(scores: Floats, usual: Floats) -> float:
    """Return the lowest score that FALSE_SHARE allows by counting usual rows.

    Counts one usual row more than there is, which keeps the share where rows are
    exchangeable, whatever the distribution; inf where no score is allowed.
    """
    ordered = np.sort(scores)[::-1]
    beyond = len(usual) - np.searchsorted(np.sort(usual), ordered, "left")
    by_chance = (1 + beyond) / (1 + len(usual))
    passed = by_chance <= FALSE_SHARE * np.arange(1, len(scores) + 1) / len(scores)
    return float(ordered[np.flatnonzero(passed)[-1]]) if passed.any() else np.inf


def judge(scores: Floats, usual: Floats) -> Verdict:
    """Return the rows whose scores (q,) chance does not explain.

    Usual scores (r,) are those of rows that are as they should be, up to a few.
    """
    bound = beyond_usual(scores, usual)
    if not np.isfinite(bound):
        bound = beyond_tail(scores, usual)
    else:
        bound = _at_a_jump(scores, bound)
    excess, chance, where = _excess(scores, usual)
    is_excess = chance < MAX_CHANCE and excess > MIN_EXCESS_SHARE
    beyond = (scores >= bound).mean() - (usual >= bound).mean()
    if is_excess and 2 * beyond < excess:
        bound = where  # most of the excess lies lower, among rows that are usual
    share = float((usual >= bound).mean())
    return Verdict(scores >= bound, bound, is_excess, excess, share)


def chance_of_more(k: int, n: int, k_usual: int, n_usual: int) -> float:
    """Return the chance that k or more of all fall among the n, if parts are alike.

    It is exact for small counts, where a normal law would accuse too soon.
    """
    return float(binom.sf(k - 1, k + k_usual, n / (n + n_usual)))


def _at_a_jump(scores: Floats, bound: float) -> float:
    """Return the bound, raised to a jump in the scores just beyond it if there is one.

    Copies that stand apart are then not mixed with the few rows in between.
    """
    named = np.sort(scores[scores >= bound])
    edge = named[: max(3, round(_EDGE * len(named))) + 1]
    jumps = np.diff(edge)
    if not len(jumps) or len(named) < 10:
        return bound
    largest = int(jumps.argmax())
    is_jump = jumps[largest] > _JUMP * (np.median(named) - named[0])
    return float(edge[largest + 1]) if is_jump else bound


def _excess(scores: Floats, usual: Floats) -> tuple[float, float, float]:
    """Return the clearest excess over usual scores, its chance and its start."""
    best = (0.0, 1.0, np.inf)
    for tail in _TAILS:
        bound = float(np.quantile(usual, tail))
        k, k_usual = int((scores > bound).sum()), int((usual > bound).sum())
        chance = chance_of_more(k, len(scores), k_usual, len(usual))
        if chance < best[1]:
            more = k / len(scores) - k_usual / len(usual)
            best = (more, chance, float(np.nextafter(bound, np.inf)))
    return best

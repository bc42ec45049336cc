"""Approximate top-m: candidates are put into bins, and only the best of each is kept.

Candidate i lies in bin i mod L. A neighbour is lost where a better one shares its bin:
the m best fill some of the bins, and each of these keeps exactly one of them. So the
recall is the number of bins they fill, divided by m.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache

import torch
from torch import Tensor

from tabr.search.exact import Neighbors, full_precision, nobody, scores, slices
from tabr.search.filter import Allowed

_ROWS = 256  # queries of one product
_BYTES = 1 << 28  # scores held at a time
_RESERVE = 0.1  # of the allowed loss: the mean over one table's rows varies
_SIZES = (16, 128)  # smallest and largest bins that save work


def expected_recall(n_bins: int, n: int, m: int) -> float:
    """Return the mean share of the m best of n candidates that bins keep.

    It holds exactly for candidates in random order. A bin of s candidates holds none
    of the m best with probability C(n - s, m) / C(n, m). It is at least
    1 - (m - 1) / (2 n_bins), whatever n.

    >>> round(expected_recall(950, 100_000, 96), 4)
    0.952
    """

    def filled(size: int) -> float:
        if size > n - m:
            return 1.0
        return -math.expm1(sum(math.log1p(-size / (n - i)) for i in range(m)))

    size, n_larger = divmod(n, n_bins)
    bins = n_larger * filled(size + 1) + (n_bins - n_larger) * filled(size)
    return bins / m


@lru_cache
def n_bins_for(recall_target: float | None, n: int, m: int) -> int | None:
    """Return the fewest bins worth having whose expected recall is beyond the target.

    None means that the exact search serves better: without a target, or with so many
    bins that little is saved. The number is prime, so that rows that return at equal
    distances (the hours of a day, a table appended to itself) spread over all bins.
    """
    if recall_target is None or recall_target >= 1:
        return None
    most, fewest = (n // size for size in _SIZES)
    numbers = range(max(fewest, m), most + 1)
    aim = recall_target + _RESERVE * (1 - recall_target)
    start = bisect_left(numbers, aim, key=lambda k: expected_recall(k, n, m))
    return next(filter(_is_prime, numbers[start:]), None)


def _is_prime(n: int) -> bool:
    return all(n % divisor for divisor in range(2, math.isqrt(n) + 1))


@torch.no_grad()
def best_of_bins(
    queries: Tensor,
    vectors: Tensor,
    offsets: Tensor | None,
    m: int,
    n_bins: int,
    *,
    exclude: Tensor | None = None,
    allowed: Allowed | None = None,
) -> Neighbors:
    """Find for each query most of what `top` finds; its arguments mean the same.

    At least m bins are needed. What a query finds does not depend on the others.
    """
    b, n = len(queries), len(vectors)
    if b == 0:
        return nobody(b, m, queries.device)
    covered = n // n_bins * n_bins
    n_rows = max(1, min(_ROWS, _BYTES // (n * queries.element_size())))
    parts = []
    with full_precision():
        for rows in slices(b, n_rows):
            every = slice(0, n)
            score = scores(queries, vectors, offsets, rows, every, exclude, allowed)
            bins = score[:, :covered].view(len(score), -1, n_bins)
            rest = score[:, covered:]
            best = bins.amax(1)
            best_of_all = best.clone()
            best_of_all[:, : rest.shape[1]].clamp_min_(rest)
            value, column = best_of_all.topk(m)
            members = column[:, None].expand(-1, bins.shape[1], -1)
            place = bins.gather(2, members).argmax(1)
            place[value > best.gather(1, column)] = bins.shape[1]  # in the rest
            parts.append((column + n_bins * place, value > -math.inf))
    return Neighbors(*(torch.cat(columns) for columns in zip(*parts, strict=True)))

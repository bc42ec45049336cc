"""The search among vectors that are mostly zero, in loops that numba compiles.

Vectors are kept by the numbers that are not zero. Many queries lie side by side, number
by number, so that a candidate reads one line of them for each number it has, and scores
all of them at once. Bounds, lists and ties are as in `walk_numba`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tabr.device.compiled import compiled
from tabr.device.threads import split_work
from tabr.search.filter import Filter, unlimited
from tabr.search.ranking_numba import (
    DE_BRUIJN,
    ONE,
    PLACE,
    ROUNDING,
    TINY,
    WORD,
    bound_of,
    finish,
    key_of,
    may_take,
    raise_to,
    select,
)

_SIDE = 2 * WORD  # queries that lie side by side; a constant, for loops to be unrolled


class SparseVectors(NamedTuple):
    """Vectors (n, p) by the numbers of each that are not zero.

    Attributes:
        starts: Where each vector's numbers begin, and where they end (n + 1,). Their
            number is a multiple of four.
        columns: Their columns; p for what only fills up.
        values: The numbers.
    """

    starts: Tensor
    columns: Tensor
    values: Tensor

    @classmethod
    def of(cls, vectors: Tensor) -> SparseVectors:
        """Return those of dense ones."""
        p = vectors.shape[1]
        counts = torch.count_nonzero(vectors, 1)
        starts = F.pad(((counts + 3) // 4 * 4).cumsum(0), (1, 0))
        size = int(starts[-1])
        columns, values = torch.full((size,), p), vectors.new_zeros(size)
        row, column = vectors.nonzero(as_tuple=True)
        before = F.pad(counts.cumsum(0), (1, 0))[:-1]
        place = starts[row] + torch.arange(len(row)) - before[row]
        columns[place], values[place] = column, vectors[row, column]
        return cls(starts, columns, values)

    @property
    def n(self) -> int:
        """The number of vectors."""
        return len(self.starts) - 1

    def lengths(self, gram: Tensor) -> Tensor:
        """Return v' gram v of each vector, (n,)."""
        out, padded = self.values.new_empty(self.n), F.pad(gram, (0, 0, 0, 1))
        arrays = [x.contiguous().numpy() for x in (*self, padded, out)]

        def work(rows: range) -> None:
            _lengths(*arrays, rows.start, rows.stop)

        split_work(work, self.n)
        return out


def walk(
    queries: Tensor,
    vectors: SparseVectors,
    offsets: Tensor,
    m: int,
    exclude: Tensor | None = None,
    filter: Filter | None = None,
    last: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return positions and whether they were found, both (b, m), best first.

    As `walk_numba.walk`, of queries (b, p) and offsets (n,) of float32.
    """
    b = len(queries)
    if exclude is None:
        exclude = torch.full((b,), -1)
    filter = unlimited() if filter is None else filter
    if last is None:
        last = torch.empty(0, 0, dtype=torch.int32)
    position, found = torch.zeros(b, m, dtype=torch.int64), torch.zeros(b, m).bool()
    codes = filter.codes, filter.low, filter.high
    given = queries, *vectors, offsets, exclude, last, *codes
    arrays = [x.contiguous().numpy() for x in given]
    arrays += [position.numpy(), found.numpy()]

    def work(rows: range) -> None:
        _walk(*arrays, filter.outside, filter.ends, rows.start, rows.stop)

    split_work(work, b)
    return position, found


# --- loops


@compiled
def _lengths(starts, columns, values, gram, out, first, last):
    """Write the lengths of vectors first..last; gram is (p + 1, p)."""
    p = gram.shape[1]
    product = np.empty(p, gram.dtype)
    for i in range(first, last):
        product[:] = 0
        for k in range(starts[i], starts[i + 1], 4):
            g0, g1 = gram[columns[k]], gram[columns[k + 1]]
            g2, g3 = gram[columns[k + 2]], gram[columns[k + 3]]
            a0, a1, a2, a3 = values[k], values[k + 1], values[k + 2], values[k + 3]
            for q in range(p):
                product[q] += a0 * g0[q] + a1 * g1[q] + a2 * g2[q] + a3 * g3[q]
        total = out.dtype.type(0)
        for k in range(starts[i], starts[i + 1]):
            if columns[k] < p:
                total += values[k] * product[columns[k]]
        out[i] = total


@compiled
def _lay_out(queries, side_by_side, top, bottom):
    """Write queries top..bottom number by number; zeros where there are fewer."""
    side_by_side[:] = 0
    for i in range(top, bottom):
        for q in range(queries.shape[1]):
            side_by_side[q * _SIDE + i - top] = queries[i, q]


@compiled
def _score(z, start, stop, columns, values, offset, queries):
    """Write the scores of a candidate for the queries that lie side by side."""
    for j in range(_SIDE):
        z[j] = offset
    for k in range(start, stop, 4):
        a0, a1, a2, a3 = values[k], values[k + 1], values[k + 2], values[k + 3]
        q0 = queries[columns[k] * _SIDE : (columns[k] + 1) * _SIDE]
        q1 = queries[columns[k + 1] * _SIDE : (columns[k + 1] + 1) * _SIDE]
        q2 = queries[columns[k + 2] * _SIDE : (columns[k + 2] + 1) * _SIDE]
        q3 = queries[columns[k + 3] * _SIDE : (columns[k + 3] + 1) * _SIDE]
        for j in range(_SIDE):
            z[j] += a0 * q0[j] + a1 * q1[j] + a2 * q2[j] + a3 * q3[j]


@compiled
def _recall(query, starts, columns, values, offsets, last, bound):
    """Write a score that all candidates exceed whom a query had last, m of them.

    Other sums have another order, and may be smaller by that.
    """
    p, least = len(query), np.float32(np.inf)
    for k in range(len(last)):
        if last[k] < 0:
            return
        score = offsets[last[k]]
        size = abs(score)
        for x in range(starts[last[k]], starts[last[k] + 1]):
            if columns[x] < p:
                part = query[columns[x]] * values[x]
                score += part
                size += abs(part)
        least = min(least, score - ((p + 4) * ROUNDING * size + TINY))
    bound[0] = least


@compiled
def _foresee(z, bins, starts, columns, values, offsets, queries):
    """Write the best scores of bins of candidates, (bins, queries)."""
    n_bins = len(bins)
    bins[:] = -np.inf
    for i in range(len(offsets)):
        _score(z, starts[i], starts[i + 1], columns, values, offsets[i], queries)
        best = bins[i % n_bins]
        for j in range(_SIDE):
            best[j] = z[j] if z[j] > best[j] else best[j]


@compiled
def _walk(
    queries,
    starts,
    columns,
    values,
    offsets,
    exclude,
    last,
    codes,
    low,
    high,
    position,
    found,
    outside,
    ends,
    begin,
    end,
):
    """Find the best m for queries begin..end, some of them at a time."""
    m, n, p = position.shape[1], len(offsets), queries.shape[1]
    side_by_side = np.empty((p + 1) * _SIDE, np.float32)
    z, bounds = np.empty(_SIDE, np.float32), np.empty((_SIDE, 1), np.float32)
    limits, bits, n_bins = bounds[:, 0], z.view(np.uint32), 4 * m
    bins, column = np.empty((n_bins, _SIDE), np.float32), np.empty(n_bins, np.float32)
    keys = np.empty((_SIDE, 8 * m + WORD), np.uint64)
    counts = np.empty(_SIDE, np.int64)
    for top in range(begin, end, _SIDE):
        bottom = min(top + _SIDE, end)
        n_rows = bottom - top
        _lay_out(queries, side_by_side, top, bottom)
        counts[:] = 0
        bounds[:] = -np.inf
        bounds[n_rows:] = np.inf  # nobody asks
        n_bounded = 0
        if last.shape[1] == m:
            for j in range(n_rows):
                i = top + j
                _recall(
                    queries[i], starts, columns, values, offsets, last[i], bounds[j]
                )
                n_bounded += limits[j] > -np.inf
        if 2 * n_bounded <= n_rows and len(codes) == 0 and n >= 4 * n_bins:
            _foresee(z, bins, starts, columns, values, offsets, side_by_side)
            for j in range(n_rows):
                column[:] = bins[:, j]
                bound_of(column, keys[j], m, bounds[j])
        for i in range(n):
            _score(
                z, starts[i], starts[i + 1], columns, values, offsets[i], side_by_side
            )
            for word in range(0, _SIDE, WORD):
                better = np.uint64(0)
                for j in range(WORD):
                    is_better = z[word + j] > limits[word + j]
                    better |= np.uint64(is_better) << np.uint64(j)
                while better:
                    lowest = better & (~better + ONE)
                    j = word + PLACE[(lowest * DE_BRUIJN) >> np.uint64(58)]
                    better ^= lowest
                    row = top + j
                    if i == exclude[row] or not may_take(
                        codes, low, high, outside, ends, row, i
                    ):
                        continue
                    if counts[j] == keys.shape[1]:
                        select(keys[j], counts[j], m)
                        counts[j] = m
                        raise_to(bounds[j], keys[j, m - 1])
                    keys[j, counts[j]] = key_of(bits[j], i)
                    counts[j] += 1
        for j in range(n_rows):
            finish(keys[j], counts[j], position[top + j], found[top + j])

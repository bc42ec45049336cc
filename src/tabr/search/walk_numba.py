"""The search on a CPU, in loops that numba compiles: two walks over the candidates.

A tile of candidates is scored for four queries at a time and never reaches memory. The
first walk keeps the best score of each of some hundred bins: m bins that reach a score
are m candidates that do, so it bounds the m-th best. It is spared where the neighbours
that the queries had before give a bound, and where a filter says who may be taken. The
second walk lists whoever reaches the bound and may be taken, hardly more than m; a list
that is full is cut back to its m best, which give a new bound. Score and position are
one number, so that of equals the lower position wins. Vectors are copied a tile at a
time, and lie in memory as they like.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tabr.device.compiled import compiled
from tabr.device.threads import split_work
from tabr.device.tiles_numba import FOUR, TILE, multiply
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

_ROWS = 128  # queries of a walk, whose lists stay in a core's cache
_NARROW = 48  # numbers of a vector, up to which products cost less than long lists
_SPARED = 4  # of so many tiles of wider vectors one is looked at beforehand


def walk(
    queries: Tensor,
    vectors: Tensor,
    offsets: Tensor | None,
    m: int,
    exclude: Tensor | None = None,
    filter: Filter | None = None,
    last: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return positions and whether they were found, both (b, m), best first.

    Shapes: queries (b, p) and vectors (n, p) of float32, offsets (n,), exclude (b,),
    last (b, m). The filter has no functions, and allows whom the queries had last.
    """
    b, n = len(queries), len(vectors)
    if offsets is None:
        offsets = vectors.new_zeros(n)
    if exclude is None:
        exclude = torch.full((b,), -1)
    position, found = torch.zeros(b, m, dtype=torch.int64), torch.zeros(b, m).bool()
    # Any order in memory serves, and numba compiles for one.
    strides = vectors.stride()
    size = 1 + sum((k - 1) * s for k, s in zip(vectors.shape, strides, strict=True))
    flat = vectors.as_strided((size,), (1,))
    filter = unlimited() if filter is None else filter
    if last is None:
        last = torch.empty(0, 0, dtype=torch.int32)
    given = queries, flat, offsets, exclude, last, filter.codes, filter.low, filter.high
    arrays = [x.contiguous().numpy() for x in given]
    arrays += [position.numpy(), found.numpy()]
    bits = filter.outside, filter.ends

    def work(rows: range) -> None:
        z = queries.new_empty(FOUR + (queries.shape[1] + 1) * TILE).numpy()
        _walk(z, *arrays, *bits, *strides, rows.start, rows.stop)

    split_work(work, b)
    return position, found


@compiled
def _recall(query, flat, offsets, last, by_row, by_number, bound):
    """Write a score that all candidates exceed whom a query had last, m of them.

    A tile's scores are summed in another order, and may be smaller by that.
    """
    p, least = len(query), np.float32(np.inf)
    for k in range(len(last)):
        if last[k] < 0:
            return
        score = offsets[last[k]]
        size = abs(score)
        for q in range(p):
            part = query[q] * flat[last[k] * by_row + q * by_number]
            score += part
            size += abs(part)
        least = min(least, score - ((p + 4) * ROUNDING * size + TINY))
    bound[0] = least


@compiled
def _enter(
    scores,
    bits,
    start,
    excluded,
    keys,
    n,
    m,
    bound,
    codes,
    low,
    high,
    outside,
    ends,
    i,
):
    """Let a tile's candidates into a list of n keys; return how many it has then."""
    if n > len(keys) - TILE:
        select(keys, n, m)
        n = m
        raise_to(bound, keys[m - 1])
    limit = bound[0]
    for first in range(0, TILE, WORD):
        better = np.uint64(0)
        for j in range(WORD):
            better |= np.uint64(scores[first + j] > limit) << np.uint64(j)
        while better:
            lowest = better & (~better + ONE)
            j = first + PLACE[(lowest * DE_BRUIJN) >> np.uint64(58)]
            better ^= lowest
            if start + j != excluded and may_take(
                codes, low, high, outside, ends, i, start + j
            ):
                keys[n] = key_of(bits[j], start + j)
                n += 1
    return n


@compiled
def _lay_out(tile, c, flat, offsets, start, by_row, by_number):
    """Write the vectors of a tile number by number, and their offsets."""
    n = min(TILE, len(offsets) - start)
    for j in range(TILE):
        c[j] = offsets[start + j] if j < n else -np.inf
    for q in range(len(tile) // TILE):
        for j in range(TILE):
            at = (start + j) * by_row + q * by_number
            tile[q * TILE + j] = flat[at] if j < n else 0


@compiled
def _score(z, queries, i, last, tile, c):
    """Write a tile of scores for four queries from i on; the last may come again."""
    q1, q2, q3 = min(i + 1, last), min(i + 2, last), min(i + 3, last)
    multiply(z, queries[i], queries[q1], queries[q2], queries[q3], tile, c)


@compiled
def _foresee(z, c, tile, queries, flat, offsets, by_row, by_number, bins, top, bottom):
    """Write the best scores of each query's bins, (rows, bins)."""
    step = TILE if queries.shape[1] <= _NARROW else _SPARED * TILE
    at, n_bins = 0, bins.shape[1]
    bins[:] = -np.inf
    for start in range(0, len(offsets), step):
        _lay_out(tile, c, flat, offsets, start, by_row, by_number)
        for i in range(top, bottom, 4):
            _score(z, queries, i, bottom - 1, tile, c)
            for r in range(min(4, bottom - i)):
                best = bins[i + r - top][at : at + TILE]
                scores = z[r * TILE : (r + 1) * TILE]
                for j in range(TILE):
                    best[j] = scores[j] if scores[j] > best[j] else best[j]
        at = (at + TILE) % n_bins


@compiled
def _walk(
    buffer,
    queries,
    flat,
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
    by_row,
    by_number,
    begin,
    end,
):
    """Find the best m for queries begin..end, some of them at a time."""
    m, n = position.shape[1], len(offsets)
    z, c, tile = buffer[:FOUR], buffer[FOUR : FOUR + TILE], buffer[FOUR + TILE :]
    bits = z.view(np.uint32)
    n_bins = max(1, (4 * m + TILE // 2) // TILE) * TILE
    bins = np.empty((_ROWS, n_bins), np.float32)
    keys = np.empty((_ROWS, max(4 * m, n_bins) + TILE), np.uint64)
    counts, bounds = np.empty(_ROWS, np.int64), np.empty((_ROWS, 1), np.float32)
    for top in range(begin, end, _ROWS):
        bottom = min(top + _ROWS, end)
        counts[:] = 0
        bounds[:] = -np.inf
        n_bounded = 0
        if last.shape[1] == m:
            for i in range(top, bottom):
                bound = bounds[i - top]
                _recall(queries[i], flat, offsets, last[i], by_row, by_number, bound)
                n_bounded += bound[0] > -np.inf
        if (
            2 * n_bounded <= bottom - top
            and len(codes) == 0
            and n >= _SPARED * n_bins
            and n_bins > m
        ):
            _foresee(
                z, c, tile, queries, flat, offsets, by_row, by_number, bins, top, bottom
            )
            for i in range(bottom - top):
                bound_of(bins[i], keys[i], m, bounds[i])
        for start in range(0, n, TILE):
            _lay_out(tile, c, flat, offsets, start, by_row, by_number)
            for i in range(top, bottom, 4):
                _score(z, queries, i, bottom - 1, tile, c)
                for r in range(min(4, bottom - i)):
                    a, b, k = r * TILE, (r + 1) * TILE, i + r - top
                    counts[k] = _enter(
                        z[a:b],
                        bits[a:b],
                        start,
                        exclude[i + r],
                        keys[k],
                        counts[k],
                        m,
                        bounds[k],
                        codes,
                        low,
                        high,
                        outside,
                        ends,
                        i + r,
                    )
        for i in range(top, bottom):
            finish(keys[i - top], counts[i - top], position[i], found[i])

"""The search in torch: scores in chunks, then a selection in two stages.

On a CPU compiled loops (`walk_numba`) do the same where no filter asks a function.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from tabr.device.compiled import has_numba
from tabr.search.filter import Allowed, Filter

_ROWS = {"cpu": 256, "cuda": 1024}  # queries scored at a time
_WIDEST = 256  # numbers of a vector: a tile of wider ones leaves a core's caches
_WORTH_IT = 1 << 20  # scores below which numba is not worth its import
_FEW = 32  # queries, of more of which the network needs numba anyway
_WORTH_LOOPS = 1 << 16  # scores below which torch is as fast
SCORE_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31}  # scores held at a time


class Neighbors(NamedTuple):
    """Positions (b, m) of neighbours, best first, and whether they were found (b, m).

    Where fewer candidates are allowed than asked for, `found` is False at the end of
    a row and the position there means nothing.
    """

    position: Tensor
    found: Tensor


@torch.no_grad()
def top(
    queries: Tensor,
    vectors: Tensor,
    offsets: Tensor | None,
    m: int,
    *,
    exclude: Tensor | None = None,
    filter: Filter | None = None,
    last: Tensor | None = None,
    max_bytes: int | None = None,
) -> Neighbors:
    """Return for each query the m candidates with the largest <query, vector> + offset.

    Args:
        queries: (b, p).
        vectors: (n, p), the candidates.
        offsets: (n,), or None for zeros.
        m: Neighbours asked for; fewer come back where there are fewer candidates.
        exclude: (b,), the position of a candidate that is the query itself, or -1.
        filter: Which candidates a query may take, besides `exclude`.
        last: (b, m), neighbours that the queries had before, whom they still may take,
            or -1: they make it faster, and change nothing.
        max_bytes: Of scores held at a time; it never changes the result.
    """
    b, n = len(queries), len(vectors)
    kind = queries.device.type
    n_rows = max(1, min(b, _ROWS.get(kind, 1024)))
    limit = (max_bytes or SCORE_BYTES.get(kind, 1 << 28)) // queries.element_size()
    n_candidates = max(1, min(n, limit // n_rows))
    m = min(m, n)
    if b == 0 or m == 0:
        empty = torch.zeros(b, m, dtype=torch.int64, device=queries.device)
        return Neighbors(empty, empty.bool())
    if can_walk(queries, vectors, filter):
        from tabr.search.walk_numba import walk

        return Neighbors(*walk(queries, vectors, offsets, m, exclude, filter, last))
    allowed = None if filter is None else filter.allowed
    parts = []
    with full_precision():
        for rows in _slices(b, n_rows):
            best, position = queries[:0], queries[:0].long()
            for part in _slices(n, n_candidates):
                score = scores_of(
                    queries, vectors, offsets, rows, part, exclude, allowed
                )
                score, index = _select(score, min(m, part.stop - part.start))
                index = index + part.start
                if part.start:
                    joined = torch.cat([best, score], 1)
                    score, order = joined.topk(min(m, joined.shape[1]))
                    index = torch.cat([position, index], 1).gather(1, order)
                best, position = score, index
            parts.append((position, best > -math.inf))
    return Neighbors(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def can_walk(queries: Tensor, vectors: Tensor, filter: Filter | None) -> bool:
    """Whether compiled loops find the best sooner than torch does."""
    least = _WORTH_IT if len(queries) < _FEW else _WORTH_LOOPS
    return (
        (filter is None or not filter.functions)
        and queries.device.type == vectors.device.type == "cpu"
        and queries.dtype == vectors.dtype == torch.float32
        and queries.shape[1] <= _WIDEST
        and len(queries) * len(vectors) >= least
        and has_numba()
    )


def _slices(n: int, size: int) -> Iterator[slice]:
    """The slices of 0..n of a size; the last may be shorter."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def scores_of(
    queries: Tensor,
    vectors: Tensor,
    offsets: Tensor | None,
    rows: slice,
    part: slice,
    exclude: Tensor | None,
    allowed: Allowed | None,
) -> Tensor:
    """Return scores (r, c) of a slice of each; -inf where one may not be taken."""
    columns = vectors[part].to(queries.device)  # they may be in host memory
    if offsets is None:
        score = queries[rows] @ columns.T
    else:
        score = torch.addmm(offsets[part], queries[rows], columns.T)
    if exclude is not None:
        _exclude(score, exclude[rows] - part.start)
    if allowed is not None:
        score.masked_fill_(~allowed(rows, part), -math.inf)
    return score


def _exclude(score: Tensor, position: Tensor) -> None:
    """Set the score at each row's position to -inf, where it lies inside."""
    inside = (position >= 0) & (position < score.shape[1])
    column = position.clamp(0, score.shape[1] - 1)[:, None]
    value = score.gather(1, column).masked_fill(inside[:, None], -math.inf)
    score.scatter_(1, column, value)


def _select(score: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """Return the m largest scores of each row and their positions.

    The m largest scores of a row lie within the m bins of largest maximum: these bins
    are selected first, then the scores in them.
    """
    n = score.shape[1]
    size = 1 << max(0, round(math.log2(max(1.0, n / m)) / 2))  # scores of a bin
    n_bins = n // size
    if size < 4 or n_bins < 2 * m:
        value, index = score.topk(m)
        return value, index
    covered = n_bins * size
    maxima = score[:, :covered].view(-1, size, n_bins).amax(1)
    bins = maxima.topk(m, sorted=False).indices  # (r, m)
    step = torch.arange(0, covered, n_bins, device=score.device)
    positions = (bins[:, None] + step[:, None]).flatten(1)  # (r, size * m)
    rest = torch.arange(covered, n, device=score.device).expand(len(score), -1)
    positions = torch.cat([positions, rest], 1)
    value, order = score.gather(1, positions).topk(m)
    return value, positions.gather(1, order)


@contextmanager
def full_precision() -> Iterator[None]:
    """A context without products in reduced precision, whatever the user's setting."""
    before = torch.get_float32_matmul_precision()
    if before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)

"""Who may be among the m best of a query, for certain.

A score in float32 errs by what depends on how it was made. Its error has a limit: that
of a query times that of a candidate, plus one of the candidate. So a score that comes
with this limit, as a further number of each, is one that the true score cannot exceed;
who cannot reach the m-th best of the least that scores may be is not among the m best.
Whoever is left is measured exactly, by somebody else.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tabr.device.compiled import has_numba
from tabr.search.exact import Neighbors, full_precision, scores_of
from tabr.search.filter import Filter

_UNIT = 2.0**-24  # of rounding in float32
_NOBODY = 1 << 62  # behind all positions
_TINY = 1e-30  # more than what is lost next to zero
_SCORES = 1 << 20  # that are held at a time, and stay in a core's cache


class Rated(NamedTuple):
    """Candidates whose scores are the most that they may truly be.

    Attributes:
        vectors: (n, p + 1), vectors and their lengths.
        offsets: (n,), with the limits of their errors; minus infinity for nobody.
        errors: (n,), these limits.
    """

    vectors: Tensor
    offsets: Tensor
    errors: Tensor


def rate(vectors: Tensor, offsets: Tensor | None, slopes: Tensor) -> list[Tensor]:
    """Return `Rated` vectors (p + 1, n), and offsets above their errors (2, n).

    Args:
        vectors: (n, p) of float32.
        offsets: (n,) of float64, or None for zeros.
        slopes: By how much half of the offsets change with the vectors, (n, p).
    """
    n, p = vectors.shape
    if offsets is None:
        offsets, slopes = slopes.new_zeros(n), slopes.new_zeros(n, p)
    lengths = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    moved = (slopes.abs() * vectors.abs()).sum(1)
    errors = 2 * _UNIT * ((p + 8) * offsets.abs() + 4 * moved) + _TINY
    pairs = torch.stack([offsets + errors, errors]).float()
    # Who is too far away to be told in float32 is nobody's neighbour.
    pairs[0].masked_fill_(~pairs.isfinite().all(0), -torch.inf)
    return [torch.cat([vectors, lengths], 1).T.contiguous(), pairs]


def margins(queries: Tensor) -> Tensor:
    """Return queries (b, p) and by how much a unit of length may err, (b, p + 1)."""
    p = queries.shape[1]
    lengths = torch.linalg.vector_norm(queries, dim=1, keepdim=True)
    return torch.cat([queries, 2 * _UNIT * (p + 8) * lengths], 1)


def beyond(
    queries: Tensor, rated: Rated, position: Tensor, similarity: Tensor
) -> Tensor:
    """Return the similarity (b,) that nobody exceeds who ranks behind a candidate.

    Shapes: queries (b, p + 1), position and similarity (b,) of that candidate.
    """
    length, error = rated.vectors[position, -1], rated.errors[position]
    return similarity + 2 * (queries[:, -1].double() * length + error)


def contenders(
    queries: Tensor, rated: Rated, m: int, filter: Filter | None
) -> Neighbors:
    """Return positions (b, k) and whether somebody stands there (b, k).

    All of the m best are among them, but of equal vectors those at higher positions.

    Shapes: queries (b, p + 1), as `Rated` vectors, of float32.
    """
    n_rows = max(1, _SCORES // max(1, len(rated.vectors)))
    parts = [
        _of_some(queries, slice(start, start + n_rows), rated, m, filter)
        for start in range(0, len(queries), n_rows)
    ]
    width = max(part.shape[1] for part in parts)
    position = torch.cat([_widened(part, width) for part in parts])
    return Neighbors(position.clamp_min(0), position >= 0)


def _widened(position: Tensor, width: int) -> Tensor:
    missing = width - position.shape[1]
    return F.pad(position, (0, missing), value=-1) if missing else position


def _of_some(
    queries: Tensor, rows: slice, rated: Rated, m: int, filter: Filter | None
) -> Tensor:
    """Return positions (r, k) for a slice of the queries, -1 for nobody."""
    vectors, offsets, errors = rated
    rows = slice(rows.start, min(rows.stop, len(queries)))
    allowed = None if filter is None else filter.allowed
    whole = slice(0, len(vectors))
    with full_precision():
        scores = scores_of(queries, vectors, offsets, rows, whole, None, allowed)
    by_length, lengths = queries[rows, -1].contiguous(), vectors[:, -1].contiguous()
    if not has_numba():
        lower = scores - 2 * (by_length[:, None] * lengths + errors)
        lower = lower.nan_to_num(-torch.inf)
        bound = lower.topk(m).values[:, -1:]
        scores = scores.masked_fill(scores < bound, -torch.inf)
        k = int((scores != -torch.inf).sum(1).max())
        best, position = scores.topk(k)
        return position.masked_fill(best == -torch.inf, -1)
    from tabr.search.contenders_numba import list_contenders

    lists = torch.empty(scores.shape, dtype=torch.int32)
    counts = torch.empty(len(scores), dtype=torch.int64)
    given = scores, lengths, errors, by_length, vectors.T.contiguous()
    arrays = [x.numpy() for x in given]
    list_contenders(*arrays, m, lists.numpy(), counts.numpy())
    k = int(counts.max())
    return lists[:, :k].long().where(torch.arange(k) < counts[:, None], -1)


def ranked(
    position: Tensor, found: Tensor, similarity: Tensor, m: int
) -> tuple[Neighbors, Tensor]:
    """Return the m most similar of each row, (b, m); of equals the lower position.

    Shapes: position, found and similarity (b, k).
    """
    if has_numba():
        from tabr.search.contenders_numba import rank

        shape = len(position), min(m, position.shape[1])
        best = similarity.new_empty(shape)
        near = Neighbors(torch.empty(shape, dtype=torch.int64), best.bool())
        given = (position, found, similarity)
        rank(
            *(x.contiguous().numpy() for x in given),
            shape[1],
            *(x.numpy() for x in (*near, best)),
        )
        return near, best
    similarity = similarity.masked_fill(~found, -torch.inf)
    position, order = position.masked_fill(~found, _NOBODY).sort(1)
    similarity, order = similarity.gather(1, order).sort(
        dim=1, descending=True, stable=True
    )
    position, similarity = position.gather(1, order)[:, :m], similarity[:, :m]
    found = position < _NOBODY
    return Neighbors(position.masked_fill(~found, 0), found), similarity

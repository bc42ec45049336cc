"""Lists of contenders, in loops that numba compiles."""

from __future__ import annotations

import numpy as np

from tabr.device.compiled import compiled
from tabr.search.ranking_numba import bound_of, key_of, select, sort

_ALL = np.uint32(0xFFFFFFFF)


@compiled
def list_contenders(scores, lengths, errors, reach, vectors, m, lists, counts):
    """Write for each row the positions of its contenders, and how many there are.

    Shapes: scores (r, n), lengths and errors (n,), reach (r,), vectors (p, n),
    lists (r, n), counts (r,).
    """
    n = scores.shape[1]
    n_bins = 4 * (m + 1)
    bins, lower = np.empty(n_bins, np.float32), np.empty(n, np.float32)
    keys = np.empty(max(n, n_bins), np.uint64)
    bound = np.empty(1, np.float32)
    bits = lower.view(np.uint32)
    for i in range(len(scores)):
        row, a = scores[i], reach[i]
        for j in range(n):
            lower[j] = row[j] - np.float32(2) * (a * lengths[j] + errors[j])
        bound[0] = -np.inf
        if n >= 2 * n_bins:
            bins[:] = -np.inf
            for start in range(0, n - n_bins + 1, n_bins):
                part = lower[start : start + n_bins]
                for j in range(n_bins):
                    bins[j] = part[j] if part[j] > bins[j] else bins[j]
            bound_of(bins, keys, m, bound)
        found = _reaching(row, n, bound[0], lists[i])
        if found > m:
            for k in range(found):
                keys[k] = key_of(bits[lists[i, k]], lists[i, k])
            select(keys, found, m)
            last = np.int64(_ALL - np.uint32(keys[m - 1] & np.uint64(_ALL)))
            found = _kept(row, lists[i], found, lower[last])
        if found > 2 * m:
            found = _without_copies(row, vectors, m, lists[i], found, keys)
        counts[i] = found


@compiled
def _reaching(row, n, bound, out):
    """Write who reaches a bound; what is no number might."""
    found = 0
    for j in range(n):
        if not row[j] < bound and row[j] != -np.inf:
            out[found] = j
            found += 1
    return found


@compiled
def _kept(row, out, n, bound):
    """Leave in a list of n who reaches a bound."""
    found = 0
    for k in range(n):
        if not row[out[k]] < bound:
            out[found] = out[k]
            found += 1
    return found


@compiled
def _without_copies(row, vectors, m, out, n, keys):
    """Leave of equal vectors of equal scores the first m."""
    bits = row.view(np.uint32)
    for k in range(n):
        keys[k] = key_of(bits[out[k]], out[k])
    sort(keys, n)
    found, n_equal, before = 0, 0, np.int64(-1)
    for k in range(n):
        j = np.int64(_ALL - np.uint32(keys[k] & np.uint64(_ALL)))
        # Of equal scores the lower position comes first; of copies whose scores
        # were rounded differently it need not.
        again = k > 0 and row[j] == row[before] and _equal(vectors, j, before)
        n_equal = n_equal + 1 if again else 0
        before = j
        if n_equal < m:
            out[found] = j
            found += 1
    return found


@compiled
def _equal(vectors, i, j):
    """Whether two vectors are the same."""
    n_others = 0
    for q in range(len(vectors)):
        n_others += vectors[q, i] != vectors[q, j]
    return n_others == 0


@compiled
def rank(listed, found, similarity, m, position, is_found, best):
    """Write the m most similar of each row; of equals the lower position.

    Shapes: listed, found and similarity (b, k), all others (b, m).
    """
    n = listed.shape[1]
    order = np.empty(n, np.int64)
    for i in range(len(listed)):
        row, of = similarity[i], listed[i]
        k = 0
        for j in range(n):
            if found[i, j]:
                order[k] = j
                k += 1
        gap = k // 2
        while gap > 0:
            for a in range(gap, k):
                j, b = order[a], a
                while b >= gap and _is_before(row, of, j, order[b - gap]):
                    order[b] = order[b - gap]
                    b -= gap
                order[b] = j
            gap = 1 if gap == 2 else gap * 5 // 11
        for a in range(m):
            is_found[i, a] = a < k
            position[i, a] = of[order[a]] if a < k else 0
            best[i, a] = row[order[a]] if a < k else -np.inf


@compiled
def _is_before(similarity, position, i, j):
    """Whether one is more similar than another, or as similar at a lower position."""
    if similarity[i] != similarity[j]:
        return similarity[i] > similarity[j]
    return position[i] < position[j]

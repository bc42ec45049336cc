"""Kernels that rank listed candidates in full precision, and the helpers of others."""

from __future__ import annotations

import triton
import triton.language as tl

_LOWEST = tl.constexpr(-(2**63))


@triton.jit
def allowed(
    rows, columns, codes, low, high, b, n,
    N_CONDITIONS: tl.constexpr, OUTSIDE: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    """Return whether rows[:, None] may take the candidates columns[None, :]."""
    ok = (rows < b)[:, None] & (columns < n)[None, :]
    clause = (rows < 0)[:, None]  # False
    for c in tl.static_range(N_CONDITIONS):
        code = tl.load(codes + c * n + columns, mask=columns < n, other=0)[None, :]
        least = tl.load(low + c * b + rows, mask=rows < b, other=0)[:, None]
        most = tl.load(high + c * b + rows, mask=rows < b, other=0)[:, None]
        inside = (code >= least) & (code <= most)
        if (OUTSIDE >> c) & 1:
            inside = ~inside
        clause = clause | inside
        if (ENDS >> c) & 1:
            ok = ok & clause
            clause = (rows < 0)[:, None]
    return ok


@triton.jit
def ordered(scores):
    """Return floats as integers of the same order."""
    bits = scores.to(tl.int32, bitcast=True)
    return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)


@triton.jit
def unordered(integers):
    """Return such integers as floats."""
    bits = tl.where(integers >= 0, integers, integers ^ 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def keys_of(scores, ids, ok):
    """Return scores and ids in one integer: larger is better, then the lower id."""
    keys = (ordered(scores).to(tl.int64) << 32) | (0xFFFFFFFF - ids.to(tl.int64))
    return tl.where(ok, keys, _LOWEST)


@triton.jit
def nth_best(values, m):
    """Return the m-th largest of integers, by bisection."""
    least = tl.min(values, 0).to(tl.int64)  # at least m reach it
    most = tl.max(values, 0).to(tl.int64) + 1  # fewer than m reach it
    while most - least > 1:
        middle = (least + most) >> 1
        reached = tl.sum((values >= middle.to(tl.int32)).to(tl.int32), 0) >= m
        least = tl.where(reached, middle, least)
        most = tl.where(reached, most, middle)
    return least.to(tl.int32)


@triton.jit
def _narrow(keys, kept, n, m, LIST: tl.constexpr):
    """Copy the keys whose scores reach the m-th best; return how many they are."""
    i = tl.arange(0, LIST)
    key = tl.load(keys + i, mask=i < n, other=_LOWEST)
    score = (key >> 32).to(tl.int32)
    reaches = (score >= nth_best(score, m)) & (i < n)
    tl.store(kept + tl.cumsum(reaches.to(tl.int32), 0) - 1, key, mask=reaches)
    tl.debug_barrier()  # other threads read what was written
    return tl.sum(reaches.to(tl.int32), 0)


@triton.jit
def _best(keys, kept, n, m):
    """Write the best m of n keys to `kept`, best first; return how many there are.

    A key's place is the number of keys above it: no two are equal. That is quick for
    few keys; many are narrowed first.
    """
    n_valid = 0
    for first in range(0, n, 128):
        i = first + tl.arange(0, 128)
        key = tl.load(keys + i, mask=i < n, other=_LOWEST)
        place = tl.zeros((128,), tl.int32)
        for start in range(0, n, 16):
            j = start + tl.arange(0, 16)
            others = tl.load(keys + j, mask=j < n, other=_LOWEST)
            place += tl.sum((others[None, :] > key[:, None]).to(tl.int32), 1)
        valid = key != _LOWEST
        tl.store(kept + place, key, mask=valid & (place < m))
        n_valid += tl.sum(valid.to(tl.int32), 0)
    tl.debug_barrier()  # other threads read what was written
    return tl.minimum(n_valid, m)


@triton.jit
def _write(position, found, r, keys, n, m, M2: tl.constexpr):
    """Write the neighbours of a row, which are the first n of m keys."""
    i = tl.arange(0, M2)
    inside = i < n
    key = tl.load(keys + i, mask=inside, other=_LOWEST)
    ids = tl.where(inside, 0xFFFFFFFF - (key & 0xFFFFFFFF), 0)
    tl.store(position + r * m + i, ids, mask=i < m)
    tl.store(found + r * m + i, inside.to(tl.int8), mask=i < m)


@triton.jit
def exact_scores(
    query, vectors, offsets, ids, ok,
    PK: tl.constexpr, MAIN: tl.constexpr, BP: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Return the scores of candidates (SIZE,) of one row in full precision."""
    total = tl.zeros((SIZE,), tl.float32)
    at = ids.to(tl.int64) * PK
    for start in range(0, MAIN, BP):
        k = start + tl.arange(0, BP)
        q = tl.load(query + k)
        v = tl.load(vectors + at[:, None] + k[None, :], mask=ok[:, None], other=0.0)
        total += tl.sum(v * q[None, :], 1)
    return total + tl.load(offsets + ids, mask=ok, other=0.0)


@triton.jit(do_not_specialize=["n", "m", "p"])
def rank(
    queries, vectors, offsets, exclude, rounded, upper, row_units, bound, loose, state,
    count, lists, keys, position, found, n, m, p, MAX_STATE: tl.constexpr,
    MAY_REPEAT: tl.constexpr, PK: tl.constexpr, MAIN: tl.constexpr, BP: tl.constexpr,
    M2: tl.constexpr, LIST: tl.constexpr,
):  # fmt: skip
    """Write the best m of a row's list, if the walk took states up to MAX_STATE.

    A row whose list overflowed has its bound raised, and gets the state of its next
    walk; MAY_REPEAT allows one in half precision.
    """
    r = tl.program_id(0)
    row_state = tl.load(state + r)
    if (row_state == 0) | (row_state > MAX_STATE):
        return
    n_listed = tl.load(count + r)
    n_held = tl.minimum(n_listed, LIST)
    query, row_keys = queries + r * PK, keys + 3 * r * LIST
    for first in range(0, n_held, 128):
        i = first + tl.arange(0, 128)
        ok = i < n_held
        ids = tl.load(lists + r * LIST + i, mask=ok, other=0)
        ok = ok & (ids < n)  # the rest of the last tile is padding
        ok = ok & (ids != tl.load(exclude + r))
        value = exact_scores(query, vectors, offsets, ids, ok, PK, MAIN, BP, 128)
        tl.store(row_keys + i, keys_of(value, ids, ok), mask=i < n_held)
    tl.debug_barrier()
    best = row_keys + LIST
    if n_held > 2 * M2:
        near = row_keys + 2 * LIST
        n_near = _narrow(row_keys, near, n_held, m, LIST)
        n_best = _best(near, best, n_near, m)
    else:
        n_best = _best(row_keys, best, n_held, m)
    row_state = 0
    if n_listed > LIST:
        worst = tl.load(best + m - 1)
        raised = unordered((worst >> 32).to(tl.int32))
        raised = tl.maximum(raised, tl.load(bound + r))
        tl.store(bound + r, raised)
        tl.store(count + r, 0)
        # The listed ones are a sample: estimate how many will be listed next.
        ratio = n_listed.to(tl.float32) / LIST
        is_loose = ratio * m > LIST // 2
        tl.store(loose + r, is_loose.to(tl.int32))
        row_state = 2
        if MAY_REPEAT:
            limit = tl.load(upper + r * PK + p + 2).to(tl.float32)
            limit = limit * tl.load(row_units + r)
            n_again = 0
            for first in range(0, LIST, 128):
                i = first + tl.arange(0, 128)
                ids = tl.load(lists + r * LIST + i)
                score = unordered((tl.load(row_keys + i) >> 32).to(tl.int32))
                error = tl.load(rounded + ids.to(tl.int64) * PK + p + 2)
                may = score + limit * error.to(tl.float32) >= raised
                n_again += tl.sum(may.to(tl.int32), 0)
            if (ratio * n_again <= LIST // 2) & (not is_loose):
                row_state = 1
    else:
        _write(position, found, r, best, n_best, m, M2)
    tl.store(state + r, row_state)


@triton.jit(do_not_specialize=["b", "n", "m", "share"])
def search_share(
    queries, vectors, offsets, exclude, codes, low, high, order, n_gathered, scratch,
    keys, b, n, m, share, N_SHARES: tl.constexpr, PK: tl.constexpr,
    MAIN: tl.constexpr, BP: tl.constexpr, M2: tl.constexpr, LIST: tl.constexpr,
    N_CONDITIONS: tl.constexpr, OUTSIDE: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    """Write the best of each share of the candidates, for gathered rows with any ties.

    A program takes one share of one row after the other.
    """
    halves = scratch + tl.program_id(0) * (3 * LIST)  # two lists
    near = halves + 2 * LIST
    n_tasks = tl.load(n_gathered) * N_SHARES
    for task in range(tl.program_id(0), n_tasks, tl.num_programs(0)):
        r = tl.load(order + task // N_SHARES)
        row = r + tl.arange(0, 1)
        query = queries + r * PK
        begin = task % N_SHARES * share
        side = 0  # of the two lists: the other takes the best of this one
        n_kept = 0
        worst = tl.min(tl.full((16,), _LOWEST, tl.int64), 0)  # the key to beat
        for first in range(begin, tl.minimum(begin + share, n), M2):
            ids = first + tl.arange(0, M2)
            ok = tl.reshape(
                allowed(row, ids, codes, low, high, b, n, N_CONDITIONS, OUTSIDE, ENDS),
                (M2,),
            )
            ok = ok & (ids < begin + share)
            ok = ok & (ids != tl.load(exclude + r))
            value = exact_scores(query, vectors, offsets, ids, ok, PK, MAIN, BP, M2)
            new = keys_of(value, ids, ok)
            better = (new > worst).to(tl.int32)
            n_new = tl.sum(better, 0)
            if n_new > 0:
                at = halves + side + n_kept + tl.cumsum(better, 0) - 1
                tl.store(at, new, mask=better > 0)
                tl.debug_barrier()
                n_kept += n_new
                if n_kept > LIST - M2:
                    n_near = _narrow(halves + side, near, n_kept, m, LIST)
                    n_kept = _best(near, halves + LIST - side, n_near, m)
                    side = LIST - side
                    worst = tl.load(halves + side + m - 1)
        n_near = _narrow(halves + side, near, n_kept, m, LIST)
        best = keys + r * (3 * LIST) + task % N_SHARES * M2
        n_best = _best(near, best, n_near, m)
        i = tl.arange(0, M2)
        tl.store(best + i, tl.full((M2,), _LOWEST, tl.int64), mask=i >= n_best)
        tl.debug_barrier()  # the lists are used again


@triton.jit(do_not_specialize=["m"])
def merge_shares(
    state, keys, position, found, m,
    N_SHARES: tl.constexpr, M2: tl.constexpr, LIST: tl.constexpr,
):  # fmt: skip
    """Write the best m of all shares for a row that `search_share` searched."""
    r = tl.program_id(0)
    if tl.load(state + r) == 0:
        return
    row_keys = keys + r * (3 * LIST)
    near, best = row_keys + LIST, row_keys + 2 * LIST
    n_near = _narrow(row_keys, near, N_SHARES * M2, m, LIST)
    n_best = _best(near, best, n_near, m)
    _write(position, found, r, best, n_best, m, M2)

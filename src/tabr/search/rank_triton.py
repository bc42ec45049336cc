"""Kernels that rank listed candidates exactly, and what all kernels share."""

from __future__ import annotations

import triton
import triton.language as tl

_LOWEST = tl.constexpr(-(2**63))


@triton.jit
def allowed(
    rows, columns, codes, low, high, b, n,
    N_RULES: tl.constexpr, OUTSIDE: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    """Tell which candidates the rows may take: columns[None, :] for rows[:, None]."""
    ok = (rows < b)[:, None] & (columns < n)[None, :]
    one = (rows < 0)[:, None]
    for c in tl.static_range(N_RULES):
        code = tl.load(codes + c * n + columns, mask=columns < n, other=0)[None, :]
        least = tl.load(low + c * b + rows, mask=rows < b, other=0)[:, None]
        most = tl.load(high + c * b + rows, mask=rows < b, other=0)[:, None]
        inside = (code >= least) & (code <= most)
        if (OUTSIDE >> c) & 1:
            inside = ~inside
        one = one | inside
        if (ENDS >> c) & 1:
            ok = ok & one
            one = (rows < 0)[:, None]
    return ok


@triton.jit
def ordered(scores):
    """Map floats to integers of the same order."""
    bits = scores.to(tl.int32, bitcast=True)
    return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)


@triton.jit
def unordered(integers):
    """Map them back."""
    bits = tl.where(integers >= 0, integers, integers ^ 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def keys_of(scores, ids, ok):
    """Pack scores and ids into integers: larger is better, then the lower id."""
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
    """Copy the keys whose scores reach the m-th best; tell how many they are."""
    i = tl.arange(0, LIST)
    key = tl.load(keys + i, mask=i < n, other=_LOWEST)
    score = (key >> 32).to(tl.int32)
    reaches = (score >= nth_best(score, m)) & (i < n)
    tl.store(kept + tl.cumsum(reaches.to(tl.int32), 0) - 1, key, mask=reaches)
    tl.debug_barrier()  # others read what was written
    return tl.sum(reaches.to(tl.int32), 0)


@triton.jit
def _best(keys, kept, n, m):
    """Write the best m of n keys elsewhere, best first; tell how many there are.

    A key's place is the number of keys above it: no two are equal. That is quick for
    few; many are narrowed first.
    """
    n_there = 0
    for first in range(0, n, 128):
        i = first + tl.arange(0, 128)
        mine = tl.load(keys + i, mask=i < n, other=_LOWEST)
        place = tl.zeros((128,), tl.int32)
        for start in range(0, n, 16):
            j = start + tl.arange(0, 16)
            others = tl.load(keys + j, mask=j < n, other=_LOWEST)
            place += tl.sum((others[None, :] > mine[:, None]).to(tl.int32), 1)
        there = mine != _LOWEST
        tl.store(kept + place, mine, mask=there & (place < m))
        n_there += tl.sum(there.to(tl.int32), 0)
    tl.debug_barrier()  # others read what was written
    return tl.minimum(n_there, m)


@triton.jit
def _write(position, found, r, keys, n, m, M2: tl.constexpr):
    """Unpack the first n of m keys of a row."""
    i = tl.arange(0, M2)
    there = i < n
    key = tl.load(keys + i, mask=there, other=_LOWEST)
    ids = tl.where(there, 0xFFFFFFFF - (key & 0xFFFFFFFF), 0)
    tl.store(position + r * m + i, ids, mask=i < m)
    tl.store(found + r * m + i, there.to(tl.int8), mask=i < m)


@triton.jit
def exact_scores(
    query, vectors, offsets, ids, ok,
    PK: tl.constexpr, MAIN: tl.constexpr, BP: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Score candidates (SIZE,) of one row in full precision."""
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
    queries, vectors, offsets, exclude, rounded, upper, unit_of, bound, loose, state,
    count, lists, keys, position, found, n, m, p, MOST: tl.constexpr,
    AGAIN: tl.constexpr, PK: tl.constexpr, MAIN: tl.constexpr, BP: tl.constexpr,
    M2: tl.constexpr, LIST: tl.constexpr,
):  # fmt: skip
    """Take the best m of the list of a row that was walked: its state is at most MOST.

    A row that overflowed has its bound raised; AGAIN allows another walk in half
    precision.
    """
    r = tl.program_id(0)
    waits_for = tl.load(state + r)
    if (waits_for == 0) | (waits_for > MOST):
        return
    n_listed = tl.load(count + r)
    n_held = tl.minimum(n_listed, LIST)
    query, own = queries + r * PK, keys + 3 * r * LIST
    for first in range(0, n_held, 128):
        i = first + tl.arange(0, 128)
        ok = i < n_held
        ids = tl.load(lists + r * LIST + i, mask=ok, other=0)
        ok = ok & (ids < n)  # what fills the last tile up is nobody
        ok = ok & (ids != tl.load(exclude + r))
        value = exact_scores(query, vectors, offsets, ids, ok, PK, MAIN, BP, 128)
        tl.store(own + i, keys_of(value, ids, ok), mask=i < n_held)
    tl.debug_barrier()
    best = own + LIST
    if n_held > 2 * M2:
        n_near = _narrow(own, own + 2 * LIST, n_held, m, LIST)
        n_best = _best(own + 2 * LIST, best, n_near, m)
    else:
        n_best = _best(own, best, n_held, m)
    waits_for = 0
    if n_listed > LIST:
        worst = tl.load(best + m - 1)
        raised = unordered((worst >> 32).to(tl.int32))
        raised = tl.maximum(raised, tl.load(bound + r))
        tl.store(bound + r, raised)
        tl.store(count + r, 0)
        # Who is listed here stands for who is not: about so many will be listed next.
        ratio = n_listed.to(tl.float32) / LIST
        is_loose = ratio * m > LIST // 2
        tl.store(loose + r, is_loose.to(tl.int32))
        waits_for = 2
        if AGAIN:
            limit = tl.load(upper + r * PK + p + 2).to(tl.float32)
            limit = limit * tl.load(unit_of + r)
            n_again = 0
            for first in range(0, LIST, 128):
                i = first + tl.arange(0, 128)
                ids = tl.load(lists + r * LIST + i)
                score = unordered((tl.load(own + i) >> 32).to(tl.int32))
                error = tl.load(rounded + ids.to(tl.int64) * PK + p + 2)
                may = score + limit * error.to(tl.float32) >= raised
                n_again += tl.sum(may.to(tl.int32), 0)
            if (ratio * n_again <= LIST // 2) & (not is_loose):
                waits_for = 1
    else:
        _write(position, found, r, best, n_best, m, M2)
    tl.store(state + r, waits_for)


@triton.jit(do_not_specialize=["b", "n", "m", "share"])
def search_share(
    queries, vectors, offsets, exclude, codes, low, high, order, n_gathered, scratch,
    keys, b, n, m, share, N_SHARES: tl.constexpr, PK: tl.constexpr,
    MAIN: tl.constexpr, BP: tl.constexpr, M2: tl.constexpr, LIST: tl.constexpr,
    N_RULES: tl.constexpr, OUTSIDE: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    """Find the best of shares of all candidates for gathered rows: without limits.

    A program takes one share of one row after the other.
    """
    own = scratch + tl.program_id(0) * (3 * LIST)
    near = own + 2 * LIST
    n_tasks = tl.load(n_gathered) * N_SHARES
    for task in range(tl.program_id(0), n_tasks, tl.num_programs(0)):
        r = tl.load(order + task // N_SHARES)
        row = r + tl.arange(0, 1)
        query = queries + r * PK
        begin = task % N_SHARES * share
        side = 0  # of the first two lists: the other takes the best of this one
        n_kept = 0
        worst = tl.min(tl.full((16,), _LOWEST, tl.int64), 0)  # whom others must beat
        for first in range(begin, tl.minimum(begin + share, n), M2):
            ids = first + tl.arange(0, M2)
            ok = tl.reshape(
                allowed(row, ids, codes, low, high, b, n, N_RULES, OUTSIDE, ENDS),
                (M2,),
            )
            ok = ok & (ids < begin + share)
            ok = ok & (ids != tl.load(exclude + r))
            value = exact_scores(query, vectors, offsets, ids, ok, PK, MAIN, BP, M2)
            new = keys_of(value, ids, ok)
            better = (new > worst).to(tl.int32)
            n_new = tl.sum(better, 0)
            if n_new > 0:
                at = own + side + n_kept + tl.cumsum(better, 0) - 1
                tl.store(at, new, mask=better > 0)
                tl.debug_barrier()
                n_kept += n_new
                if n_kept > LIST - M2:
                    n_near = _narrow(own + side, near, n_kept, m, LIST)
                    n_kept = _best(near, own + LIST - side, n_near, m)
                    side = LIST - side
                    worst = tl.load(own + side + m - 1)
        n_near = _narrow(own + side, near, n_kept, m, LIST)
        found = keys + r * (3 * LIST) + task % N_SHARES * M2
        n_found = _best(near, found, n_near, m)
        i = tl.arange(0, M2)
        tl.store(found + i, tl.full((M2,), _LOWEST, tl.int64), mask=i >= n_found)
        tl.debug_barrier()  # the lists are used again


@triton.jit(do_not_specialize=["m"])
def merge_shares(
    state, keys, position, found, m,
    N_SHARES: tl.constexpr, M2: tl.constexpr, LIST: tl.constexpr,
):  # fmt: skip
    """Take the best m of what the shares gave for a row that was searched so."""
    r = tl.program_id(0)
    if tl.load(state + r) == 0:
        return
    own = keys + r * (3 * LIST)
    n_near = _narrow(own, own + LIST, N_SHARES * M2, m, LIST)
    n_best = _best(own + LIST, own + 2 * LIST, n_near, m)
    _write(position, found, r, own + 2 * LIST, n_best, m, M2)

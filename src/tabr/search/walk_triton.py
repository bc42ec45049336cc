"""Exact top-m on GPUs without the matrix of scores: the kernels of `scan`.

A *bound* of a row is a score that at least m of its candidates reach. It comes from
the neighbours the row had before, scored under today's metric; for a row without any,
from the best of bins of a first walk over all candidates. One walk then *collects*
whoever may reach the bound, usually little more than m, and those are *ranked* exactly.

The walk may use half precision; `layout_triton` says why nobody is missed. It does
nothing with a score but compare it.

A row whose list overflows has its bound raised by what was collected. Such rows are
gathered, so that few of them cost little, and walked again: in half precision where
that promises a shorter list, then in full precision; a row that still overflows, which
takes hundreds of ties, is searched by a kernel that needs no list. All of this happens
on the device, and kernels end at once where they have nothing to do. Among equal scores
the lower position wins, so results do not depend on the order of collection.

A row's *state* says which walk it waits for: 0 none, 1 any, 2 one in full precision. It
is *loose* if its bound is too low for a walk and bins must come first.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tabr.search.layout_triton import LEAST_BOUND
from tabr.search.rank_triton import allowed, nth_best, ordered, unordered

# Four scores at a time: compare with the bound, and list those few that reach it. All
# places are asked for before any is used, so that one wait serves the four; they start
# at zero, since a register that is only written under a condition lives through the
# whole walk, and 64 of them leave room for one program where two fit. The same in
# Triton's own words (`PORTABLE`) costs a hundred instructions for each score. A tile
# must not be so small that several threads hold a score: each would list it.
_LIST_HITS = tl.constexpr("""
{
    .reg .pred h0, h1, h2, h3, any, fits;
    .reg .u32 s0, s1, s2, s3;
    .reg .u64 at;
    setp.ge.f32 h0, $4, $8;
    setp.ge.f32 h1, $5, $9;
    setp.ge.f32 h2, $6, $10;
    setp.ge.f32 h3, $7, $11;
    or.pred any, h0, h1;
    or.pred any, any, h2;
    or.pred any, any, h3;
    mov.u32 $0, 0;
    mov.u32 $1, 0;
    mov.u32 $2, 0;
    mov.u32 $3, 0;
    @!any bra DONE;
    mov.u32 s0, 0;
    mov.u32 s1, 0;
    mov.u32 s2, 0;
    mov.u32 s3, 0;
    @h0 atom.global.add.u32 s0, [$12], 1;
    @h1 atom.global.add.u32 s1, [$13], 1;
    @h2 atom.global.add.u32 s2, [$14], 1;
    @h3 atom.global.add.u32 s3, [$15], 1;
    setp.lt.and.u32 fits, s0, $24, h0;
    mad.wide.u32 at, s0, 4, $16;
    @fits st.global.u32 [at], $20;
    setp.lt.and.u32 fits, s1, $25, h1;
    mad.wide.u32 at, s1, 4, $17;
    @fits st.global.u32 [at], $21;
    setp.lt.and.u32 fits, s2, $26, h2;
    mad.wide.u32 at, s2, 4, $18;
    @fits st.global.u32 [at], $22;
    setp.lt.and.u32 fits, s3, $27, h3;
    mad.wide.u32 at, s3, 4, $19;
    @fits st.global.u32 [at], $23;
DONE:
}
""")


@triton.jit
def _products(
    queries, vectors, q, rest, rows, columns, PK: tl.constexpr, MAIN: tl.constexpr,
    BK: tl.constexpr, BQ: tl.constexpr, BN: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Return products (BQ, BN) of vectors of width PK.

    If one block holds the main columns, q is the rows' tile of them, and `rest` of
    the few that may follow.
    """
    at = columns.to(tl.int64) * PK
    k = tl.arange(0, BK)
    total = tl.zeros((BQ, BN), tl.float32)
    if MAIN == BK:
        v = tl.load(vectors + at[None, :] + k[:, None])
        total = _dot(q, v, total, HALF)
        if PK > MAIN:
            few = MAIN + tl.arange(0, PK - MAIN)
            v = tl.load(vectors + at[None, :] + few[:, None])
            total = _dot(rest, v, total, HALF)
    else:
        for start in range(0, PK, BK):
            q = tl.load(queries + rows[:, None] * PK + (start + k)[None, :])
            v = tl.load(vectors + at[None, :] + (start + k)[:, None])
            total = _dot(q, v, total, HALF)
    return total


@triton.jit
def _scores(
    queries, vectors, q, rest, rows, columns, codes, low, high, b, n,
    PK: tl.constexpr, MAIN: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr,
    BN: tl.constexpr, HALF: tl.constexpr, N_RULES: tl.constexpr,
    OUTSIDE: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    """Return the products of a tile, -inf where a rule forbids a candidate."""
    value = _products(
        queries, vectors, q, rest, rows, columns, PK, MAIN, BK, BQ, BN, HALF
    )
    if N_RULES:
        ok = allowed(rows, columns, codes, low, high, b, n, N_RULES, OUTSIDE, ENDS)
        value = tl.where(ok, value, float("-inf"))
    return value


@triton.jit
def _dot(a, b, total, HALF: tl.constexpr):
    if HALF:
        return tl.dot(a, b, total)
    else:
        return tl.dot(a, b, total, input_precision="tf32x3")


@triton.jit
def _tiles(queries, rows, PK: tl.constexpr, MAIN: tl.constexpr, BK: tl.constexpr):
    """Return what `_products` reads of the rows, loaded once for a whole walk."""
    at = rows[:, None] * PK
    q = tl.load(queries + at + tl.arange(0, BK)[None, :])
    if PK > MAIN:
        return q, tl.load(queries + at + (MAIN + tl.arange(0, PK - MAIN))[None, :])
    else:
        return q, q


@triton.jit(do_not_specialize=["n"])
def gather(state, order, n_gathered, n, MOST: tl.constexpr, BLOCK: tl.constexpr):
    """List the rows whose state is at most MOST, and -1 for nobody; one program."""
    n_found = 0
    for first in range(0, n, BLOCK):
        r = first + tl.arange(0, BLOCK)
        waits_for = tl.load(state + r, mask=r < n, other=0)
        wanted = ((waits_for > 0) & (waits_for <= MOST)).to(tl.int32)
        at = n_found + tl.cumsum(wanted, 0) - 1
        tl.store(order + at, r, mask=wanted > 0)
        n_found += tl.sum(wanted, 0)
    tl.store(n_gathered, n_found)
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        tl.store(order + i, -1, mask=(i >= n_found) & (i < n))


@triton.jit
def _rows(order, slots):
    """Return the rows at these slots, and whether there are any."""
    row = tl.load(order + slots)
    return tl.maximum(row, 0), row >= 0


@triton.jit(do_not_specialize=["b", "n", "n_tiles", "n_tiles_in_all"])
def best_of_bins(
    queries, vectors, codes, low, high, order, loose, maxima, b, n, n_tiles,
    n_tiles_in_all, HALF: tl.constexpr, PK: tl.constexpr, MAIN: tl.constexpr,
    BK: tl.constexpr, BQ: tl.constexpr, BN: tl.constexpr, N_RULES: tl.constexpr,
    OUTSIDE: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    """Keep the best certain score of each bin; a bin is a column of several tiles."""
    slots = tl.program_id(0) * BQ + tl.arange(0, BQ)
    rows, there = _rows(order, slots)
    if tl.max(tl.where(there, tl.load(loose + rows), 0), 0) == 0:
        return
    q, rest = _tiles(queries, rows, PK, MAIN, BK)
    best = tl.full((BQ, BN), float("-inf"), tl.float32)
    first = tl.program_id(1) * n_tiles
    for t in range(first, tl.minimum(first + n_tiles, n_tiles_in_all)):
        columns = t * BN + tl.arange(0, BN)
        value = _scores(
            queries, vectors, q, rest, rows, columns, codes, low, high, b, n,
            PK, MAIN, BK, BQ, BN, HALF, N_RULES, OUTSIDE, ENDS,
        )  # fmt: skip
        best = tl.maximum(best, value)
    bins = tl.program_id(1) * BN + tl.arange(0, BN)
    tl.store(maxima + slots[:, None] * tl.num_programs(1) * BN + bins[None, :], best)


@triton.jit(do_not_specialize=["m", "n_bins"])
def bound_by_bins(
    maxima, unit_of, order, state, loose, bound, m, n_bins,
    HALF: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Bound a loose row by the m-th best of its bins, found by bisection."""
    slot = tl.program_id(0)
    r, there = _rows(order, slot)
    if HALF:
        there = there & (tl.load(state + r) == 1)
    if (tl.load(loose + r) == 0) | ~there:
        return
    i = tl.arange(0, SIZE)
    value = tl.load(maxima + slot * n_bins + i, mask=i < n_bins, other=float("-inf"))
    found = unordered(nth_best(ordered(value), m))
    if HALF:
        found = found * tl.load(unit_of + r)
    tl.store(bound + r, tl.maximum(_lowered(found), tl.load(bound + r)))
    tl.store(loose + r, 0)


@triton.jit
def _lowered(bound):
    """Lower a bound by what float32 sums of its size may be off."""
    return bound - tl.abs(bound) * 2.0**-19


@triton.jit(do_not_specialize=["b", "n", "n_tiles", "n_tiles_in_all"])
def collect(
    queries, vectors, codes, low, high, unit_of, bound, order, state, count, lists,
    b, n, n_tiles, n_tiles_in_all, HALF: tl.constexpr, PK: tl.constexpr,
    MAIN: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr, BN: tl.constexpr,
    LIST: tl.constexpr, N_RULES: tl.constexpr, OUTSIDE: tl.constexpr,
    ENDS: tl.constexpr, PORTABLE: tl.constexpr,
):  # fmt: skip
    """List the candidates whose score may reach the bound."""
    rows, there = _rows(order, tl.program_id(0) * BQ + tl.arange(0, BQ))
    waits_for = tl.where(there, tl.load(state + rows), 0)
    wanted = waits_for == 1 if HALF else waits_for > 0
    if tl.max(wanted.to(tl.int32), 0) == 0:
        return
    least = _lowered(tl.load(bound + rows))
    if HALF:
        least = tl.maximum(least / tl.load(unit_of + rows), LEAST_BOUND)
    least = tl.where(wanted, least, float("inf"))[:, None]
    q, rest = _tiles(queries, rows, PK, MAIN, BK)
    counts = count + rows[:, None]
    starts = lists + rows[:, None] * LIST
    first = tl.program_id(1) * n_tiles
    for t in range(first, tl.minimum(first + n_tiles, n_tiles_in_all)):
        columns = t * BN + tl.arange(0, BN)
        value = _scores(
            queries, vectors, q, rest, rows, columns, codes, low, high, b, n,
            PK, MAIN, BK, BQ, BN, HALF, N_RULES, OUTSIDE, ENDS,
        )  # fmt: skip
        if PORTABLE:
            hit = value >= least
            here = counts + tl.zeros((BQ, BN), tl.int32)
            slot = tl.atomic_add(here, 1, mask=hit, sem="relaxed")
            tl.store(starts + slot, columns[None, :], mask=hit & (slot < LIST))
        else:
            tl.inline_asm_elementwise(
                _LIST_HITS,
                "=r,=r,=r,=r,f,f,f,f,f,f,f,f,l,l,l,l,l,l,l,l,r,r,r,r,r,r,r,r",
                [
                    value,
                    least,
                    counts.to(tl.int64),
                    starts.to(tl.int64),
                    columns[None, :],
                    LIST,
                ],
                dtype=tl.int32,
                is_pure=False,
                pack=4,
            )

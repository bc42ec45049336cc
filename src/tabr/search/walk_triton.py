"""Kernels that walk over all candidates and list those that may be among the best.

A *walk* computes all scores tile by tile, in registers. A *bound* of a row is a score
that at least m of its candidates reach. It comes from the neighbours that the row had
before, scored under today's metric; for a row without any, from the best of bins of a
first walk. The next walk *collects* the candidates that may reach the bound, usually
little more than m, and `rank_triton` ranks them exactly. A walk may use half precision;
`layout_triton` says why no candidate is missed.

A row whose list overflows has its bound raised by what was collected. Such rows are
gathered, so that few of them cost little, and walked again: in half precision where
that promises a shorter list, then in full precision. A row that still overflows, which
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

# Four scores at a time: compare with the bound, and list those few that reach it. The
# same in Triton's language (`PORTABLE`) takes a hundred instructions for each score.
# All four places are asked for before any is used, so that the waits overlap. They
# start at zero: a register that is only written under a condition is kept for the whole
# walk, and 64 such leave room for one program on a multiprocessor instead of two. A
# tile must not be so small that several threads hold a score: each would list it.
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
    BN: tl.constexpr, HALF: tl.constexpr, N_CONDITIONS: tl.constexpr,
    OUTSIDE: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    """Return the products of a tile, -inf where the filter forbids a candidate."""
    value = _products(
        queries, vectors, q, rest, rows, columns, PK, MAIN, BK, BQ, BN, HALF
    )
    if N_CONDITIONS:
        ok = allowed(rows, columns, codes, low, high, b, n, N_CONDITIONS, OUTSIDE, ENDS)
        value = tl.where(ok, value, float("-inf"))
    return value


@triton.jit
def _dot(a, b, total, HALF: tl.constexpr):
    """Return total + a b, exact to the precision of the walk."""
    if HALF:
        return tl.dot(a, b, total)
    else:
        return tl.dot(a, b, total, input_precision="tf32x3")


@triton.jit
def _tiles(queries, rows, PK: tl.constexpr, MAIN: tl.constexpr, BK: tl.constexpr):
    """Return the rows' tiles that `_products` reads, loaded once for a whole walk."""
    at = rows[:, None] * PK
    q = tl.load(queries + at + tl.arange(0, BK)[None, :])
    if PK > MAIN:
        return q, tl.load(queries + at + (MAIN + tl.arange(0, PK - MAIN))[None, :])
    else:
        return q, q


@triton.jit(do_not_specialize=["n"])
def gather(state, order, n_gathered, n, MAX_STATE: tl.constexpr, BLOCK: tl.constexpr):
    """List the rows with a state of 1 to MAX_STATE, then -1; one program does it."""
    n_listed = 0
    for first in range(0, n, BLOCK):
        r = first + tl.arange(0, BLOCK)
        row_state = tl.load(state + r, mask=r < n, other=0)
        wanted = ((row_state > 0) & (row_state <= MAX_STATE)).to(tl.int32)
        at = n_listed + tl.cumsum(wanted, 0) - 1
        tl.store(order + at, r, mask=wanted > 0)
        n_listed += tl.sum(wanted, 0)
    tl.store(n_gathered, n_listed)
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        tl.store(order + i, -1, mask=(i >= n_listed) & (i < n))


@triton.jit
def _rows(order, slots):
    """Return the rows at these slots, and whether a slot has one."""
    row = tl.load(order + slots)
    return tl.maximum(row, 0), row >= 0


@triton.jit(do_not_specialize=["b", "n", "n_tiles", "n_tiles_total"])
def best_of_bins(
    queries, vectors, codes, low, high, order, loose, maxima, b, n, n_tiles,
    n_tiles_total, HALF: tl.constexpr, PK: tl.constexpr, MAIN: tl.constexpr,
    BK: tl.constexpr, BQ: tl.constexpr, BN: tl.constexpr, N_CONDITIONS: tl.constexpr,
    OUTSIDE: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    """Write the best certain score of each bin; a bin is a column of several tiles."""
    slots = tl.program_id(0) * BQ + tl.arange(0, BQ)
    rows, exists = _rows(order, slots)
    if tl.max(tl.where(exists, tl.load(loose + rows), 0), 0) == 0:
        return
    q, rest = _tiles(queries, rows, PK, MAIN, BK)
    best = tl.full((BQ, BN), float("-inf"), tl.float32)
    first = tl.program_id(1) * n_tiles
    for t in range(first, tl.minimum(first + n_tiles, n_tiles_total)):
        columns = t * BN + tl.arange(0, BN)
        value = _scores(
            queries, vectors, q, rest, rows, columns, codes, low, high, b, n,
            PK, MAIN, BK, BQ, BN, HALF, N_CONDITIONS, OUTSIDE, ENDS,
        )  # fmt: skip
        best = tl.maximum(best, value)
    bins = tl.program_id(1) * BN + tl.arange(0, BN)
    tl.store(maxima + slots[:, None] * tl.num_programs(1) * BN + bins[None, :], best)


@triton.jit(do_not_specialize=["m", "n_bins"])
def bound_by_bins(
    maxima, row_units, order, state, loose, bound, m, n_bins,
    HALF: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Raise the bound of a loose row to the m-th best of its bins."""
    slot = tl.program_id(0)
    r, exists = _rows(order, slot)
    if HALF:
        exists = exists & (tl.load(state + r) == 1)
    if (tl.load(loose + r) == 0) | ~exists:
        return
    i = tl.arange(0, SIZE)
    value = tl.load(maxima + slot * n_bins + i, mask=i < n_bins, other=float("-inf"))
    score = unordered(nth_best(ordered(value), m))
    if HALF:
        score = score * tl.load(row_units + r)
    tl.store(bound + r, tl.maximum(_lowered(score), tl.load(bound + r)))
    tl.store(loose + r, 0)


@triton.jit
def _lowered(bound):
    """Return a bound, lowered by the rounding error of float32 sums of its size."""
    return bound - tl.abs(bound) * 2.0**-19


@triton.jit(do_not_specialize=["b", "n", "n_tiles", "n_tiles_total"])
def collect(
    queries, vectors, codes, low, high, row_units, bound, order, state, count, lists,
    b, n, n_tiles, n_tiles_total, HALF: tl.constexpr, PK: tl.constexpr,
    MAIN: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr, BN: tl.constexpr,
    LIST: tl.constexpr, N_CONDITIONS: tl.constexpr, OUTSIDE: tl.constexpr,
    ENDS: tl.constexpr, PORTABLE: tl.constexpr,
):  # fmt: skip
    """List the candidates whose score may reach the bound."""
    rows, exists = _rows(order, tl.program_id(0) * BQ + tl.arange(0, BQ))
    row_state = tl.where(exists, tl.load(state + rows), 0)
    wanted = row_state == 1 if HALF else row_state > 0
    if tl.max(wanted.to(tl.int32), 0) == 0:
        return
    least = _lowered(tl.load(bound + rows))
    if HALF:
        least = tl.maximum(least / tl.load(row_units + rows), LEAST_BOUND)
    least = tl.where(wanted, least, float("inf"))[:, None]
    q, rest = _tiles(queries, rows, PK, MAIN, BK)
    counts = count + rows[:, None]
    starts = lists + rows[:, None] * LIST
    first = tl.program_id(1) * n_tiles
    for t in range(first, tl.minimum(first + n_tiles, n_tiles_total)):
        columns = t * BN + tl.arange(0, BN)
        value = _scores(
            queries, vectors, q, rest, rows, columns, codes, low, high, b, n,
            PK, MAIN, BK, BQ, BN, HALF, N_CONDITIONS, OUTSIDE, ENDS,
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

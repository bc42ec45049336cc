"""Exact top-m on GPUs without the matrix of scores: the kernels of `scan`.

A *bound* of a row is a score that at least m of its candidates reach. It comes from
the neighbours the row had before, scored under today's metric; for a row without any,
from the best of bins of a first walk over all candidates. One walk then *collects*
whoever may reach the bound, usually little more than m, and those are *ranked* exactly.

The walk may use half precision. A score then comes with a rigorous limit of its error,
so that nobody is missed: rounding moves <q, v> by at most

    |q / D| |D (v - v')| + |D v| |(q - q') / D|,    for any positive diagonal D.

Both the offset of a candidate and this limit are linear in something of the row times
something of the candidate: they ride along as further columns of the product, so a
walk does nothing with a score but compare it.

A row whose list overflows has its bound raised by what was collected and is walked
again, the last time in full precision; a row that still overflows, which takes hundreds
of ties, is searched by a kernel that needs no list. All of this happens on the device,
and kernels end at once where they have nothing to do. Among equal scores the lower
position wins, so results do not depend on the order of collection.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tabr.search.rank_triton import (
    allowed,
    exact_scores,
    nth_best,
    ordered,
    unordered,
)

_HALF_ERROR = tl.constexpr(2.0**-11 + 2.0**-18)  # of rounding and of summing up
_FULL_ERROR = tl.constexpr(2.0**-18)
_LEAST_BOUND = tl.constexpr(-1e29)  # who must not be taken scores less

# Four scores at a time: compare with the bound, and list those few that reach it. The
# same in Triton's own words (`PORTABLE`) costs a hundred instructions for each score.
_LIST_HITS = tl.constexpr("""
{
    .reg .pred h0, h1, h2, h3, any, fits;
    .reg .u32 slot;
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
    @h0 atom.global.add.u32 slot, [$12], 1;
    setp.lt.and.u32 fits, slot, $24, h0;
    mad.wide.u32 at, slot, 4, $16;
    @fits st.global.u32 [at], $20;
    @h1 atom.global.add.u32 slot, [$13], 1;
    setp.lt.and.u32 fits, slot, $25, h1;
    mad.wide.u32 at, slot, 4, $17;
    @fits st.global.u32 [at], $21;
    @h2 atom.global.add.u32 slot, [$14], 1;
    setp.lt.and.u32 fits, slot, $26, h2;
    mad.wide.u32 at, slot, 4, $18;
    @fits st.global.u32 [at], $22;
    @h3 atom.global.add.u32 slot, [$15], 1;
    setp.lt.and.u32 fits, slot, $27, h3;
    mad.wide.u32 at, slot, 4, $19;
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


@triton.jit
def _truncate(x):
    """Clear the bits that a TF32 product does not read."""
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _round_up(x):
    """Round to half precision, never down."""
    return tl.maximum(x * (1.0 + 2.0**-9), 2.0**-14).to(tl.float16)


@triton.jit
def _power_of_two(x):
    """Return a power of two above x: dividing by it rounds nothing."""
    exponent = (x.to(tl.int32, bitcast=True) >> 23) + 1
    return (exponent << 23).to(tl.float32, bitcast=True)


@triton.jit
def _balance(gram, j, p, P2: tl.constexpr, HAS_GRAM: tl.constexpr):
    """Return the squares of D, zero beyond p: the metric's own scales of columns."""
    if HAS_GRAM:
        every = tl.arange(0, P2)
        most = tl.max(tl.load(gram + every * (p + 1), mask=every < p, other=0.0), 0)
        d2 = tl.load(gram + j * (p + 1), mask=j < p, other=0.0)
        return tl.where(j < p, tl.maximum(d2, most * 1e-12 + 1e-30), 0.0)
    else:
        return tl.where(j < p, 1.0, 0.0)


@triton.jit
def _units(gram, usual, p, PK: tl.constexpr, P2: tl.constexpr, HAS_GRAM: tl.constexpr):
    """Return units of offsets and of errors that suit half precision.

    Offsets far beyond the unit lose precision, which their limits tell.
    """
    j = tl.arange(0, P2)
    d2 = _balance(gram, j, p, P2, HAS_GRAM)
    size = tl.load(usual + j, mask=j < PK, other=0.0)
    reach = tl.sum(tl.sqrt(d2) * size, 0)
    return (
        _power_of_two(reach * reach + 1e-30),
        _power_of_two(tl.sqrt(tl.sum(d2 * size * size, 0)) * 2.0**-10 + 1e-30),
    )


@triton.jit(do_not_specialize=["n", "p", "n_blocks"])
def prepare(
    vectors, rounded, scales, gram, usual, offsets, n, p, n_blocks,
    HAS_GRAM: tl.constexpr, HALF: tl.constexpr, PK: tl.constexpr,
    MAIN: tl.constexpr, BK: tl.constexpr, P2: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write each candidate's offset -v'Av and the limit of its errors.

    With v = h + l, where h has the bits that a TF32 product reads, v'Av is
    (h + 2 l)'A h up to l'Al, which float32 would not see; A takes two products.
    """
    k = tl.arange(0, BK)
    unit, error_unit = _units(gram, usual, p, PK, P2, HAS_GRAM)
    if MAIN == BK:  # stays for all blocks
        d2 = _balance(gram, k, p, P2, HAS_GRAM)[None, :]
    if HAS_GRAM and MAIN == BK:
        inside = (k < p)[:, None] & (k < p)[None, :]
        whole = tl.load(gram + k[:, None] * p + k[None, :], mask=inside, other=0.0)
        high = _truncate(whole)
        low = whole - high
    for block in range(tl.program_id(0), n_blocks, tl.num_programs(0)):
        i = block * BN + tl.arange(0, BN)
        at = i.to(tl.int64)[:, None] * PK
        offset = tl.zeros((BN,), tl.float32)
        squares = tl.zeros((BN,), tl.float32)
        lost = tl.zeros((BN,), tl.float32)
        for start in tl.static_range(0, MAIN, BK):
            j = start + k
            v = tl.where((j < p)[None, :], tl.load(vectors + at + j[None, :]), 0.0)
            if MAIN != BK:
                d2 = _balance(gram, j, p, P2, HAS_GRAM)[None, :]
            squares += tl.sum(d2 * v * v, 1)
            if HALF:
                s = tl.load(scales + j)[None, :]
                gone = v - (v / s).to(tl.float16).to(tl.float32) * s
                lost += tl.sum(d2 * gone * gone, 1)
            if HAS_GRAM:
                read = _truncate(v)
                product = tl.zeros((BN, BK), tl.float32)
                if MAIN == BK:
                    product = tl.dot(read, high, product, input_precision="tf32")
                    product = tl.dot(read, low, product, input_precision="tf32")
                else:
                    for begin in range(0, MAIN, BK):
                        c = begin + k
                        u = tl.load(vectors + at + c[None, :])
                        u = _truncate(tl.where((c < p)[None, :], u, 0.0))
                        both = (c < p)[:, None] & (j < p)[None, :]
                        a = tl.load(
                            gram + c[:, None] * p + j[None, :], mask=both, other=0.0
                        )
                        top = _truncate(a)
                        product = tl.dot(u, top, product, input_precision="tf32")
                        product = tl.dot(u, a - top, product, input_precision="tf32")
                offset -= tl.sum(product * (2 * v - read), 1)
        size = tl.sqrt(squares)
        there = i < n
        tl.store(offsets + i, tl.where(there, offset, -1e30))
        own = i.to(tl.int64) * PK + p
        tl.store(vectors + own, tl.where(there, offset, -1e30))
        tl.store(vectors + own + 1, size)
        if HALF:
            part = tl.where(there, offset / unit, -60000.0)
            first = tl.maximum(part, -60000.0).to(tl.float16)
            rest = part - first.to(tl.float32)
            second = tl.maximum(rest * 2048, -60000.0).to(tl.float16)
            missed = tl.abs(rest - second.to(tl.float32) / 2048) * 1024
            error = (tl.sqrt(lost) + size * _HALF_ERROR) / error_unit
            tl.store(rounded + own, first)
            tl.store(rounded + own + 1, second)
            tl.store(rounded + own + 2, _round_up(error))
            tl.store(rounded + own + 3, _round_up(missed))


@triton.jit(do_not_specialize=["b", "m", "p"])
def start(
    queries, vectors, offsets, scales, gram, usual, last, plain, full_upper,
    upper, lower, unit_of, bound, count, unbounded, active, b, m, p,
    HAS_LAST: tl.constexpr, HAS_GRAM: tl.constexpr, HALF: tl.constexpr,
    PK: tl.constexpr, MAIN: tl.constexpr, P2: tl.constexpr, BP: tl.constexpr,
    M2: tl.constexpr,
):  # fmt: skip
    """Lay out a row's query for the walks, and bound it by its last neighbours."""
    r = tl.program_id(0)
    j = tl.arange(0, P2)
    inside = j < PK
    q = tl.load(queries + r * p + j, mask=(j < p) & (r < b), other=0.0)
    d2 = tl.where(j < p, _balance(gram, j, p, P2, HAS_GRAM), 1.0)
    norm = tl.sqrt(tl.sum(q * q / d2, 0))
    tl.store(plain + r * PK + j, q, mask=inside)
    error = norm * _FULL_ERROR
    with_offset = tl.where(j == p, 1.0, q)
    row = tl.where(j == p + 1, error, with_offset)
    tl.store(full_upper + r * PK + j, row, mask=inside)
    scale = 1.0
    if HALF:
        unit, error_unit = _units(gram, usual, p, PK, P2, HAS_GRAM)
        s = tl.load(scales + j, mask=inside, other=1.0)
        scaled = q * s
        scale = _power_of_two(tl.max(tl.abs(scaled), 0))
        scale = tl.maximum(scale, unit * 2.0**-15)
        half = (scaled / scale).to(tl.float16)
        rest = q - half.to(tl.float32) * scale / tl.load(
            scales + j, mask=inside, other=1.0
        )
        lost = tl.sqrt(tl.sum(rest * rest / d2, 0))
        of_offset = unit / scale
        error = tl.maximum(norm, lost / _HALF_ERROR) * error_unit / scale
        half = tl.where(j == p, of_offset.to(tl.float16), half)
        half = tl.where(j == p + 1, (of_offset / 2048).to(tl.float16), half)
        error = _round_up(tl.minimum(error, 50000.0))
        limit = tl.where(j == p + 2, error, (of_offset / 1024).to(tl.float16))
        is_limit = (j == p + 2) | (j == p + 3)
        tl.store(upper + r * PK + j, tl.where(is_limit, limit, half), mask=inside)
        tl.store(lower + r * PK + j, tl.where(is_limit, -limit, half), mask=inside)
        # A row for which half precision has not the range is bounded by nothing.
        usable = (of_offset >= 2.0**-13) & (error.to(tl.float32) < 50000.0)
        scale = tl.where(usable, scale, -1.0)
    else:
        tl.store(
            lower + r * PK + j, tl.where(j == p + 1, -error, with_offset), mask=inside
        )
    tl.store(unit_of + r, scale)
    tl.store(count + r, 0)
    least = tl.where(r < b, _LEAST_BOUND, 0.0)
    there = (r < b).to(tl.int32)
    free = there
    if HAS_LAST:
        i = tl.arange(0, M2)
        ids = tl.load(last + r * m + i, mask=(i < m) & (r < b), other=-1)
        ok = ids >= 0
        if tl.sum(ok.to(tl.int32), 0) == m:
            tl.debug_barrier()  # the query is read again, by all threads
            query = plain + r * PK
            value = exact_scores(query, vectors, offsets, ids, ok, PK, MAIN, BP, M2)
            least = tl.min(tl.where(ok, value, float("inf")), 0)
            free = 0
    tl.store(bound + r, least)
    tl.store(unbounded + r, free)
    tl.store(active + r, there)


@triton.jit(do_not_specialize=["b", "n", "n_tiles", "n_tiles_in_all"])
def best_of_bins(
    queries, vectors, codes, low, high, wanted, maxima, b, n, n_tiles, n_tiles_in_all,
    HALF: tl.constexpr, PK: tl.constexpr, MAIN: tl.constexpr, BK: tl.constexpr,
    BQ: tl.constexpr, BN: tl.constexpr, N_RULES: tl.constexpr,
    OUTSIDE: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    """Keep the best certain score of each bin; a bin is a column of several tiles."""
    rows = tl.program_id(0) * BQ + tl.arange(0, BQ)
    if tl.max(tl.load(wanted + rows), 0) == 0:
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
    tl.store(maxima + rows[:, None] * tl.num_programs(1) * BN + bins[None, :], best)


@triton.jit(do_not_specialize=["m", "n_bins"])
def bound_by_bins(maxima, unit_of, wanted, bound, m, n_bins, SIZE: tl.constexpr):
    """Bound a row by the m-th best of its bins, found by bisection."""
    r = tl.program_id(0)
    unit = tl.load(unit_of + r)
    if (tl.load(wanted + r) == 0) | (unit < 0):
        return
    i = tl.arange(0, SIZE)
    value = tl.load(maxima + r * n_bins + i, mask=i < n_bins, other=float("-inf"))
    found = _lowered(unordered(nth_best(ordered(value), m)) * unit)
    tl.store(bound + r, tl.maximum(found, tl.load(bound + r)))


@triton.jit
def _lowered(bound):
    """Lower a bound by what float32 sums of its size may be off."""
    return bound - tl.abs(bound) * 2.0**-19


@triton.jit(do_not_specialize=["b", "n", "n_tiles", "n_tiles_in_all"])
def collect(
    queries, vectors, codes, low, high, unit_of, bound, active, count, lists,
    b, n, n_tiles, n_tiles_in_all, HALF: tl.constexpr, PK: tl.constexpr,
    MAIN: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr, BN: tl.constexpr,
    LIST: tl.constexpr, N_RULES: tl.constexpr, OUTSIDE: tl.constexpr,
    ENDS: tl.constexpr, PORTABLE: tl.constexpr,
):  # fmt: skip
    """List the candidates whose score may reach the bound."""
    rows = tl.program_id(0) * BQ + tl.arange(0, BQ)
    wanted = tl.load(active + rows)
    if tl.max(wanted, 0) == 0:
        return
    least = _lowered(tl.load(bound + rows))
    if HALF:
        unit = tl.load(unit_of + rows)
        least = tl.where(unit > 0, tl.maximum(least / unit, _LEAST_BOUND), _LEAST_BOUND)
    least = tl.where(wanted > 0, least, float("inf"))[:, None]
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

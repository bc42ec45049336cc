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

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

_LOWEST = tl.constexpr(-(2**63))
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


class Rules(NamedTuple):
    """Who may take whom, as intervals of whole numbers in conjunctive normal form.

    A row may take a candidate if in every group one interval holds: the candidate's
    code lies within the row's [low, high], or outside of it.

    Attributes:
        codes: (c, n) int32, one line for each interval.
        low: (c, b) int32.
        high: (c, b) int32.
        outside: Bit c: interval c holds outside.
        ends: Bit c: interval c is the last of its group.
    """

    codes: Tensor
    low: Tensor
    high: Tensor
    outside: int
    ends: int


# --- shared pieces --------------------------------------------------------------


@triton.jit
def _allowed(
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
def _ordered(scores):
    """Map floats to integers of the same order."""
    bits = scores.to(tl.int32, bitcast=True)
    return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)


@triton.jit
def _unordered(integers):
    bits = tl.where(integers >= 0, integers, integers ^ 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _keys(scores, ids, ok):
    """Pack scores and ids into integers: larger is better, then the lower id."""
    keys = (_ordered(scores).to(tl.int64) << 32) | (0xFFFFFFFF - ids.to(tl.int64))
    return tl.where(ok, keys, _LOWEST)


@triton.jit
def _write(position, found, r, keys, i, m):
    """Unpack the best m keys of a row."""
    there = keys != _LOWEST
    ids = tl.where(there, 0xFFFFFFFF - (keys & 0xFFFFFFFF), 0)
    tl.store(position + r * m + i, ids, mask=i < m)
    tl.store(found + r * m + i, there.to(tl.int8), mask=i < m)


@triton.jit
def _exact(
    query, vectors, offsets, ids, ok,
    PK: tl.constexpr, BP: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Score candidates (SIZE,) of one row in full precision."""
    total = tl.zeros((SIZE,), tl.float32)
    at = ids.to(tl.int64) * PK
    for start in range(0, PK, BP):
        k = start + tl.arange(0, BP)
        q = tl.load(query + k)
        v = tl.load(vectors + at[:, None] + k[None, :], mask=ok[:, None], other=0.0)
        total += tl.sum(v * q[None, :], 1)
    return total + tl.load(offsets + ids, mask=ok, other=0.0)


@triton.jit
def _products(
    queries, vectors, q, rows, columns, PK: tl.constexpr, BK: tl.constexpr,
    BQ: tl.constexpr, BN: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Return products (BQ, BN); q is the rows' tile if one block holds it all."""
    at = columns.to(tl.int64) * PK
    k = tl.arange(0, BK)
    total = tl.zeros((BQ, BN), tl.float32)
    if PK == BK:
        v = tl.load(vectors + at[None, :] + k[:, None])
        if HALF:
            total = tl.dot(q, v, total)
        else:
            total = tl.dot(q, v, total, input_precision="tf32x3")
    else:
        for start in range(0, PK, BK):
            q = tl.load(queries + rows[:, None] * PK + (start + k)[None, :])
            v = tl.load(vectors + at[None, :] + (start + k)[:, None])
            if HALF:
                total = tl.dot(q, v, total)
            else:
                total = tl.dot(q, v, total, input_precision="tf32x3")
    return total


# --- the steps of a search ------------------------------------------------------


@triton.jit
def _truncate(x):
    """Clear the bits that a TF32 product does not read."""
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _power_of_two(x):
    """Return a power of two above x: dividing by it rounds nothing."""
    exponent = (x.to(tl.int32, bitcast=True) >> 23) + 1
    return (exponent << 23).to(tl.float32, bitcast=True)


@triton.jit
def _units(balance, largest, j, PK: tl.constexpr):
    """Return units of offsets and of errors that keep both within half precision."""
    d2 = tl.load(balance + j, mask=j < PK, other=0.0)
    most = tl.load(largest + j, mask=j < PK, other=0.0)
    reach = tl.sum(tl.sqrt(d2) * most, 0)
    return (
        _power_of_two(reach * reach + 1e-30),
        _power_of_two(tl.sqrt(tl.sum(d2 * most * most, 0)) * 2.0**-10 + 1e-30),
    )


@triton.jit
def _prepare(
    vectors, rounded, scales, gram, balance, largest, offsets, n, p, n_blocks,
    HAS_GRAM: tl.constexpr, HALF: tl.constexpr, PK: tl.constexpr, BK: tl.constexpr,
    P2: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write each candidate's offset -v'Av and the limit of its errors.

    With v = h + l, where h has the bits that a TF32 product reads, v'Av is
    (h + 2 l)'A h up to l'Al, which float32 would not see; A takes two products.
    """
    k = tl.arange(0, BK)
    unit, error_unit = _units(balance, largest, tl.arange(0, P2), PK)
    for block in range(tl.program_id(0), n_blocks, tl.num_programs(0)):
        i = block * BN + tl.arange(0, BN)
        at = i.to(tl.int64)[:, None] * PK
        offset = tl.zeros((BN,), tl.float32)
        squares = tl.zeros((BN,), tl.float32)
        lost = tl.zeros((BN,), tl.float32)
        for start in range(0, PK, BK):
            j = start + k
            v = tl.where((j < p)[None, :], tl.load(vectors + at + j[None, :]), 0.0)
            d2 = tl.load(balance + j)[None, :]
            squares += tl.sum(d2 * v * v, 1)
            if HALF:
                s = tl.load(scales + j)[None, :]
                rest = v - (v / s).to(tl.float16).to(tl.float32) * s
                lost += tl.sum(d2 * rest * rest, 1)
            if HAS_GRAM:
                product = tl.zeros((BN, BK), tl.float32)
                for begin in range(0, PK, BK):
                    c = begin + k
                    u = tl.load(vectors + at + c[None, :])
                    u = _truncate(tl.where((c < p)[None, :], u, 0.0))
                    a = tl.load(gram + c[:, None] * PK + j[None, :])
                    high = _truncate(a)
                    product = tl.dot(u, high, product, input_precision="tf32")
                    product = tl.dot(u, a - high, product, input_precision="tf32")
                offset -= tl.sum(product * (2 * v - _truncate(v)), 1)
        size = tl.sqrt(squares)
        there = i < n
        tl.store(offsets + i, tl.where(there, offset, -1e30))
        own = i.to(tl.int64) * PK + p
        tl.store(vectors + own, tl.where(there, offset, -1e30))
        tl.store(vectors + own + 1, size)
        if HALF:
            part = offset / unit
            high = tl.where(there, part, -60000.0).to(tl.float16)
            low = tl.where(there, (part - high.to(tl.float32)) * 2048, 0.0)
            error = (tl.sqrt(lost) + size * _HALF_ERROR) / error_unit
            tl.store(rounded + own, high)
            tl.store(rounded + own + 1, low.to(tl.float16))
            tl.store(rounded + own + 2, _round_up(error))


@triton.jit
def _round_up(x):
    """Round to half precision, never down."""
    return tl.maximum(x * (1.0 + 2.0**-9), 2.0**-14).to(tl.float16)


@triton.jit
def _start(
    queries, vectors, offsets, scales, balance, largest, last, plain, full_upper,
    upper, lower, unit_of, bound, count, state, b, m, p, HAS_LAST: tl.constexpr,
    HALF: tl.constexpr, PK: tl.constexpr, P2: tl.constexpr, BP: tl.constexpr,
    M2: tl.constexpr,
):  # fmt: skip
    """Lay out a row's query for the walks, and bound it by its last neighbours."""
    r = tl.program_id(0)
    j = tl.arange(0, P2)
    inside = j < PK
    q = tl.load(queries + r * p + j, mask=(j < p) & (r < b), other=0.0)
    d2 = tl.load(balance + j, mask=j < p, other=1.0)
    norm = tl.sqrt(tl.sum(q * q / d2, 0))
    tl.store(plain + r * PK + j, q, mask=inside)
    error = norm * _FULL_ERROR
    with_offset = tl.where(j == p, 1.0, q)
    row = tl.where(j == p + 1, error, with_offset)
    tl.store(full_upper + r * PK + j, row, mask=inside)
    scale = 1.0
    if HALF:
        unit, error_unit = _units(balance, largest, j, PK)
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
        tl.store(upper + r * PK + j, tl.where(j == p + 2, error, half), mask=inside)
        tl.store(lower + r * PK + j, tl.where(j == p + 2, -error, half), mask=inside)
        # A row for which half precision has not the range is bounded by nothing.
        usable = (of_offset >= 2.0**-13) & (error.to(tl.float32) < 50000.0)
        scale = tl.where(usable, scale, -1.0)
    else:
        tl.store(
            lower + r * PK + j, tl.where(j == p + 1, -error, with_offset), mask=inside
        )
    tl.store(unit_of + r, scale)
    tl.store(count + r, 0)
    least = tl.where(r < b, _LEAST_BOUND, float("inf"))
    unbounded = (r < b).to(tl.int32)
    if HAS_LAST:
        i = tl.arange(0, M2)
        ids = tl.load(last + r * m + i, mask=(i < m) & (r < b), other=-1)
        ok = ids >= 0
        if tl.sum(ok.to(tl.int32), 0) == m:
            tl.debug_barrier()  # the query is read again, by all threads
            query = plain + r * PK
            value = _exact(query, vectors, offsets, ids, ok, PK, BP, M2)
            least = tl.min(tl.where(ok, value, float("inf")), 0)
            unbounded = 0
    tl.store(bound + r, least)
    tl.store(state + r, unbounded)


@triton.jit
def _best_of_bins(
    queries, vectors, codes, low, high, state, maxima, b, n, n_tiles, n_tiles_in_all,
    HALF: tl.constexpr, PK: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr,
    BN: tl.constexpr, N_RULES: tl.constexpr, OUTSIDE: tl.constexpr,
    ENDS: tl.constexpr,
):  # fmt: skip
    """Keep the best certain score of each bin; a bin is a column of several tiles."""
    rows = tl.program_id(0) * BQ + tl.arange(0, BQ)
    if tl.max(tl.load(state + rows), 0) == 0:
        return
    q = tl.load(queries + rows[:, None] * PK + tl.arange(0, BK)[None, :])
    best = tl.full((BQ, BN), float("-inf"), tl.float32)
    first = tl.program_id(1) * n_tiles
    for t in range(first, tl.minimum(first + n_tiles, n_tiles_in_all)):
        columns = t * BN + tl.arange(0, BN)
        value = _products(queries, vectors, q, rows, columns, PK, BK, BQ, BN, HALF)
        if N_RULES:
            ok = _allowed(rows, columns, codes, low, high, b, n, N_RULES, OUTSIDE, ENDS)
            value = tl.where(ok, value, float("-inf"))
        best = tl.maximum(best, value)
    bins = tl.program_id(1) * BN + tl.arange(0, BN)
    tl.store(maxima + rows[:, None] * tl.num_programs(1) * BN + bins[None, :], best)


@triton.jit
def _bound_by_bins(maxima, unit_of, state, bound, m, n_bins, SIZE: tl.constexpr):
    """Bound a row by the m-th best of its bins, found by bisection."""
    r = tl.program_id(0)
    unit = tl.load(unit_of + r)
    if (tl.load(state + r) == 0) | (unit < 0):
        return
    i = tl.arange(0, SIZE)
    value = tl.load(maxima + r * n_bins + i, mask=i < n_bins, other=float("-inf"))
    value = _ordered(value)
    least = tl.min(value, 0).to(tl.int64)  # at least m bins reach it
    most = tl.max(value, 0).to(tl.int64) + 1  # fewer than m reach it
    while most - least > 1:
        middle = (least + most) >> 1
        reached = tl.sum((value >= middle.to(tl.int32)).to(tl.int32), 0) >= m
        least = tl.where(reached, middle, least)
        most = tl.where(reached, most, middle)
    found = _lowered(_unordered(least.to(tl.int32)) * unit)
    tl.store(bound + r, tl.maximum(found, _LEAST_BOUND))


@triton.jit
def _lowered(bound):
    """Lower a bound by what float32 sums of its size may be off."""
    return bound - tl.abs(bound) * 2.0**-19


@triton.jit
def _collect(
    queries, vectors, codes, low, high, unit_of, bound, state, count, lists,
    b, n, n_tiles, n_tiles_in_all, AGAIN: tl.constexpr, HALF: tl.constexpr,
    PK: tl.constexpr, BK: tl.constexpr, BQ: tl.constexpr, BN: tl.constexpr,
    LIST: tl.constexpr, N_RULES: tl.constexpr, OUTSIDE: tl.constexpr,
    ENDS: tl.constexpr, PORTABLE: tl.constexpr,
):  # fmt: skip
    """List the candidates whose score may reach the bound."""
    rows = tl.program_id(0) * BQ + tl.arange(0, BQ)
    least = _lowered(tl.load(bound + rows))
    if HALF:
        unit = tl.load(unit_of + rows)
        least = tl.where(unit > 0, tl.maximum(least / unit, _LEAST_BOUND), _LEAST_BOUND)
    least = tl.where(rows < b, least, float("inf"))
    if AGAIN:
        wanted = tl.load(state + rows)
        if tl.max(wanted, 0) == 0:
            return
        least = tl.where(wanted > 0, least, float("inf"))
    least = least[:, None]
    q = tl.load(queries + rows[:, None] * PK + tl.arange(0, BK)[None, :])
    counts = count + rows[:, None]
    starts = lists + rows[:, None] * LIST
    first = tl.program_id(1) * n_tiles
    for t in range(first, tl.minimum(first + n_tiles, n_tiles_in_all)):
        columns = t * BN + tl.arange(0, BN)
        value = _products(queries, vectors, q, rows, columns, PK, BK, BQ, BN, HALF)
        if N_RULES:
            ok = _allowed(rows, columns, codes, low, high, b, n, N_RULES, OUTSIDE, ENDS)
            value = tl.where(ok, value, float("-inf"))
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


@triton.jit
def _rank(
    queries, vectors, offsets, exclude, bound, state, count, lists, position, found,
    m, AGAIN: tl.constexpr, HAS_OWN: tl.constexpr, PK: tl.constexpr,
    BP: tl.constexpr, LIST: tl.constexpr,
):  # fmt: skip
    """Take the best m of a row's list; raise the bound of a row that overflowed."""
    r = tl.program_id(0)
    if AGAIN:  # noqa: SIM102 - compiled without the load otherwise
        if tl.load(state + r) == 0:
            return
    n_listed = tl.load(count + r)
    i = tl.arange(0, LIST)
    ok = i < n_listed
    ids = tl.load(lists + r * LIST + i, mask=ok, other=0)
    if HAS_OWN:
        ok = ok & (ids != tl.load(exclude + r))
    value = _exact(queries + r * PK, vectors, offsets, ids, ok, PK, BP, LIST)
    keys = tl.sort(_keys(value, ids, ok), descending=True)
    overflowed = n_listed > LIST
    if overflowed:
        worst = tl.max(tl.where(i == m - 1, keys, _LOWEST), 0)
        tl.store(bound + r, _unordered((worst >> 32).to(tl.int32)))
        tl.store(count + r, 0)
    else:
        _write(position, found, r, keys, i, m)
    tl.store(state + r, overflowed.to(tl.int32))


@triton.jit
def _search_all(
    queries, vectors, offsets, exclude, codes, low, high, state, position, found,
    b, n, m, HAS_OWN: tl.constexpr, PK: tl.constexpr, BP: tl.constexpr,
    M2: tl.constexpr, N_RULES: tl.constexpr, OUTSIDE: tl.constexpr,
    ENDS: tl.constexpr,
):  # fmt: skip
    """Search for a row that no list could hold: slow, and without limits."""
    r = tl.program_id(0)
    if tl.load(state + r) == 0:
        return
    row = r + tl.arange(0, 1)
    best = tl.full((M2,), _LOWEST, tl.int64)
    for first in range(0, n, M2):
        ids = first + tl.arange(0, M2)
        ok = tl.reshape(
            _allowed(row, ids, codes, low, high, b, n, N_RULES, OUTSIDE, ENDS), (M2,)
        )
        if HAS_OWN:
            ok = ok & (ids != tl.load(exclude + r))
        value = _exact(queries + r * PK, vectors, offsets, ids, ok, PK, BP, M2)
        keys = _keys(value, ids, ok)
        if tl.max(keys, 0) > tl.min(best, 0):
            both = tl.sort(tl.cat(best, keys, can_reorder=True), descending=True)
            best, _ = tl.split(tl.permute(tl.reshape(both, (2, M2)), (1, 0)))
    _write(position, found, r, best, tl.arange(0, M2), m)

"""Kernels that lay candidates and queries out for the walks of `walk_triton`.

A walk may use half precision. A score then comes with a rigorous limit of its error, so
that no candidate is missed: rounding moves <q, v> by at most

    |q / D| |D (v - v')| + |D v| |(q - q') / D|,    for any positive diagonal D.

The offset of a candidate and this limit are products of a number of the row and one of
the candidate: they are further columns of the product, so that a walk does nothing with
a score but compare it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tabr.search.rank_triton import exact_scores

LEAST_BOUND = tl.constexpr(-1e29)  # a candidate that may not be taken scores less
_HALF_ERROR = tl.constexpr(2.0**-11 + 2.0**-18)  # of rounding and of summing up
_FULL_ERROR = tl.constexpr(2.0**-18)


@triton.jit
def _truncate(x):
    """Return numbers without the bits that a TF32 product does not read."""
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _round_up(x):
    """Return numbers in half precision, never rounded down."""
    return tl.maximum(x * (1.0 + 2.0**-9), 2.0**-14).to(tl.float16)


@triton.jit
def _power_of_two(x):
    """Return a power of two above x: dividing by it rounds nothing."""
    exponent = (x.to(tl.int32, bitcast=True) >> 23) + 1
    return (exponent << 23).to(tl.float32, bitcast=True)


@triton.jit
def _balance(gram, j, p, P2: tl.constexpr, HAS_GRAM: tl.constexpr):
    """Return the squares of D, which are the metric's scales of columns; 0 beyond p."""
    if HAS_GRAM:
        k = tl.arange(0, P2)
        most = tl.max(tl.load(gram + k * (p + 1), mask=k < p, other=0.0), 0)
        d2 = tl.load(gram + j * (p + 1), mask=j < p, other=0.0)
        return tl.where(j < p, tl.maximum(d2, most * 1e-12 + 1e-30), 0.0)
    else:
        return tl.where(j < p, 1.0, 0.0)


@triton.jit
def _units(
    gram, mean_abs, p, PK: tl.constexpr, P2: tl.constexpr, HAS_GRAM: tl.constexpr
):
    """Return units of offsets and of errors that suit half precision.

    Offsets far beyond the unit lose precision, which their limits account for.
    """
    j = tl.arange(0, P2)
    d2 = _balance(gram, j, p, P2, HAS_GRAM)
    size = tl.load(mean_abs + j, mask=j < PK, other=0.0)
    reach = tl.sum(tl.sqrt(d2) * size, 0)
    return (
        _power_of_two(reach * reach + 1e-30),
        _power_of_two(tl.sqrt(tl.sum(d2 * size * size, 0)) * 2.0**-10 + 1e-30),
    )


@triton.jit
def _scaled_gram(gram, scales, rows, columns, p, unit):
    """Return a block of the metric of scaled columns, as two float16 parts."""
    inside = (rows < p)[:, None] & (columns < p)[None, :]
    at = rows[:, None] * p + columns[None, :]
    whole = tl.load(gram + at, mask=inside, other=0.0) / unit
    whole = whole * tl.load(scales + rows)[:, None] * tl.load(scales + columns)[None, :]
    high = whole.to(tl.float16)
    return high, ((whole - high.to(tl.float32)) * 2048).to(tl.float16)


@triton.jit(do_not_specialize=["n", "p", "n_blocks"])
def prepare(
    vectors, rounded, scales, gram, mean_abs, offsets, n, p, n_blocks,
    HAS_GRAM: tl.constexpr, HALF: tl.constexpr, PK: tl.constexpr,
    MAIN: tl.constexpr, BK: tl.constexpr, P2: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write each candidate's offset -v'Av and the limit of its errors.

    With v = h + l, where h is what a product reads of it, v'Av is (h + 2 l)'A h up to
    l'Al, which float32 hardly sees; A takes two products.
    """
    k = tl.arange(0, BK)
    unit, error_unit = _units(gram, mean_abs, p, PK, P2, HAS_GRAM)
    gram_unit = 1.0
    if HAS_GRAM and HALF:  # no number of the scaled metric is larger
        columns = tl.arange(0, P2)
        d2 = _balance(gram, columns, p, P2, HAS_GRAM)
        all_scales = tl.load(scales + columns, mask=columns < PK, other=0.0)
        gram_unit = _power_of_two(2 * tl.max(d2 * all_scales * all_scales, 0) + 1e-30)
    if MAIN == BK:  # the same for all blocks
        s = tl.load(scales + k)
        inverse = 1.0 / s
        weight = (_balance(gram, k, p, P2, HAS_GRAM) * s * s)[None, :]
        if HAS_GRAM and HALF:
            high, low = _scaled_gram(gram, scales, k, k, p, gram_unit)
        elif HAS_GRAM:
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
            if MAIN != BK:
                s = tl.load(scales + j)
                inverse = 1.0 / s
                weight = (_balance(gram, j, p, P2, HAS_GRAM) * s * s)[None, :]
            v = _scaled(vectors, inverse, at, j, p)
            squares += tl.sum(weight * v * v, 1)
            if HALF:
                read = v.to(tl.float16)
                seen = read.to(tl.float32)
                lost += tl.sum(weight * (v - seen) * (v - seen), 1)
            else:
                read = _truncate(v)
                seen = read
            if HAS_GRAM:
                product = tl.zeros((BN, BK), tl.float32)
                if not HALF:
                    product = tl.dot(read, low, product, input_precision="tf32")
                    product = tl.dot(read, high, product, input_precision="tf32")
                elif MAIN == BK:
                    product = tl.dot(read, low, product) * (1 / 2048)
                    product = tl.dot(read, high, product)
                else:
                    rest = tl.zeros((BN, BK), tl.float32)
                    for begin in range(0, MAIN, BK):
                        c = begin + k
                        u = _scaled(vectors, 1.0 / tl.load(scales + c), at, c, p)
                        high, low = _scaled_gram(gram, scales, c, j, p, gram_unit)
                        rest = tl.dot(u.to(tl.float16), low, rest)
                        product = tl.dot(u.to(tl.float16), high, product)
                    product += rest * (1 / 2048)
                offset -= tl.sum(product * (2 * v - seen), 1)
        offset = offset * gram_unit
        size = tl.sqrt(squares)
        valid = i < n
        tl.store(offsets + i, tl.where(valid, offset, -1e30))
        extra = i.to(tl.int64) * PK + p
        tl.store(vectors + extra, tl.where(valid, offset, -1e30))
        tl.store(vectors + extra + 1, size)
        if HALF:
            part = tl.where(valid, offset / unit, -60000.0)
            first = tl.maximum(part, -60000.0).to(tl.float16)
            rest_of = part - first.to(tl.float32)
            second = tl.maximum(rest_of * 2048, -60000.0).to(tl.float16)
            missed = tl.abs(rest_of - second.to(tl.float32) / 2048) * 1024
            error = (tl.sqrt(lost) + size * _HALF_ERROR) / error_unit
            tl.store(rounded + extra, first)
            tl.store(rounded + extra + 1, second)
            tl.store(rounded + extra + 2, _round_up(error))
            tl.store(rounded + extra + 3, _round_up(missed))


@triton.jit
def _scaled(vectors, inverse, at, j, p):
    """Return columns j of candidates, times the inverse of their scales."""
    v = tl.where((j < p)[None, :], tl.load(vectors + at + j[None, :]), 0.0)
    return v * inverse[None, :]


@triton.jit(do_not_specialize=["b", "m", "p"])
def start(
    queries, vectors, offsets, scales, gram, mean_abs, last, padded, full_upper,
    full_lower, upper, lower, row_units, bound, count, loose, state, order, b,
    m, p,
    HAS_LAST: tl.constexpr, HAS_GRAM: tl.constexpr, HALF: tl.constexpr,
    PK: tl.constexpr, MAIN: tl.constexpr, P2: tl.constexpr, BP: tl.constexpr,
    M2: tl.constexpr,
):  # fmt: skip
    """Lay a row's query out for the walks, and bound the row by its last neighbours."""
    r = tl.program_id(0)
    j = tl.arange(0, P2)
    inside = j < PK
    q = tl.load(queries + r * p + j, mask=(j < p) & (r < b), other=0.0)
    d2 = tl.where(j < p, _balance(gram, j, p, P2, HAS_GRAM), 1.0)
    norm = tl.sqrt(tl.sum(q * q / d2, 0))
    tl.store(padded + r * PK + j, q, mask=inside)
    error = norm * _FULL_ERROR
    with_offset = tl.where(j == p, 1.0, q)
    is_limit = j == p + 1
    row = tl.where(is_limit, error, with_offset)
    tl.store(full_upper + r * PK + j, row, mask=inside)
    row = tl.where(is_limit, -error, with_offset)
    tl.store(full_lower + r * PK + j, row, mask=inside)
    exists = (r < b).to(tl.int32)
    row_state = exists
    if HALF:
        unit, error_unit = _units(gram, mean_abs, p, PK, P2, HAS_GRAM)
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
        usable = (of_offset >= 2.0**-13) & (error.to(tl.float32) < 50000.0)
        row_state = tl.where(usable, exists, 2 * exists)  # else half lacks the range
        tl.store(row_units + r, scale)
    tl.store(count + r, 0)
    tl.store(order + r, r)
    tl.store(state + r, row_state)
    least = tl.where(r < b, LEAST_BOUND, 0.0)
    is_loose = exists
    if HAS_LAST:
        i = tl.arange(0, M2)
        ids = tl.load(last + r * m + i, mask=(i < m) & (r < b), other=-1)
        ok = ids >= 0
        if tl.sum(ok.to(tl.int32), 0) == m:
            tl.debug_barrier()  # the query is read again, by all threads
            query = padded + r * PK
            value = exact_scores(query, vectors, offsets, ids, ok, PK, MAIN, BP, M2)
            least = tl.min(tl.where(ok, value, float("inf")), 0)
            is_loose = 0
    tl.store(bound + r, least)
    tl.store(loose + r, is_loose)

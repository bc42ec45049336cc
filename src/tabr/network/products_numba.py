"""The products of `products` in loops that numba compiles.

Nothing here may be reordered or fused, unlike in other loops: so a number is the same
whatever the compiler makes of a loop, and wherever in it a row stands.
"""

from __future__ import annotations

import numpy as np

from tabr.device.compiled import exactly_compiled, written_in
from tabr.device.tiles_numba import FOUR, TILE
from tabr.network.activations_numba import four_weights


@written_in
def _make(z, x0, x1, x2, x3, w, c, t, n, passes):
    """Write units t..t + n of c + x w for four rows (k,) into z (FOUR,).

    Four zeros of four rows may be passed by, as they change no sum.
    """
    k = len(x0)
    for j in range(n):
        z[j] = z[TILE + j] = z[2 * TILE + j] = z[3 * TILE + j] = c[t + j]
    for q in range(0, k - 3, 4):
        a0, a1, a2, a3 = x0[q], x0[q + 1], x0[q + 2], x0[q + 3]
        b0, b1, b2, b3 = x1[q], x1[q + 1], x1[q + 2], x1[q + 3]
        d0, d1, d2, d3 = x2[q], x2[q + 1], x2[q + 2], x2[q + 3]
        e0, e1, e2, e3 = x3[q], x3[q + 1], x3[q + 2], x3[q + 3]
        some = not passes
        if passes:
            some |= (a0 != 0) | (a1 != 0) | (a2 != 0) | (a3 != 0)
            some |= (b0 != 0) | (b1 != 0) | (b2 != 0) | (b3 != 0)
            some |= (d0 != 0) | (d1 != 0) | (d2 != 0) | (d3 != 0)
            some |= (e0 != 0) | (e1 != 0) | (e2 != 0) | (e3 != 0)
        if some:
            w0, w1 = w[q, t : t + n], w[q + 1, t : t + n]
            w2, w3 = w[q + 2, t : t + n], w[q + 3, t : t + n]
            for j in range(n):
                u0, u1, u2, u3 = w0[j], w1[j], w2[j], w3[j]
                z0, z1, z2, z3 = z[j], z[TILE + j], z[2 * TILE + j], z[3 * TILE + j]
                z[j] = z0 + a0 * u0 + a1 * u1 + a2 * u2 + a3 * u3
                z[TILE + j] = z1 + b0 * u0 + b1 * u1 + b2 * u2 + b3 * u3
                z[2 * TILE + j] = z2 + d0 * u0 + d1 * u1 + d2 * u2 + d3 * u3
                z[3 * TILE + j] = z3 + e0 * u0 + e1 * u1 + e2 * u2 + e3 * u3
    for q in range(k // 4 * 4, k):
        a0, b0, d0, e0 = x0[q], x1[q], x2[q], x3[q]
        w0 = w[q, t : t + n]
        for j in range(n):
            z[j] += a0 * w0[j]
            z[TILE + j] += b0 * w0[j]
            z[2 * TILE + j] += d0 * w0[j]
            z[3 * TILE + j] += e0 * w0[j]


@exactly_compiled
def multiply(x, w, c, out, passes, first, last):
    """Write c + x w for rows first..last of each group, four at a time.

    Shapes: x (g, n, k), w (g, k, h), c (h,), out (g, n, h).
    """
    h, z, end = w.shape[2], np.empty(FOUR, x.dtype), last - 1
    for g in range(len(x)):
        for t in range(0, h, TILE):
            n = min(TILE, h - t)
            for i in range(first, last, 4):
                x0, x1 = x[g, i], x[g, min(i + 1, end)]
                x2, x3 = x[g, min(i + 2, end)], x[g, min(i + 3, end)]
                if n == TILE:  # loops of a constant length are unrolled
                    _make(z, x0, x1, x2, x3, w[g], c, t, TILE, passes)
                else:
                    _make(z, x0, x1, x2, x3, w[g], c, t, n, passes)
                for r in range(min(4, last - i)):
                    out[g, i + r, t : t + n] = z[r * TILE : r * TILE + n]


@exactly_compiled
def weigh_hidden(x, weights, w, c, out, passes, first, last):
    """Write the sums of ReLU(c + x w) by weights, for rows first..last.

    Shapes: x (b, m, p), weights (b, m), w (p, h), c (h,), out (b, h).
    """
    h, z, end = w.shape[1], np.empty(FOUR, x.dtype), x.shape[1] - 1
    zero = x.dtype.type(0)
    for t in range(0, h, TILE):
        n = min(TILE, h - t)
        for i in range(first, last):
            sums = out[i, t : t + n]
            sums[:] = 0
            for k in range(0, end + 1, 4):
                w0, w1, w2, w3 = four_weights(weights[i], k, end)
                if w0 == 0 and w1 == 0 and w2 == 0 and w3 == 0:
                    continue
                x0, x1 = x[i, k], x[i, min(k + 1, end)]
                x2, x3 = x[i, min(k + 2, end)], x[i, min(k + 3, end)]
                if n == TILE:
                    _make(z, x0, x1, x2, x3, w, c, t, TILE, passes)
                else:
                    _make(z, x0, x1, x2, x3, w, c, t, n, passes)
                for j in range(n):
                    z0, z1, z2, z3 = z[j], z[TILE + j], z[2 * TILE + j], z[3 * TILE + j]
                    z0, z1 = max(z0, zero), max(z1, zero)
                    z2, z3 = max(z2, zero), max(z3, zero)
                    sums[j] = sums[j] + w0 * z0 + w1 * z1 + w2 * z2 + w3 * z3


@exactly_compiled
def inner(a, b, out):
    """Write the inner products of rows a and b (n, p), four sums side by side."""
    p = a.shape[1]
    for i in range(len(a)):
        s0 = s1 = s2 = s3 = 0.0
        for q in range(0, p - 3, 4):
            s0 += a[i, q] * b[i, q]
            s1 += a[i, q + 1] * b[i, q + 1]
            s2 += a[i, q + 2] * b[i, q + 2]
            s3 += a[i, q + 3] * b[i, q + 3]
        for q in range(p // 4 * 4, p):
            s0 += a[i, q] * b[i, q]
        out[i] = (s0 + s1) + (s2 + s3)


@exactly_compiled
def weigh(weights, values, out):
    """Write the sums (b, k) of values (b, m, k) by their weights (b, m)."""
    out[:] = 0
    for i in range(len(values)):
        for j in range(values.shape[1]):
            for q in range(values.shape[2]):
                out[i, q] += weights[i, j] * values[i, j, q]


@exactly_compiled
def share(parts, found, out):
    """Write the shares of what is found in the sums of rows of parts (b, m)."""
    for i in range(len(parts)):
        total = 0.0
        for j in range(parts.shape[1]):
            if found[i, j]:
                total += parts[i, j]
        for j in range(parts.shape[1]):
            out[i, j] = parts[i, j] / total if found[i, j] else 0.0

"""The products of `products` in loops that numba compiles.

Nothing here may be reordered, or fused but where it says so, unlike in other loops: so
a number is the same whatever the compiler makes of a loop, and wherever in it a row
stands. Each sum takes its terms one after the other, so that zeros among them, which
change nothing, may be passed by or not.
"""

from __future__ import annotations

import numpy as np

from tabr.device.compiled import exactly_compiled
from tabr.device.tiles_numba import multiply_add
from tabr.network.activations_numba import four_weights

_TILE = 144  # units side by side; a constant, so that loops over them are unrolled
_FOUR = 4 * _TILE
_LANES = 32  # pairs side by side, likewise
_ROWS = 32  # that read a tile of weights one after the other


@exactly_compiled
def _list(x, columns, values, counts):
    """Write in which columns four rows of x (n, k) each are not all zero, and how.

    Zeros change no sum. Columns are filled up to a multiple of four, by zeros. Shapes:
    columns (fours, k + 3), values (fours, k + 3, 4), counts (fours,).
    """
    end = len(x) - 1
    for g in range((end + 4) // 4):
        i, a, at, of = 4 * g, 0, columns[g], values[g]
        x0, x1 = x[i], x[min(i + 1, end)]
        x2, x3 = x[min(i + 2, end)], x[min(i + 3, end)]
        for q in range(x.shape[1]):
            at[a] = q
            of[a, 0], of[a, 1], of[a, 2], of[a, 3] = x0[q], x1[q], x2[q], x3[q]
            a += (x0[q] != 0) | (x1[q] != 0) | (x2[q] != 0) | (x3[q] != 0)
        while a % 4:
            at[a] = 0
            of[a, 0] = of[a, 1] = of[a, 2] = of[a, 3] = 0
            a += 1
        counts[g] = a


@exactly_compiled
def _make_tile(z, columns, values, w, c, t):
    """Write a tile of c + x w from unit t on, for four listed rows, into z (_FOUR,)."""
    for j in range(_TILE):
        z[j] = z[_TILE + j] = z[2 * _TILE + j] = z[3 * _TILE + j] = c[t + j]
    for q in range(0, len(columns), 4):
        q1, q2, q3 = q + 1, q + 2, q + 3
        a0, b0, d0, e0 = values[q, 0], values[q, 1], values[q, 2], values[q, 3]
        a1, b1, d1, e1 = values[q1, 0], values[q1, 1], values[q1, 2], values[q1, 3]
        a2, b2, d2, e2 = values[q2, 0], values[q2, 1], values[q2, 2], values[q2, 3]
        a3, b3, d3, e3 = values[q3, 0], values[q3, 1], values[q3, 2], values[q3, 3]
        w0, w1 = w[columns[q], t : t + _TILE], w[columns[q1], t : t + _TILE]
        w2, w3 = w[columns[q2], t : t + _TILE], w[columns[q3], t : t + _TILE]
        for j in range(_TILE):
            u0, u1, u2, u3 = w0[j], w1[j], w2[j], w3[j]
            z0, z1 = z[j], z[_TILE + j]
            z2, z3 = z[2 * _TILE + j], z[3 * _TILE + j]
            z0 = multiply_add(a1, u1, multiply_add(a0, u0, z0))
            z1 = multiply_add(b1, u1, multiply_add(b0, u0, z1))
            z2 = multiply_add(d1, u1, multiply_add(d0, u0, z2))
            z3 = multiply_add(e1, u1, multiply_add(e0, u0, z3))
            z[j] = multiply_add(a3, u3, multiply_add(a2, u2, z0))
            z[_TILE + j] = multiply_add(b3, u3, multiply_add(b2, u2, z1))
            z[2 * _TILE + j] = multiply_add(d3, u3, multiply_add(d2, u2, z2))
            z[3 * _TILE + j] = multiply_add(e3, u3, multiply_add(e2, u2, z3))


@exactly_compiled
def _make_few(z, columns, values, w, c):
    """Write all units of c + x w, fewer than a tile, likewise."""
    for r in range(4):
        own = z[r * _TILE : r * _TILE + len(c)]
        for j in range(len(c)):
            own[j] = c[j]
        for q in range(len(columns)):
            a, u = values[q, r], w[columns[q]]
            for j in range(len(c)):
                own[j] = multiply_add(a, u[j], own[j])


@exactly_compiled
def multiply(x, w, c, out, first, last):
    """Write c + x w for rows first..last of each group, four at a time.

    Shapes: x (g, n, k), w (g, k, h), c (h,), out (g, n, h).
    """
    h, k, z = w.shape[2], x.shape[2], np.empty(_FOUR, x.dtype)
    n_fours = (min(_ROWS, last - first) + 3) // 4
    columns = np.empty((n_fours, k + 3), np.int64)
    values, counts = np.empty((n_fours, k + 3, 4), x.dtype), np.empty(n_fours, np.int64)
    for g in range(len(x)):
        for top in range(first, last, _ROWS):
            bottom = min(top + _ROWS, last)
            _list(x[g, top:bottom], columns, values, counts)
            for start in range(0, h, _TILE):
                # The last tile reaches back, so that it is as wide as others.
                t = max(0, min(start, h - _TILE))
                for i in range(top, bottom, 4):
                    four = (i - top) // 4
                    at, of = columns[four, : counts[four]], values[four]
                    if h >= _TILE:
                        _make_tile(z, at, of, w[g], c, t)
                    else:
                        _make_few(z, at, of, w[g], c)
                    n = min(_TILE, h)
                    for r in range(min(4, bottom - i)):
                        for j in range(n):
                            out[g, i + r, t + j] = z[r * _TILE + j]


@exactly_compiled
def weigh_hidden(x, weights, w, c, out, first, last):
    """Write the sums of ReLU(c + x w) by weights, for rows first..last.

    Shapes: x (b, m, p), weights (b, m), w (p, h), c (h,), out (b, h).
    """
    (p, h), z, m = w.shape, np.empty(_FOUR, x.dtype), x.shape[1]
    n_fours, zero = (m + 3) // 4, x.dtype.type(0)
    columns = np.empty((n_fours, p + 3), np.int64)
    values, counts = np.empty((n_fours, p + 3, 4), x.dtype), np.empty(n_fours, np.int64)
    for i in range(first, last):
        _list(x[i], columns, values, counts)
        for start in range(0, h, _TILE):
            t = max(0, min(start, h - _TILE))
            n = min(_TILE, h)
            sums = out[i, t : t + n]
            for j in range(n):
                sums[j] = 0
            for four in range(n_fours):
                w0, w1, w2, w3 = four_weights(weights[i], 4 * four, m - 1)
                if w0 == 0 and w1 == 0 and w2 == 0 and w3 == 0:
                    continue
                at, of = columns[four, : counts[four]], values[four]
                if h >= _TILE:
                    _make_tile(z, at, of, w, c, t)
                else:
                    _make_few(z, at, of, w, c)
                for j in range(n):
                    z0, z1 = max(z[j], zero), max(z[_TILE + j], zero)
                    z2 = max(z[2 * _TILE + j], zero)
                    z3 = max(z[3 * _TILE + j], zero)
                    total = multiply_add(w1, z1, multiply_add(w0, z0, sums[j]))
                    sums[j] = multiply_add(w3, z3, multiply_add(w2, z2, total))


@exactly_compiled
def _subtract(rows, differ, d, columns, x, points, positions):
    """Write x - points (n, p) at positions (k,), where somebody differs from x.

    Columns lie one after the other, each with its pairs side by side. It writes which,
    and returns how many there are, filled up to a multiple of four by zeros. Shapes:
    rows (_LANES, p) and differ (p,), d ((p + 3) * _LANES,), columns (p + 3,).
    """
    last = len(positions) - 1
    for q in range(len(x)):
        differ[q] = 0
    for r in range(_LANES):
        own, other = rows[r], points[positions[min(r, last)]]
        for q in range(len(x)):
            own[q] = x[q] - other[q]
            differ[q] += own[q] != 0
    n = 0
    for q in range(len(x)):
        if differ[q]:
            for r in range(_LANES):
                d[n * _LANES + r] = rows[r, q]
            columns[n] = q
            n += 1
    while n % 4:
        for r in range(_LANES):
            d[n * _LANES + r] = 0
        columns[n] = 0
        n += 1
    return n


@exactly_compiled
def measure(x, points, positions, gram, out, first, last):
    """Write d' gram d of differences of rows first..last, each pair in a lane.

    Shapes: x (b, p), points (n, p) at positions (b, k), gram (p, p), whose lower
    triangle is zero, out (b, k).
    """
    k, p = positions.shape[1], len(gram)
    d, columns = np.empty((p + 3) * _LANES, x.dtype), np.empty(p + 3, np.int64)
    z, s = np.empty(4 * _LANES, x.dtype), np.empty(_LANES, x.dtype)
    rows, differ = np.empty((_LANES, p), x.dtype), np.empty(p, np.int64)
    for i in range(first, last):
        for start in range(0, k, _LANES):
            end = min(start + _LANES, k)
            at = positions[i, start:end]
            n = _subtract(rows, differ, d, columns, x[i], points, at)
            for j in range(_LANES):
                s[j] = 0
            for t in range(0, n, 4):
                for j in range(4 * _LANES):
                    z[j] = 0
                g0, g1 = columns[t], columns[t + 1]
                g2, g3 = columns[t + 2], columns[t + 3]
                for q in range(0, t + 4, 4):
                    a, b = gram[columns[q]], gram[columns[q + 1]]
                    e, f = gram[columns[q + 2]], gram[columns[q + 3]]
                    a0, a1, a2, a3 = a[g0], a[g1], a[g2], a[g3]
                    b0, b1, b2, b3 = b[g0], b[g1], b[g2], b[g3]
                    e0, e1, e2, e3 = e[g0], e[g1], e[g2], e[g3]
                    f0, f1, f2, f3 = f[g0], f[g1], f[g2], f[g3]
                    u = d[q * _LANES : (q + 4) * _LANES]
                    for j in range(_LANES):
                        u0, u1 = u[j], u[_LANES + j]
                        u2, u3 = u[2 * _LANES + j], u[3 * _LANES + j]
                        z0, z1 = z[j], z[_LANES + j]
                        z2, z3 = z[2 * _LANES + j], z[3 * _LANES + j]
                        z0 = multiply_add(b0, u1, multiply_add(a0, u0, z0))
                        z1 = multiply_add(b1, u1, multiply_add(a1, u0, z1))
                        z2 = multiply_add(b2, u1, multiply_add(a2, u0, z2))
                        z3 = multiply_add(b3, u1, multiply_add(a3, u0, z3))
                        z[j] = multiply_add(f0, u3, multiply_add(e0, u2, z0))
                        z[_LANES + j] = multiply_add(f1, u3, multiply_add(e1, u2, z1))
                        z2 = multiply_add(f2, u3, multiply_add(e2, u2, z2))
                        z3 = multiply_add(f3, u3, multiply_add(e3, u2, z3))
                        z[2 * _LANES + j], z[3 * _LANES + j] = z2, z3
                u = d[t * _LANES : (t + 4) * _LANES]
                for j in range(_LANES):
                    u0, u1 = u[j], u[_LANES + j]
                    u2, u3 = u[2 * _LANES + j], u[3 * _LANES + j]
                    z0, z1 = z[j], z[_LANES + j]
                    z2, z3 = z[2 * _LANES + j], z[3 * _LANES + j]
                    total = multiply_add(u1, z1, multiply_add(u0, z0, s[j]))
                    s[j] = multiply_add(u3, z3, multiply_add(u2, z2, total))
            for j in range(end - start):
                out[i, start + j] = s[j]


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

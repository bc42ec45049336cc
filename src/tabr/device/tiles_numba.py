"""Products that fill a tile in a core's first cache.

Who is compiled with them keeps a copy on disk that does not see a change of this file:
then delete the `*.nbi` files in its `__pycache__`.
"""

from __future__ import annotations

from typing import Any

from numba.extending import intrinsic

from tabr.device.compiled import compiled

TILE = 192  # a constant, so that loops over a tile are unrolled
FOUR = 4 * TILE


def _multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c, rounded once where processors can, and else twice.

    A compiler may not choose between the two, unlike with `contract`: so it is the same
    in the body of an unrolled loop and in what is left of it.
    """

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        triple, _, features = context.codegen().magic_tuple()
        if triple.startswith(("aarch64", "arm64")) or "+fma" in features.split(","):
            return builder.fma(*arguments)
        return builder.fadd(builder.fmul(*arguments[:2]), arguments[2])

    return c(a, b, c), build


multiply_add: Any = intrinsic(_multiply_add)


@compiled
def multiply(z, d0, d1, d2, d3, v, c):
    """Write c + d v for four rows d (p,) into z (FOUR,): v (p * TILE), c (TILE)."""
    p = len(d0)
    for j in range(TILE):
        z[j] = c[j]
        z[TILE + j] = c[j]
        z[2 * TILE + j] = c[j]
        z[3 * TILE + j] = c[j]
    for q in range(0, p - 3, 4):
        a0, a1, a2, a3 = d0[q], d0[q + 1], d0[q + 2], d0[q + 3]
        b0, b1, b2, b3 = d1[q], d1[q + 1], d1[q + 2], d1[q + 3]
        e0, e1, e2, e3 = d2[q], d2[q + 1], d2[q + 2], d2[q + 3]
        f0, f1, f2, f3 = d3[q], d3[q + 1], d3[q + 2], d3[q + 3]
        u = v[q * TILE : (q + 4) * TILE]
        for j in range(TILE):
            u0, u1, u2, u3 = u[j], u[TILE + j], u[2 * TILE + j], u[3 * TILE + j]
            z[j] += a0 * u0 + a1 * u1 + a2 * u2 + a3 * u3
            z[TILE + j] += b0 * u0 + b1 * u1 + b2 * u2 + b3 * u3
            z[2 * TILE + j] += e0 * u0 + e1 * u1 + e2 * u2 + e3 * u3
            z[3 * TILE + j] += f0 * u0 + f1 * u1 + f2 * u2 + f3 * u3
    for q in range(p // 4 * 4, p):
        a0, b0, e0, f0 = d0[q], d1[q], d2[q], d3[q]
        u = v[q * TILE : (q + 1) * TILE]
        for j in range(TILE):
            z[j] += a0 * u[j]
            z[TILE + j] += b0 * u[j]
            z[2 * TILE + j] += e0 * u[j]
            z[3 * TILE + j] += f0 * u[j]

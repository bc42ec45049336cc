"""Activations of T on CPUs: who is summed, who is dropped, loops over a tile of them.

A tile of units is made for four neighbours at a time. Whether an activation is dropped
is a hash of the seed, the pair of row and neighbour, and the unit, so that the forward
and the backward pass see the same.

A neighbour whose weight is zero adds nothing, and loops pass it by: dropout of weights
spares them two in five. Its weight gets no gradient; it had none before the dropout.

Who is compiled with these loops keeps a copy on disk that does not see a change of this
file: then delete the `*.nbi` files in its `__pycache__`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tabr.device.compiled import compiled
from tabr.device.tiles_numba import FOUR, TILE

_HALF = TILE // 2
_STRIDE = np.uint32(0x9E3779B1)  # of the hash from unit to unit
_LOW = np.uint32(0xFFFF)


class Pairs(NamedTuple):
    """The n pairs of a row and a neighbour whose weight is not zero, row by row.

    Attributes:
        weights: Their weights (n,).
        places: Their numbers (n,) among all pairs: row * m + neighbour.
        starts: Where each row's pairs begin, and where the last one's end (b + 1,).
    """

    weights: Tensor
    places: Tensor
    starts: Tensor

    @classmethod
    def of(cls, w: Tensor) -> Pairs:
        """Return those of weights (b, m); what is no number is not zero."""
        b, m = w.shape
        places = w.flatten().nonzero().squeeze(1)
        starts = torch.searchsorted(places, torch.arange(b + 1) * m)
        return cls(w.flatten()[places], places, starts)

    def taken(self, of_all: Tensor) -> Tensor:
        """Return what belongs to these pairs (n, ...), of all of them (b, m, ...)."""
        flat = of_all.flatten(0, 1)
        return flat if len(flat) == len(self.places) else flat[self.places]

    def spread(self, of_these: Tensor, b: int, m: int) -> Tensor:
        """Return (b, m, ...) from what belongs to these pairs; zero for all others."""
        whole = of_these
        if len(of_these) < b * m:
            whole = of_these.new_zeros(b * m, *of_these.shape[1:])
            whole.index_copy_(0, self.places, of_these)
        return whole.view(b, m, *of_these.shape[1:])


class Drop(NamedTuple):
    """What decides who is dropped: sixteen bits of a hash below the threshold.

    So the rate is exact to 2 ** -16. All others are multiplied by `scale`.
    """

    seed: Any
    threshold: int
    scale: float

    @classmethod
    def drawn(cls, dropout: float) -> Drop:
        """Return one of that rate; torch's generator draws the seed."""
        seed = int(torch.randint(2**62, ())) if dropout > 0 else 0
        threshold = min(round(dropout * 2**16), 2**16 - 1)
        return cls(np.uint64(seed), threshold, 1 / (1 - dropout))

    def buffer(self, like: Tensor) -> Tensor:
        """Return room for one thread's loops; torch's begins where a cache line does.

        It is for four neighbours' activations, their factors, a tile of sums and one
        of gradients. Without dropout nobody writes the factors.
        """
        return like.new_full((10 * TILE,), self.scale)


def in_tiles(x: Tensor) -> Tensor:
    """Return (..., h) as (..., n, TILE); zeros, which change no sum, fill the last."""
    filled = F.pad(x, (0, -x.shape[-1] % TILE))
    tiles: Tensor = filled.unflatten(-1, (-1, TILE))
    return tiles


def units(tiles: Tensor, h: int) -> Tensor:
    """Return the h units (..., h) of tiles (..., n, TILE)."""
    return tiles.flatten(-2)[..., :h].contiguous()


def totals(parts: list[tuple[Tensor, ...]]) -> list[Tensor]:
    """Return the sums of what threads made, in their order."""
    return [
        part[0] if len(part) == 1 else torch.stack(part).sum(0)
        for part in zip(*parts, strict=True)
    ]


def as_arrays(*tensors: Tensor) -> list[Any]:
    """Return tensors as arrays that loops read number by number."""
    return [x.contiguous().numpy() for x in tensors]


def ends(rows: range) -> tuple[int, int]:
    """Return the first row, and the one behind the last."""
    return rows.start, rows.stop


# --- loops: each index is shown to lie within, else numba's look at it hides the loop
# --- from the compiler, and single numbers are read one by one


@compiled
def rooms(buffer):
    """Return room for activations, for factors, for sums and for one tile more."""
    sums = 2 * FOUR
    more = sums + TILE
    return buffer[:FOUR], buffer[FOUR:sums], buffer[sums:more], buffer[more:]


@compiled
def _key(seed, pair):
    """Return 32 random bits for a pair of row and neighbour."""
    x = seed + np.uint64(pair) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint32(x >> np.uint64(32))


@compiled
def _mixed(x):
    """Return 32 bits, each of which depends on all bits of x."""
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x7FEB352D))
    x = np.uint32(x ^ (x >> np.uint32(15)))
    x = np.uint32(x * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))


@compiled
def draw_factors(factors, seed, places, k, last, t, threshold, scale):
    """Write the factors of tile t for four pairs from k on, up to the last one.

    One hash serves two units, which lie half a tile apart.
    """
    low, high = np.uint32(threshold), np.uint32(threshold << 16)
    zero = factors.dtype.type(0)
    start = np.uint32(np.uint32(t * _HALF) * _STRIDE)
    key0 = np.uint32(_key(seed, places[k]) + start)
    key1 = np.uint32(_key(seed, places[min(k + 1, last)]) + start)
    key2 = np.uint32(_key(seed, places[min(k + 2, last)]) + start)
    key3 = np.uint32(_key(seed, places[min(k + 3, last)]) + start)
    for j in range(_HALF):
        unit = np.uint32(np.uint32(j) * _STRIDE)
        x0 = _mixed(np.uint32(unit + key0))
        x1 = _mixed(np.uint32(unit + key1))
        x2 = _mixed(np.uint32(unit + key2))
        x3 = _mixed(np.uint32(unit + key3))
        factors[j] = scale if x0 >= high else zero
        factors[TILE + j] = scale if x1 >= high else zero
        factors[2 * TILE + j] = scale if x2 >= high else zero
        factors[3 * TILE + j] = scale if x3 >= high else zero
        factors[_HALF + j] = scale if np.uint32(x0 & _LOW) >= low else zero
        factors[TILE + _HALF + j] = scale if np.uint32(x1 & _LOW) >= low else zero
        factors[2 * TILE + _HALF + j] = scale if np.uint32(x2 & _LOW) >= low else zero
        factors[3 * TILE + _HALF + j] = scale if np.uint32(x3 & _LOW) >= low else zero


@compiled
def weigh(z, factors, sums, w):
    """Add to the sums of a tile what four neighbours of weights w give it."""
    zero = z.dtype.type(0)
    w0, w1, w2, w3 = w
    for j in range(TILE):
        z0, z1, z2, z3 = z[j], z[TILE + j], z[2 * TILE + j], z[3 * TILE + j]
        z0 = zero if z0 <= zero else z0 * factors[j]
        z1 = zero if z1 <= zero else z1 * factors[TILE + j]
        z2 = zero if z2 <= zero else z2 * factors[2 * TILE + j]
        z3 = zero if z3 <= zero else z3 * factors[3 * TILE + j]
        sums[j] += w0 * z0 + w1 * z1 + w2 * z2 + w3 * z3


@compiled
def turn(z, factors, g, sums, w):
    """Turn z into its gradient, given that of the sums; return those of the weights.

    The gradient is added to that of the bias, in `sums`.
    """
    zero = z.dtype.type(0)
    w0, w1, w2, w3 = w
    s0 = s1 = s2 = s3 = zero
    for j in range(TILE):
        z0, z1, z2, z3 = z[j], z[TILE + j], z[2 * TILE + j], z[3 * TILE + j]
        g0 = zero if z0 <= zero else g[j] * factors[j]
        g1 = zero if z1 <= zero else g[j] * factors[TILE + j]
        g2 = zero if z2 <= zero else g[j] * factors[2 * TILE + j]
        g3 = zero if z3 <= zero else g[j] * factors[3 * TILE + j]
        s0 += g0 * z0
        s1 += g1 * z1
        s2 += g2 * z2
        s3 += g3 * z3
        z[j] = w0 * g0
        z[TILE + j] = w1 * g1
        z[2 * TILE + j] = w2 * g2
        z[3 * TILE + j] = w3 * g3
        sums[j] += w0 * g0 + w1 * g1 + w2 * g2 + w3 * g3
    return s0, s1, s2, s3


@compiled
def four_weights(w, k, last):
    """Return the weights of the pairs from k on; zero beyond the last one."""
    zero = w.dtype.type(0)
    w1 = w[k + 1] if k + 1 <= last else zero
    w2 = w[k + 2] if k + 2 <= last else zero
    w3 = w[k + 3] if k + 3 <= last else zero
    return w[k], w1, w2, w3


@compiled
def add_four(grad_w, k, last, s):
    """Add s to the gradients of weights from pair k on, up to the last one."""
    for r in range(min(4, last + 1 - k)):
        grad_w[k + r] += s[r]

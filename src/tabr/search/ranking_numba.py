"""Ranks of candidates in loops that numba compiles: keys, lists and their bounds.

Score and position are one number, a key, so that of equals the lower position wins.

Who is compiled with these loops keeps a copy on disk that does not see a change of this
file: then delete the `*.nbi` files in its `__pycache__`.
"""

from __future__ import annotations

import numpy as np

from tabr.device.compiled import compiled

ONE = np.uint64(1)
SHIFT = np.uint64(32)
WORD = 64  # candidates whose bits make a word
ROUNDING = np.float32(2.0**-23)
TINY = np.float32(1e-30)  # by which a bound lies below scores that are exact
# The place of a word's only bit, by six bits of its product with this number.
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
PLACE = np.zeros(64, np.int64)
for _i in range(64):
    PLACE[((int(DE_BRUIJN) << _i) % 2**64) >> 58] = _i
_SIGN = np.uint32(0x80000000)
_ALL = np.uint32(0xFFFFFFFF)
_BELOW_ZERO = np.uint64(0x7F7FFFFF)  # what the normal number next to it ranks as
_LEAST = np.uint64(0x007FFFFF)  # what minus infinity ranks as


@compiled
def key_of(bits, position):
    """Return one number that ranks as the score of these bits, then lower positions."""
    if bits == _SIGN:  # minus zero is zero
        bits = np.uint32(0)
    ordered = np.uint32(~bits) if bits & _SIGN else np.uint32(bits | _SIGN)
    return (np.uint64(ordered) << SHIFT) | np.uint64(_ALL - np.uint32(position))


@compiled
def select(keys, n, m):
    """Move the m largest of n different keys to the front, the least of them last."""
    low, high = 0, n - 1
    while low < high:
        middle = (low + high) // 2
        a, b, c = keys[low], keys[middle], keys[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while keys[i] > pivot:
                i += 1
            while keys[j] < pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                i += 1
                j -= 1
        if m - 1 <= j:
            high = j
        elif m - 1 >= i:
            low = i
        else:
            return


@compiled
def sort(keys, n):
    """Sort n keys, the largest first."""
    gap = n // 2
    while gap > 0:
        for i in range(gap, n):
            key, j = keys[i], i
            while j >= gap and keys[j - gap] < key:
                keys[j] = keys[j - gap]
                j -= gap
            keys[j] = key
        gap = 1 if gap == 2 else gap * 5 // 11


@compiled
def raise_to(bound, key):
    """Write the score that a key ranks by."""
    ordered = np.uint32(key >> SHIFT)
    word = bound.view(np.uint32)
    word[0] = np.uint32(ordered ^ _SIGN) if ordered & _SIGN else np.uint32(~ordered)


@compiled
def bound_of(bins, keys, m, bound):
    """Write a score that at least m candidates exceed, of m + 1 bins one each."""
    bits = bins.view(np.uint32)
    for j in range(len(bins)):
        keys[j] = key_of(bits[j], j)
    select(keys, len(bins), m + 1)
    ordered = keys[m] >> SHIFT
    if ordered > _LEAST:
        # The next lower score; that of zero is no zero with a sign.
        below = _BELOW_ZERO if ordered == np.uint64(_SIGN) else ordered - ONE
        raise_to(bound, below << SHIFT)


@compiled
def may_take(codes, low, high, outside, ends, i, j):
    """Whether a filter lets query i take candidate j."""
    clause = False
    for c in range(len(codes)):
        holds = low[c, i] <= codes[c, j] <= high[c, i]
        clause |= holds != ((outside >> c) & 1 == 1)
        if (ends >> c) & 1:
            if not clause:
                return False
            clause = False
    return True


@compiled
def finish(keys, n, position, found):
    """Write the best of a list of n keys."""
    m = len(position)
    if n > m:
        select(keys, n, m)
        n = m
    sort(keys, n)
    for k in range(n):
        position[k] = np.int64(_ALL - np.uint32(keys[k] & np.uint64(_ALL)))
        found[k] = True

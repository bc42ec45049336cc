"""Near copies: rows that lack less to an exact copy than chance explains.

In each column, the share of training rows that lie at least as close as a partner is
the chance of agreeing so well, and its negative logarithm the surprise. What a partner
lacks is the surprise of an exact copy minus its own, summed over columns. So a grossly
changed cell costs only that cell, a value that everybody has costs nothing to share,
and units do not matter. A row's score compares what its best partner lacks with what
the tenth best lacks: dense and sparse regions, small and large groups of similar rows
are each held to their own standard.

What is usual comes from the training rows themselves, each compared with the others.
Who is compared at all are the nearest rows in several spaces: all columns, numbers
only, and two halves of the columns, as a copy with a changed cell is far away in spaces
that hold the cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tabr.audit.findings import Ids
from tabr.search import top
from tabr.tables.preprocessor import Arrays, Preprocessor

Floats = NDArray[np.float64]

PARTNERS = 10  # nearest rows of each space, and the rank that scores are held against
MAX_SURPRISE = 8.0  # of a number: closer than 1 in 3000 says no more
MAX_SURPRISE_OF_LEVEL = 2.0  # of a category, however rare
MIN_COLUMNS_TO_HALVE = 6
_ROWS = 4096  # scored at a time
_LEVEL_WIDTH = 16  # of the vector that stands for a category


@dataclass(frozen=True)
class Closeness:
    """How closely rows coincide with their best partner.

    Attributes:
        score: How much less the best partner lacks than the tenth, as a logarithm of
            their ratio, (n,).
        partner: Its position among the searched rows, (n,).
    """

    score: Floats
    partner: Ids


class Coincidences:
    """Training rows, ready to be searched for near copies."""

    def __init__(self, preprocessor: Preprocessor, arrays: Arrays, seed: int) -> None:
        """Prepare distinct training rows (n)."""
        self.arrays = arrays
        self.n = len(arrays.num)
        self._ordered = np.sort(arrays.num, 0)
        self._low, self._high = self._ranks(arrays.num)  # (n, p) each
        self._levels = np.concatenate(
            [(2 * arrays.bin).astype(np.int64), arrays.cat], 1
        )
        self._counts = [
            np.bincount(column + 1, minlength=_n_levels(column) + 1)
            for column in self._levels.T
        ]
        rng = np.random.default_rng(seed)
        self._vectors = [
            _level_vectors(n_levels, rng) for n_levels in preprocessor.cardinalities
        ]
        n_num, n_blocks = arrays.num.shape[1], arrays.num.shape[1] + len(self._counts)
        order = rng.permutation(n_blocks)
        self.spaces = [np.arange(n_blocks)]
        if 2 <= n_num < n_blocks:
            self.spaces.append(np.arange(n_num))
        if n_blocks >= MIN_COLUMNS_TO_HALVE:
            half = n_blocks // 2
            self.spaces += [np.sort(order[:half]), np.sort(order[half:])]
        self._blocks = self._in_blocks(arrays)

    def _ranks(
        self, num: NDArray[np.float32]
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return how many training rows are below, and not above, each number."""
        sides = []
        for side in ("left", "right"):
            columns = [
                np.searchsorted(self._ordered[:, j], num[:, j], side=side)
                for j in range(num.shape[1])
            ]
            sides.append(np.array(columns, np.int32).reshape(len(columns), -1).T)
        return sides[0], sides[1]

    def _in_blocks(self, arrays: Arrays) -> list[NDArray[np.float32]]:
        """Return each column as a block of coordinates; unequal levels are 1 apart."""
        numbers = [arrays.num[:, [j]] for j in range(arrays.num.shape[1])]
        flags = [arrays.bin[:, [j]] for j in range(arrays.bin.shape[1])]
        levels = [
            vectors[np.clip(arrays.cat[:, j], -1, None)]  # the last stands for unknown
            for j, vectors in enumerate(self._vectors)
        ]
        return numbers + flags + levels

    def closeness(self, arrays: Arrays, own: Ids | None) -> Closeness:
        """Find the best partners of rows (b); `own` are their positions, or None."""
        blocks = self._in_blocks(arrays)
        exclude = None if own is None else torch.from_numpy(own)
        found = []
        for space in self.spaces:
            vectors, queries = _joined(self._blocks, space), _joined(blocks, space)
            centre = vectors.mean(0)
            vectors, queries = vectors - centre, queries - centre
            offsets = -(vectors * vectors).sum(1)
            near = top(2 * queries, vectors, offsets, PARTNERS, exclude=exclude)
            found.append(near.position.numpy())
        position = np.concatenate(found, 1)  # (b, spaces * partners)
        lack = np.empty(position.shape)
        for start in range(0, len(position), _ROWS):
            rows = slice(start, start + _ROWS)
            part = Arrays(arrays.num[rows], arrays.bin[rows], arrays.cat[rows])
            lack[rows] = self._lack(part, position[rows], own is not None)
        lack[_repeated(position)] = np.inf
        order = np.argsort(lack, 1, kind="stable")
        lack = np.take_along_axis(lack, order, 1)
        rank = min(PARTNERS, self.n - (own is not None)) - 1
        best = np.take_along_axis(position, order[:, :1], 1)[:, 0]
        # One nat is added: below it, less is no news.
        return Closeness(np.log1p(lack[:, rank]) - np.log1p(lack[:, 0]), best)

    def _lack(self, arrays: Arrays, position: Ids, is_own: bool) -> Floats:
        """Return what pairs (b, c) lack to be exact; a row does not count itself."""
        total = np.zeros(position.shape)
        low, high = self._ranks(arrays.num)
        for j in range(arrays.num.shape[1]):
            own_low, own_high = low[:, [j]], high[:, [j]]
            partner_low, partner_high = self._low[position, j], self._high[position, j]
            above, below = partner_high - own_low, own_high - partner_low
            between = np.where(partner_low >= own_low, above, below) - is_own
            most = np.minimum(self._rarity(own_high - own_low - is_own), MAX_SURPRISE)
            total += np.maximum(most - self._rarity(between), 0.0)
        levels = np.concatenate([(2 * arrays.bin).astype(np.int64), arrays.cat], 1)
        for j, counts in enumerate(self._counts):
            own = levels[:, [j]]
            known = np.clip(own + 1, 0, len(counts) - 1)
            rarity = self._rarity(counts[known] - is_own)
            differs = own != self._levels[position, j]
            total += np.where(differs, np.minimum(rarity, MAX_SURPRISE_OF_LEVEL), 0.0)
        return total

    def _rarity(self, count: NDArray[np.integer[Any]]) -> Floats:
        rarity: Floats = -np.log(np.maximum(count, 1) / self.n)
        return np.maximum(rarity, 0.0)


def _n_levels(column: NDArray[np.int64]) -> int:
    return int(column.max()) + 1 if len(column) else 0


def _level_vectors(n_levels: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a vector for each level and one for unknown; about 1 apart from another.

    Few levels get a coordinate each; more share coordinates at random, as search
    costs by the coordinate.
    """
    if n_levels < _LEVEL_WIDTH:
        vectors = np.eye(n_levels + 1)
    else:
        vectors = rng.standard_normal((n_levels + 1, _LEVEL_WIDTH))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.sqrt(2), np.float32)


def _joined(blocks: list[NDArray[np.float32]], space: Ids) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([blocks[j] for j in space], 1))


def _repeated(position: Ids) -> NDArray[np.bool_]:
    """Mark all but one of equal positions in each row."""
    order = np.argsort(position, 1, kind="stable")
    ordered = np.take_along_axis(position, order, 1)
    again = np.zeros(position.shape, bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    marked = np.zeros_like(again)
    np.put_along_axis(marked, order, again, 1)
    return marked

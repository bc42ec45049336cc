"""Near copies: rows that lack less to an exact copy than chance explains.

In each column, the share of training rows that lie at least as close as a partner is
the chance of agreeing so well, and its negative logarithm the surprise. What a partner
lacks is the surprise of an exact copy minus its own, summed over columns. So a grossly
changed cell costs only that cell, a value that everybody has costs nothing to share,
and units do not matter. A row's score compares what its best partner lacks with what
the tenth best lacks: dense and sparse regions, small and large groups of similar rows
are each held to their own standard.

What is usual comes from the training rows themselves, each compared with the others.
Partners are the nearest rows in several spaces: all columns, numbers only, and two
halves of the columns, as a copy with a changed cell is far away in spaces that hold the
cell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tabr.audit.exact_copies import ExactCopies
from tabr.audit.findings import Finding, Floats, Ids
from tabr.audit.parts import Part, agreement_text
from tabr.audit.significance import Verdict, beyond_tail, judge
from tabr.search import top
from tabr.tables.frame import random_rows
from tabr.tables.preprocessor import Arrays, Preprocessor
from tabr.text import percent

PARTNERS = 10  # nearest rows of each space, and the rank that scores are held against
MAX_SURPRISE = 8.0  # of a number: closer than 1 in 3000 says no more
MAX_SURPRISE_OF_LEVEL = 2.0  # of a category, however rare
MIN_COLUMNS_TO_HALVE = 6
MIN_ROWS = 50  # distinct training rows, before near copies can be judged
MAX_REFERENCE = 50_000
_MIN_SAMPLE = 2000
_ROWS = 4096  # scored at a time
_LEVEL_WIDTH = 16  # of the vector that stands for a category


@dataclass(frozen=True)
class Closeness:
    """How closely rows coincide with their best partner."""

    score: Floats  # log of what the tenth partner lacks to what the best lacks, (n,)
    partner: Ids  # the best one's position among the searched rows, (n,)


class Coincidences:
    """Training rows, ready to be searched for near copies."""

    def __init__(self, preprocessor: Preprocessor, arrays: Arrays, seed: int) -> None:
        """Prepare distinct training rows (n)."""
        self.n = len(arrays.num)
        self._ordered = np.sort(arrays.num, 0)
        self._low, self._high = self._ranks(arrays.num)  # (n, p) each
        self._levels = _levels_of(arrays)
        self._counts = [np.bincount(column + 1) for column in self._levels.T]
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

    def closeness(self, arrays: Arrays, positions: Ids | None) -> Closeness:
        """Return the best partners of rows (b).

        Where the rows are training rows, `positions` are theirs: no row is its own
        partner.
        """
        blocks = self._in_blocks(arrays)
        exclude = None if positions is None else torch.from_numpy(positions)
        neighbors = []
        for space in self.spaces:
            vectors, queries = _joined(self._blocks, space), _joined(blocks, space)
            centre = vectors.mean(0)
            vectors, queries = vectors - centre, queries - centre
            offsets = -(vectors * vectors).sum(1)
            near = top(2 * queries, vectors, offsets, PARTNERS, exclude=exclude)
            neighbors.append(near.position.numpy())
        position = np.concatenate(neighbors, 1)  # (b, spaces * partners)
        lack = np.empty(position.shape)
        for start in range(0, len(position), _ROWS):
            rows = slice(start, start + _ROWS)
            part = Arrays(arrays.num[rows], arrays.bin[rows], arrays.cat[rows])
            lack[rows] = self._lack(part, position[rows], positions is not None)
        lack[_repeated(position)] = np.inf
        order = np.argsort(lack, 1, kind="stable")
        lack = np.take_along_axis(lack, order, 1)
        rank = min(PARTNERS, self.n - (positions is not None)) - 1
        best = np.take_along_axis(position, order[:, :1], 1)[:, 0]
        # One nat is added: below it, less is no news.
        return Closeness(np.log1p(lack[:, rank]) - np.log1p(lack[:, 0]), best)

    def _lack(self, arrays: Arrays, position: Ids, in_train: bool) -> Floats:
        """Return what pairs (b, c) lack to be exact; a row does not count itself."""
        total = np.zeros(position.shape)
        low, high = self._ranks(arrays.num)
        for j in range(arrays.num.shape[1]):
            row_low, row_high = low[:, [j]], high[:, [j]]
            partner_low, partner_high = self._low[position, j], self._high[position, j]
            above, below = partner_high - row_low, row_high - partner_low
            between = np.where(partner_low >= row_low, above, below) - in_train
            most = np.minimum(self._rarity(row_high - row_low - in_train), MAX_SURPRISE)
            total += np.maximum(most - self._rarity(between), 0.0)
        levels = _levels_of(arrays)
        for j, counts in enumerate(self._counts):
            level = levels[:, [j]]
            rarity = self._rarity(
                counts[np.clip(level + 1, 0, len(counts) - 1)] - in_train
            )
            differs = level != self._levels[position, j]
            total += np.where(differs, np.minimum(rarity, MAX_SURPRISE_OF_LEVEL), 0.0)
        return total

    def _rarity(self, count: NDArray[np.integer[Any]]) -> Floats:
        rarity: Floats = -np.log(np.maximum(count, 1) / self.n)
        return np.maximum(rarity, 0.0)


def _levels_of(arrays: Arrays) -> NDArray[np.int64]:
    """Return flags and categories as codes of levels (n, columns)."""
    return np.concatenate([(2 * arrays.bin).astype(np.int64), arrays.cat], 1)


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
    """Whether a position stands in its row already, by another column."""
    order = np.argsort(position, 1, kind="stable")
    ordered = np.take_along_axis(position, order, 1)
    again = np.zeros(position.shape, bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    marked = np.zeros_like(again)
    np.put_along_axis(marked, order, again, 1)
    return marked


# --- findings -------------------------------------------------------------------


def near_findings(
    exact: ExactCopies,
    train: Part,
    test: Part,
    rng: np.random.Generator,
    max_pairs: int,
    notes: list[str],
) -> list[Finding]:
    """Return findings about rows that nearly equal a training row, and add notes."""
    # Of equal rows one is searched: what is exact has been counted already.
    distinct = np.unique(exact.train_group, return_index=True)[1]
    tested = np.flatnonzero(~exact.is_copy)
    reference = np.flatnonzero(~exact.in_train[distinct])  # positions in distinct
    n_tested, n_reference = len(tested), len(reference)
    if n_reference < MIN_ROWS or not n_tested:
        notes.append(
            f"near copies were not looked for: that needs {MIN_ROWS} distinct training"
            f" rows and a test row that is no exact copy, however there are"
            f" {n_reference} and {n_tested}"
        )
        return []
    seed = int(rng.integers(2**31))
    rows = train.frame.iloc[distinct]
    preprocessor = Preprocessor(seed=seed).fit(rows)
    index = Coincidences(preprocessor, preprocessor.transform(rows), seed)
    limit = max_pairs // (len(index.spaces) * len(distinct))
    tested = tested[random_rows(n_tested, max(_MIN_SAMPLE, limit // 2), rng)]
    room = min(MAX_REFERENCE, max(_MIN_SAMPLE, limit - len(tested)))
    reference = reference[random_rows(n_reference, room, rng)]
    for n, n_all, what in (
        (len(tested), n_tested, "test rows"),
        (len(reference), n_reference, "training rows (as reference)"),
    ):
        if n < n_all:
            note = f"near copies: a sample of {n} of {n_all} {what} was searched"
            notes.append(note)
    near = index.closeness(preprocessor.transform(test.frame.iloc[tested]), None)
    usual = index.closeness(preprocessor.transform(rows.iloc[reference]), reference)
    near, usual = (replace(c, partner=distinct[c.partner]) for c in (near, usual))
    verdict = judge(near.score, usual.score)
    findings = []
    if verdict.named.any():
        findings.append(_across(near, verdict, train, test.take(tested)))
    bound = max(beyond_tail(usual.score, usual.score), verdict.bound)
    if (usual.score >= bound).any():
        text = (
            "nearly equal another training row: if they belong together, keep them in"
            " one part"
        )
        finding = Finding.of_rows(
            "near copies in training",
            text,
            "train",
            train.ids[distinct[reference]],
            usual.score >= bound,
            partners=train.ids[usual.partner],
            scores=usual.score,
        )
        findings.append(finding)
    return findings


def _across(near: Closeness, verdict: Verdict, train: Part, test: Part) -> Finding:
    """Return the finding about test rows that nearly equal a training row."""
    usual = percent(verdict.usual)
    text = f"nearly equal a training row; {usual} of training rows come as near to"
    text += " another"
    if verdict.is_excess:
        text += (
            f"; about {percent(verdict.excess)} of test rows are copies, and about"
            f" {percent(verdict.false_share)} of the rows named here are not"
        )
    return Finding.of_rows(
        "near copies",
        text + agreement_text(train, test, verdict.named, near.partner),
        "test",
        test.ids,
        verdict.named,
        gravity="leak" if verdict.is_excess else None,
        partners=train.ids[near.partner],
        scores=near.score,
        expected=verdict.usual,
    )

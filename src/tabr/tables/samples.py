"""Labelled rows as the user gave them: read, weighed, split."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.errors import DataError, ParameterError
from tabr.tables.frame import to_frame
from tabr.tables.preprocessor import Arrays, EncodedRows
from tabr.tables.targets import Target

_FORWARD = 0.4  # share of rows, the latest, that folds by time hold out


class Split(NamedTuple):
    """How rows are held out: the latest, or whole groups.

    Attributes:
        by: "time" or "group".
        values: (n,), times or numbers of groups.
    """

    by: str
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """Rows of one table with their labels; all parts have length n.

    Attributes:
        ids: Positions in the table that was read.
        frame: The rows.
        y: The labels.
        weights: Weights of the rows, or None.
    """

    ids: NDArray[np.int64]
    frame: pd.DataFrame
    y: NDArray[Any]
    weights: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)

    @classmethod
    def read(
        cls,
        X: object,
        y: object,
        weights: object,
        target: type[Target],
        caller: str,
    ) -> Sample:
        """Read any table; rows of weight zero are left out."""
        frame = to_frame(X)
        labels = target.read(y, n_rows=len(frame), caller=caller)
        sample = cls(
            np.arange(len(frame)), frame, labels, _weights(weights, len(frame))
        )
        if sample.weights is None or sample.weights.all():
            return sample
        return sample.take(np.flatnonzero(sample.weights))

    def take(self, index: NDArray[np.int64]) -> Sample:
        """Return the rows at index."""
        return Sample(
            self.ids[index],
            self.frame.iloc[index].reset_index(drop=True),
            self.y[index],
            None if self.weights is None else self.weights[index],
        )

    def hold_out(
        self,
        fraction: float,
        codes: NDArray[np.int64] | None,
        seed: int,
        split: Split | None = None,
    ) -> tuple[Sample, Sample]:
        """Split off a share; return what is left and what was held out.

        It is the share that `split` tells, the latest rows or whole groups, else a
        random one. Of that each class, where `codes` (n,) tell classes, gives its share
        as far as its rows allow, and keeps at least one row.
        """
        if not 0 < fraction < 1:
            raise ParameterError(
                "`0 < validation_fraction < 1` must hold, however: "
                f"validation_fraction={fraction!r}"
            )
        n = len(self.ids)
        if n < 2:
            raise DataError(
                "a model needs at least 2 rows, one to learn from and one to stop "
                f"early by, however n_samples = {n}: add rows, or pass an eval_set"
            )
        rng = np.random.RandomState(seed)
        order = rng.permutation(n)
        n_held = min(max(1, round(n * fraction)), n - 1)
        if split is not None:
            values = split.values
            if split.by == "group":  # a group's place is that of a random member
                first = pd.Series(np.arange(n)).groupby(values[order]).transform("min")
                values = np.empty(n)
                values[order] = -first.to_numpy(np.float64)
            # Who equals the last one held out is held out too, unless that is all.
            limit = np.sort(values)[n - n_held]
            held = values >= limit
            held = values > limit if held.all() else held
            if not held.any():
                raise DataError(
                    f"rows are held out by {split.by}, however all {n} have the same: "
                    "pass an eval_set"
                )
            return self.take(np.flatnonzero(~held)), self.take(np.flatnonzero(held))
        if codes is not None:
            shuffled = codes[order]
            is_last = ~pd.Series(shuffled).duplicated(keep="last").to_numpy()
            place = np.where(is_last, np.inf, places_in_proportion(shuffled))
            order = order[np.argsort(place, kind="stable")]
        return self.take(np.sort(order[n_held:])), self.take(np.sort(order[:n_held]))

    def folds(
        self,
        n_folds: int,
        codes: NDArray[np.int64] | None,
        seed: int,
        split: Split | None = None,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Return positions to learn from and to hold out, for each of several folds.

        Each row is held out once: at random, each class in proportion where `codes`
        (n,) tell classes, or as whole groups. By time, folds go forward: each holds out
        a later stretch of the last 40 % and learns from all that lies before it. There
        are fewer folds if the rows allow no more.
        """
        n = len(self.ids)
        if n < 2:
            self.hold_out(0.5, codes, seed)  # refuses it
        order = np.random.RandomState(seed).permutation(n)
        n_folds = min(n_folds, n)
        if split is None:
            if codes is not None:
                order = order[np.argsort(codes[order], kind="stable")]
            number = np.empty(n, np.int64)
            number[order] = np.arange(n) % n_folds
        elif split.by == "group":
            number = _group_folds(split.values[order], n_folds)[np.argsort(order)]
        else:
            return self._forward_folds(n_folds, split.values, codes, seed, split)
        if number.max() == 0:
            self.hold_out(0.5, codes, seed, split)  # refuses it
        return [
            (np.flatnonzero(number != k), np.flatnonzero(number == k))
            for k in range(number.max() + 1)
        ]

    def _forward_folds(
        self,
        n_folds: int,
        times: NDArray[np.float64],
        codes: NDArray[np.int64] | None,
        seed: int,
        split: Split,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        ends = np.linspace(1 - _FORWARD, 1, n_folds + 1) * (len(times) - 1)
        limits = np.unique(np.sort(times)[np.round(ends).astype(np.int64)])
        folds = [
            (
                np.flatnonzero(times <= low),
                np.flatnonzero((times > low) & (times <= up)),
            )
            for low, up in itertools.pairwise(limits)
        ]
        if not folds:  # most rows have one time
            learned, held_out = self.hold_out(0.2, codes, seed, split)
            parts = (
                np.searchsorted(self.ids, part.ids) for part in (learned, held_out)
            )
            first, second = parts
            return [(first, second)]
        return folds


@dataclass(frozen=True)
class EncodedSample:
    """A sample as a network takes it; all parts have length n.

    Attributes:
        sample: The rows with the columns of fit.
        arrays: The same rows, prepared.
        labels: Encoded labels.
    """

    sample: Sample
    arrays: Arrays
    labels: NDArray[Any]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)

    def take(self, index: NDArray[np.int64]) -> EncodedSample:
        """Return the rows at index."""
        arrays = self.rows.take(index).arrays
        return EncodedSample(self.sample.take(index), arrays, self.labels[index])

    @property
    def rows(self) -> EncodedRows:
        """The rows without their labels."""
        return EncodedRows(self.sample.frame, self.arrays)


def _group_folds(groups: NDArray[np.float64], n_folds: int) -> NDArray[np.int64]:
    """Return a fold for each row (n,): whole groups, in turn to the smallest fold."""
    codes, _ = pd.factorize(groups)
    sizes = np.bincount(codes)
    fold_of = np.empty(len(sizes), np.int64)
    n_rows = np.zeros(min(n_folds, len(sizes)), np.int64)
    for group in np.argsort(-sizes, kind="stable"):  # equal ones in their random order
        fold_of[group] = n_rows.argmin()
        n_rows[fold_of[group]] += sizes[group]
    folds: NDArray[np.int64] = fold_of[codes]
    return folds


def places_in_proportion(labels: NDArray[Any]) -> NDArray[np.float64]:
    """Return a place in 0..1 for each row (n,).

    The first so many places of all classes together hold each class in proportion.

    >>> places_in_proportion(np.array(["a", "b", "a", "a", "b"])).round(2).tolist()
    [0.17, 0.25, 0.5, 0.83, 0.75]
    """
    grouped = pd.Series(np.arange(len(labels))).groupby(labels)
    places = (grouped.cumcount() + 0.5) / grouped.transform("size")
    return places.to_numpy(np.float64)


def _weights(weights: object, n: int) -> NDArray[np.float64] | None:
    """Check sample weights (n,)."""
    if weights is None:
        return None
    values = np.asarray(weights, dtype=np.float64)
    if values.ndim == 0:
        values = np.full(n, float(values))
    if values.shape != (n,):
        raise DataError(
            f"sample_weight must have one weight for each of the {n} rows, however "
            f"its shape is {values.shape}: Sample weights must be 1D array or scalar"
        )
    if not np.isfinite(values).all() or (values < 0).any() or not (values > 0).any():
        raise DataError(
            "sample_weight must hold finite weights of zero or more, some of them "
            f"positive, however its smallest is {values.min()} and its largest "
            f"{values.max()}: mend or drop these rows"
        )
    return values

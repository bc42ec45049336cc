"""The candidate set: the rows that predictions are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tabr.candidates.device_rules import RuleIndex
from tabr.candidates.exact_index import ExactIndex, make_updatable
from tabr.candidates.growable import GrowableArray
from tabr.candidates.kept import Form, forms_of, kept
from tabr.candidates.rules import BoundRule, Rule
from tabr.candidates.updatable_index import UpdatableIndex
from tabr.errors import DataError, UnknownIdError
from tabr.network.rows import Rows
from tabr.network.tabr import TabR
from tabr.optional import cached_property
from tabr.tables.preprocessor import EncodedRows
from tabr.tables.samples import EncodedSample

_MOST_REMOVED = 1 / 8  # of all: with more of them the set is packed anew
_FEW = 1000  # removed ones that are never worth it


class CandidateSet:
    """Rows that may be retrieved, with ids that stay theirs.

    A set never changes: `added`, `removed` and `relabelled` return another one, so
    whoever works with a set meanwhile sees all of the old and nothing of the new. They
    share memory, and cost what changes.

    A candidate also has a *position*, by which networks know it; positions of removed
    candidates stay taken until the set is packed anew.

    Attributes:
        rows: All positions' rows prepared for the network.
        labels: All positions' encoded labels.
        rule: Who may take whom, or None.
        next_id: The id of the next candidate; no id is given twice.
    """

    def __init__(
        self,
        ids: NDArray[np.int64],
        frame: pd.DataFrame,
        y: NDArray[Any],
        rows: Rows,
        labels: Tensor,
        rule: BoundRule | None = None,
        next_id: int | None = None,
    ) -> None:
        """Take candidates (n,) whose ids increase; in the first the user's frame."""
        self._ids, self._y = GrowableArray(ids), GrowableArray(y)
        self._rows = [GrowableArray(part) for part in rows]
        self._labels = GrowableArray(labels)
        self._frames: tuple[pd.DataFrame, ...] = (frame,)
        self._is_removed: NDArray[np.bool_] | None = None
        self.rule = rule
        self.next_id = int(ids[-1]) + 1 if len(ids) else 0
        if next_id is not None:
            self.next_id = max(next_id, self.next_id)
        self._set_views()

    def _set_views(self) -> None:
        self.rows = Rows(*(part.view for part in self._rows))
        self.labels = self._labels.view
        self._indexes: dict[int, UpdatableIndex | ExactIndex] = {}
        self._rule_index: RuleIndex | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is quickly made again."""
        return {**self.__dict__, "_indexes": {}, "_rule_index": None}

    # --- what is in it --------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of candidates."""
        return self._ids.n - self.n_removed

    @property
    def n_removed(self) -> int:
        """Positions whose candidates were removed."""
        return 0 if self._is_removed is None else int(self._is_removed.sum())

    def _present(self, array: NDArray[Any]) -> NDArray[Any]:
        return array if self._is_removed is None else array[~self._is_removed]

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids (n,), increasing."""
        return self._present(self._ids.view)

    @property
    def y(self) -> NDArray[Any]:
        """The labels (n,) as the user gave them."""
        return self._present(self._y.view)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The rows as the user gave them, (n, columns)."""
        whole = _joined(self._frames)
        if self._is_removed is None:
            return whole
        return whole[~self._is_removed].reset_index(drop=True)

    @cached_property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest label, of numbers."""
        y = np.asarray(self.y, np.float64)
        return float(y.min()), float(y.max())

    @cached_property
    def _forms(self) -> dict[str, Form]:
        """How further rows are kept, so that all can be joined."""
        return forms_of(self._frames[0])

    @property
    def columns(self) -> list[str]:
        """The names of the user's columns."""
        return self._frames[0].columns.tolist()

    def ids_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids at positions of any shape."""
        return self._ids.view[positions]

    def y_of(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return the user's labels of ids of any shape; those of -1 mean nothing."""
        exists = ids >= 0
        positions = np.zeros(ids.shape, np.int64)
        positions[exists] = self.positions(ids[exists])
        return self._y.view[positions]

    def positions(self, ids: object) -> NDArray[np.int64]:
        """Return the positions (k,) of candidates; each id must be there."""
        wanted = np.asarray(ids)
        if wanted.size == 0:
            return np.empty(0, np.int64)
        if wanted.dtype.kind not in "iu":
            raise DataError(
                f"ids are whole numbers, however {wanted.dtype} came: give ids that "
                "neighbors, explain or add_candidates returned"
            )
        wanted = wanted.reshape(-1).astype(np.int64)
        all_ids = self._ids.view
        positions = np.searchsorted(all_ids, wanted)
        positions = np.minimum(positions, len(all_ids) - 1)
        exists = len(all_ids) > 0 and all_ids[positions] == wanted
        if self._is_removed is not None:
            exists = exists & ~self._is_removed[positions]
        if not np.all(exists):
            missing = wanted[~np.broadcast_to(exists, wanted.shape)][:5].tolist()
            raise UnknownIdError(f"no candidate has these ids: {missing}")
        return positions

    def look_up(self, ids: object) -> pd.DataFrame:
        """Return the rows with these ids, as the user gave them, indexed by id."""
        positions = self.positions(ids)
        first = np.cumsum([0, *map(len, self._frames)])
        part = np.searchsorted(first, positions, side="right") - 1
        chosen = [
            frame.iloc[positions[part == k] - first[k]]
            for k, frame in enumerate(self._frames)
            if (part == k).any()
        ]
        if not chosen:
            chosen = [self._frames[0].iloc[:0]]
        order = np.argsort(np.argsort(part, kind="stable"), kind="stable")
        rows = _joined(chosen).iloc[order]
        return rows.set_axis(pd.Index(self._ids.view[positions]))

    # --- for networks ---------------------------------------------------------

    def index_of(self, network: TabR) -> UpdatableIndex | ExactIndex:
        """Return the candidates, searchable by a network; made at the first call."""
        key = id(network)
        if key not in self._indexes:
            index = make_updatable(network, self.rows, self.labels)
            if self._is_removed is not None:
                index = index.without(_tensor(np.flatnonzero(self._is_removed)))
            self._indexes[key] = index
        return self._indexes[key]

    def rule_index(self) -> RuleIndex | None:
        """Return the rule on the candidates' device; made at the first call."""
        if self.rule is not None and self._rule_index is None:
            self._rule_index = RuleIndex(self.rule, self.labels.device)
        return self._rule_index

    def to(self, device: torch.device) -> CandidateSet:
        """Return the set with its tensors on the device."""
        new = self._copy()
        new._rows = [GrowableArray(part.view.to(device)) for part in self._rows]
        new._labels = GrowableArray(self.labels.to(device))
        new._set_views()
        return new

    # --- other sets -----------------------------------------------------------

    def _copy(self) -> CandidateSet:
        new = CandidateSet.__new__(CandidateSet)
        new.__dict__.update(self.__dict__)
        for cached in ("frame", "limits"):
            new.__dict__.pop(cached, None)
        return new

    def added(
        self, encoded: EncodedRows, y: NDArray[Any], labels: NDArray[Any]
    ) -> tuple[CandidateSet, NDArray[np.int64]]:
        """Return the set with more candidates, and their ids.

        Their labels (n,) come as the user gave them and as networks read them.
        """
        frame = kept(encoded.frame, self._forms, self.columns)
        rows = Rows.from_arrays(encoded.arrays, torch.device("cpu"))
        ids = np.arange(self.next_id, self.next_id + len(frame))
        new = self._copy()
        if self.rule is not None:
            new.rule = self.rule.extended(frame)
        new._ids, new._y = self._ids.extended(ids), self._y.extended(y)
        device = self.rows.num.device
        new._rows = [
            old.extended(part)
            for old, part in zip(self._rows, rows.to(device), strict=True)
        ]
        codes = torch.from_numpy(labels).to(self.labels.device)
        new._labels = self._labels.extended(codes)
        new._frames = _merged((*self._frames, frame))
        if self._is_removed is not None:
            new._is_removed = np.append(self._is_removed, np.zeros(len(frame), bool))
        new.next_id = self.next_id + len(frame)
        new._set_views()
        new._indexes = {
            k: index.extended(rows, new.labels) for k, index in self._indexes.items()
        }
        return new, ids

    def joined(self, encoded: EncodedSample) -> CandidateSet:
        """Return the set with a sample's rows too, which keep the ids they have."""
        place, device = self.rows.num.device, self.labels.device
        sample, packed = encoded.sample, self.packed()
        ids = np.concatenate([packed.ids, sample.ids])
        order = np.argsort(ids, kind="stable")
        frames = packed.frame, kept(sample.frame, self._forms, self.columns)
        frame = _joined(frames).iloc[order].reset_index(drop=True)
        y = np.concatenate([packed.y, sample.y])
        new = Rows.from_arrays(encoded.arrays, place)
        rows = Rows(*(torch.cat(parts) for parts in zip(packed.rows, new, strict=True)))
        labels = torch.cat([packed.labels, torch.from_numpy(encoded.labels).to(device)])
        index = _tensor(order)
        return CandidateSet(
            ids[order],
            frame,
            y[order],
            rows.take(index.to(place)),
            labels[index.to(device)],
            None if self.rule is None else self.rule.rule.bind(frame),
            self.next_id,
        )

    def removed(self, ids: object) -> CandidateSet:
        """Return the set without the candidates of these ids."""
        positions = np.unique(self.positions(ids))
        if len(positions) >= len(self):
            raise DataError(
                f"a model needs candidates, however all {len(self)} are to be "
                "removed: keep one, or fit again"
            )
        if len(positions) == 0:
            return self
        new = self._copy()
        flags = np.zeros(self._ids.n, bool)
        if self._is_removed is not None:
            flags |= self._is_removed
        flags[positions] = True
        new._is_removed = flags
        if flags.sum() > max(_FEW, _MOST_REMOVED * len(flags)):
            return new.packed()
        new._set_views()
        gone = _tensor(positions)
        new._indexes = {k: i.without(gone) for k, i in self._indexes.items()}
        new._rule_index = self._rule_index
        return new

    def relabelled(
        self, ids: object, y: NDArray[Any], labels: NDArray[Any]
    ) -> CandidateSet:
        """Return the set with other labels (k,) for these ids.

        They come as the user gave them and as networks read them.
        """
        positions = self.positions(ids)
        n, n_distinct = len(positions), len(np.unique(positions))
        if n_distinct < n:
            raise DataError(
                "each id may come once, as it gets one label, however "
                f"{n} ids came for {n_distinct} candidates: drop the repeated ones"
            )
        new = self._copy()
        of_all = self._y.view
        dtype = of_all.dtype if of_all.dtype.kind == "O" else np.result_type(of_all, y)
        of_all = of_all.astype(dtype)  # a copy
        of_all[positions] = y
        new._y = GrowableArray(of_all)
        device = self.labels.device
        codes = torch.from_numpy(labels).to(device)
        place = _tensor(positions).to(device)
        new._labels = GrowableArray(self.labels.index_copy(0, place, codes))
        new._set_views()
        new._indexes = {
            k: index.relabelled(new.labels) for k, index in self._indexes.items()
        }
        new._rule_index = self._rule_index
        return new

    def restricted(self, rule: Rule | None) -> CandidateSet:
        """Return the set under another rule."""
        new = self.packed()._copy()
        new.rule = None if rule is None else rule.bind(new.frame)
        new._set_views()
        new._indexes = {} if new.n_removed != self.n_removed else dict(self._indexes)
        return new

    def packed(self) -> CandidateSet:
        """Return the same candidates without positions of removed ones."""
        if self._is_removed is None:
            return self
        return self.taken(np.flatnonzero(~self._is_removed))

    def taken(self, positions: NDArray[np.int64]) -> CandidateSet:
        """Return the set of the candidates at increasing positions, packed."""
        index = _tensor(positions)
        rows = self.rows.take(index.to(self.rows.num.device))
        labels = self.labels[index.to(self.labels.device)]
        rule = None if self.rule is None else self.rule.taken(positions)
        frame = _joined(self._frames).iloc[positions].reset_index(drop=True)
        ids, y = self._ids.view[positions], self._y.view[positions]
        return CandidateSet(ids, frame, y, rows, labels, rule, self.next_id)


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    if len(frames) == 1:
        return frames[0]
    return pd.concat(frames, ignore_index=True)


def _merged(frames: tuple[pd.DataFrame, ...]) -> tuple[pd.DataFrame, ...]:
    """Return frames of which the last are joined, so that each is longer than the next.

    A frame of one row takes thousands of bytes; so there are few, and each row is
    copied a few times. The first frame stays, and so do columns of other types.
    """
    while (
        len(frames) > 2
        and len(frames[-2]) <= len(frames[-1])
        and frames[-2].dtypes.equals(frames[-1].dtypes)
    ):
        frames = (*frames[:-2], _joined(frames[-2:]))
    return frames


def _tensor(positions: NDArray[Any]) -> Tensor:
    return torch.from_numpy(positions.astype(np.int64))

"""A fitted model in use: it answers, and its candidates change durably.

A change is first prepared on a copy, then committed to the store, then used. So an
acknowledged change survives the process, and one that cannot be kept is never seen.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from tabr import TabRClassifier, TabRRegressor, __version__
from tabr.errors import DataError
from tabr.estimators import load_model
from tabr.prediction.explanation import Explanation
from tabr.prediction.uncertainty import Signals, intervals, sets
from tabr.serving import compacted
from tabr.serving.backup import identity_of
from tabr.serving.messages import ChangeResult, Compaction, Row, Schema
from tabr.serving.store.changes import (
    Change,
    ChangeKind,
    ChangesCompacted,
    NewChange,
    Store,
    begin_anew,
    is_file,
    open_store,
)
from tabr.serving.store.connection import NoStore, StoreDamaged, StoreError
from tabr.storage import check_signature
from tabr.text import json_text, plain, plain_list

KEPT_FILES = 2  # of those that compaction wrote, by default
MOST_ROWS = 10_000  # that are added at once when changes are made again
MOST_TRIES = 5  # of following services that compact meanwhile
COMPACT = "compact"  # the fingerprint of such a request

Model = TabRRegressor | TabRClassifier
Result = TypeVar("Result")


class State(NamedTuple):
    """A model and the number of changes applied to it; it is never changed itself."""

    model: Model
    applied: int


class ServedModel:
    """A model, its store, and what the service does with both.

    Any thread may read, and sees one state from beginning to end. Changes wait for one
    another; each makes a new state.
    """

    def __init__(
        self,
        path: Path,
        store: str | Path,
        device: str | None = None,
        *,
        new_store: bool = False,
        accept_loss: bool = False,
        keep: int = KEPT_FILES,
        key: Path | None = None,
    ) -> None:
        """Load the store's checkpoint, or else the model file, and replay the rest.

        A store is begun only after its model file was loaded, and opened only for the
        same bytes. So a file with a checkpoint need not be loaded again to be checked.
        With `new_store` files of an old one are set aside. Compaction keeps the last
        files it wrote, `keep` of them. With a public key the model file must be signed;
        what its store holds is trusted as the files of its owner.
        """
        if key is not None:
            check_signature(path, key)
        self.identity = identity_of(path)
        self.path, self._device, self._compacted = path, device, 0
        self._changing, self._compacting = threading.RLock(), threading.Lock()
        self._keep, self._key = keep, key
        self.has_begun_store, model = False, None
        if new_store:
            model = self._load_file()
            begin_anew(store, self.identity)
        try:
            self.store: Store = open_store(
                store, self.identity, begin=False, accept_loss=accept_loss
            )
        except NoStore:
            model = model or self._load_file()  # what is none begins no store
            if not new_store:
                self._check_is_first(store)
            self.store = open_store(store, self.identity)
            self.has_begun_store = True
        try:
            self._begin(model)
        except BaseException:
            self.store.close()
            raise

    def _load_file(self) -> Model:
        model: Model = load_model(self.path, self._device, key=self._key)
        return model

    def _check_is_first(self, store: str | Path) -> None:
        """Refuse to begin a store where there must have been one."""
        if left := compacted.written_beside(self.path):
            place = store if is_file(store) else "the database"
            raise StoreDamaged(
                f"a store that was there must be there again, however {place} has none,"
                f" and {left[-1].name} tells that there was one: bring it back, restore"
                " a backup (`tabr restore`), or begin anew with --new-store"
            )

    def _begin(self, model: Model | None = None) -> None:
        """Begin from the store's checkpoint, or the model file, and its changes."""
        checkpoint, changes = self.store.beginning()
        if checkpoint is None:
            model = model or self._load_file()
        else:
            self._compacted, content = checkpoint
            with compacted.unnamed(content) as name:
                model = load_model(name, self._device)
        self.schema = Schema(model)
        self._state = self._replayed(State(model, self._compacted), changes)

    # --- the present state ----------------------------------------------------------

    @property
    def model(self) -> Model:
        """The model as it is now."""
        return self._state.model

    @property
    def applied(self) -> int:
        """The number of changes made so far."""
        return self._state.applied

    @property
    def version(self) -> str:
        """The name of the present state: of the model file and its changes."""
        return self._version(self._state)

    def _version(self, state: State) -> str:
        return f"{self.identity[:12]}-{state.applied}"

    @property
    def n_uncompacted(self) -> int:
        """The number of changes that no model file holds yet."""
        return self.applied - self._compacted

    def about(self) -> dict[str, Any]:
        """Return what a client must know of the model."""
        classes, place = _classes(self.model), self.schema.place
        return {
            "version": self.version,
            "task": "regression" if classes is None else "classification",
            "target": self.model.target_name_,
            "classes": classes,
            "n_candidates": len(self.model.candidates_),
            "n_members": len(self.model.members_),
            "context_size": self.model.context_size_,
            "tabr": __version__,
            "columns": self.schema.columns,
            "place": None if place is None else place._asdict(),
        }

    def sample(self, n: int) -> list[dict[str, Any]]:
        """Return n candidates, spread evenly over all."""
        candidates = self.model.candidates_
        n = min(n, len(candidates))
        positions = np.linspace(0, len(candidates) - 1, n).round().astype(int)
        ids = np.asarray(candidates.ids)[np.unique(positions)]
        rows = self.schema.to_rows(candidates.look_up(ids))
        labels = plain_list(candidates.y_of(ids))
        return [
            {"id": plain(id_), "label": label, "row": row}
            for id_, label, row in zip(ids, labels, rows, strict=True)
        ]

    # --- answers --------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The present state, for an answer that takes several predictions."""
        return self._state

    def predict(
        self,
        frame: pd.DataFrame,
        coverages: Sequence[float],
        state: State | None = None,
    ) -> tuple[str, list[dict[str, Any]]]:
        """Predict rows by one search, each row with its own coverage.

        Returns the version that answered, and for each row the prediction, its interval
        or set of classes, and how typical the row is.
        """
        state = state or self._state
        signals = state.model.signals(frame)
        answers: list[dict[str, Any]] = [{}] * len(frame)
        for coverage in sorted(set(coverages)):
            index = np.flatnonzero(np.asarray(coverages) == coverage)
            predictions = _predictions(state.model, signals.take(index), coverage)
            for k, prediction in zip(index, predictions, strict=True):
                answers[k] = prediction
        return self._version(state), answers

    def explain(
        self, frame: pd.DataFrame, coverage: float, top: int
    ) -> tuple[str, list[dict[str, Any]]]:
        """Predict rows, with the effects of their neighbours; `top` are listed."""
        state = self._state
        explanation = state.model.explain(frame)
        values = explanation.probabilities
        if values is None:
            values = explanation.predictions
        signals = Signals(values, explanation.table, explanation.labels)
        predictions = _predictions(state.model, signals, coverage)
        neighbors = explanation.neighbors
        rows = dict(zip(neighbors.index, self.schema.to_rows(neighbors), strict=True))
        answers = [
            {**prediction, **_origin(explanation, k, top, rows)}
            for k, prediction in enumerate(predictions)
        ]
        return self._version(state), answers

    # --- changes --------------------------------------------------------------------

    def add(
        self,
        rows: list[Row],
        labels: list[Any],
        key: str | None = None,
        who: str | None = None,
    ) -> ChangeResult:
        """Add labelled rows to the candidates, durably."""
        return self._change("add", {"rows": rows, "labels": labels}, key, who)

    def relabel(
        self,
        ids: list[int],
        labels: list[Any],
        key: str | None = None,
        who: str | None = None,
    ) -> ChangeResult:
        """Give candidates other labels, durably."""
        return self._change("relabel", {"ids": ids, "labels": labels}, key, who)

    def remove(
        self, ids: list[int], key: str | None = None, who: str | None = None
    ) -> ChangeResult:
        """Remove candidates, durably."""
        return self._change("remove", {"ids": ids}, key, who)

    def _change(
        self,
        kind: ChangeKind,
        payload: dict[str, Any],
        key: str | None,
        who: str | None,
    ) -> ChangeResult:
        fingerprint = json_text([kind, payload], sort_keys=True)
        with self._changing:
            changed = self.model

            def make(newer: list[Change]) -> NewChange:
                nonlocal changed
                self._state = self._replayed(self._state, newer)
                changed, ids = self._changed(self.model, kind, payload)
                version = self._version(State(changed, self.applied + 1))
                n = len(changed.candidates_)
                response = {"ids": ids, "n_candidates": n, "version": version}
                if "labels" in payload:
                    response["doubt"] = changed.label_doubt(payload["labels"])
                return kind, payload, response

            change, is_new = self._from_store(
                lambda applied: self.store.append(
                    make, after=applied, key=key, fingerprint=fingerprint, who=who
                )
            )
            if is_new:
                self._state = State(changed, change.seq)
            # Of older changes a store may know the ids alone.
            n, version = len(self.model.candidates_), self.version
            present = {"n_candidates": n, "version": version}
            return ChangeResult(**{**present, **change.response})

    def _from_store(self, call: Callable[[int], Result]) -> Result:
        """Call the store with the number of the last change that was applied.

        Where another service has compacted later changes, its checkpoint is loaded;
        it may have done so again meanwhile.
        """
        for _ in range(MOST_TRIES):
            try:
                return call(self.applied)
            except ChangesCompacted:
                self._begin()
        return call(self.applied)

    def _changed(
        self, model: Model, kind: ChangeKind, payload: dict[str, Any]
    ) -> tuple[Model, list[int]]:
        """Return a changed copy of a model, and the ids of candidates concerned."""
        model = copy.copy(model)
        if kind == "add":
            frame = self.schema.to_frame(payload["rows"])
            return model, plain_list(model.add_candidates(frame, payload["labels"]))
        if kind == "remove":
            model.remove_candidates(payload["ids"])
        else:
            model.relabel_candidates(payload["ids"], payload["labels"])
        return model, payload["ids"]

    def _replayed(self, state: State, changes: Sequence[Change]) -> State:
        """Return the state after further changes; rows are added together."""
        for seq, kind, payload, expected in _together(changes):
            changed, ids = self._changed(state.model, kind, payload)
            if ids != expected:
                raise DataError(
                    f"change {seq} of the store must give the ids that it gave before,"
                    " however it gives others: the store is not of this model"
                )
            state = State(changed, seq)
        return state

    def catch_up(self) -> int:
        """Apply the store's newer changes; return their number."""
        with self._changing:
            before = self.applied
            changes = self._from_store(self.store.changes)
            self._state = self._replayed(self._state, changes)
            return self.applied - before

    def compact(self, key: str | None = None) -> Compaction:
        """Write the present state as a model file, the store's new checkpoint.

        Meanwhile predictions and changes go on.
        """
        with self._compacting:
            with self._changing:
                if key is not None and (old := self.store.answer_to(key, COMPACT)):
                    return Compaction(**old)
                self.catch_up()
                state = self._state
            path = compacted.path_after(self.path, state.applied)
            try:
                content = compacted.write(state.model, path)
            except OSError as error:
                raise StoreError(
                    f"a model file with all changes must be written, however {path}"
                    f" cannot be ({error.strerror}): nothing was changed"
                ) from error
            done = Compaction(version=self._version(state), file=path.name)
            answer = None if key is None else (key, COMPACT, done.model_dump())
            self.store.compact(state.applied, content, answer)
            self._compacted = max(self._compacted, state.applied)
            with contextlib.suppress(OSError):  # the next time, then
                compacted.remove_old(self.path, self._keep)
            return done

    def learn_of_compaction(self) -> None:
        """Find out how many changes others have compacted."""
        self._compacted = max(self._compacted, self.store.n_compacted())

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def _together(
    changes: Sequence[Change],
) -> Iterator[tuple[int, ChangeKind, dict[str, Any], list[int]]]:
    """Yield changes with their ids; additions that follow one another are one."""
    rows: list[Row] = []
    labels: list[Any] = []
    ids: list[int] = []
    for change, after in zip_longest(changes, changes[1:]):
        if change.kind != "add":
            yield change.seq, change.kind, change.payload, change.response["ids"]
            continue
        rows += change.payload["rows"]
        labels += change.payload["labels"]
        ids += change.response["ids"]
        if after is None or after.kind != "add" or len(rows) >= MOST_ROWS:
            yield change.seq, "add", {"rows": rows, "labels": labels}, ids
            rows, labels, ids = [], [], []


def _classes(model: Model) -> list[Any] | None:
    """Return the classes as JSON has them; None for a regressor."""
    if isinstance(model, TabRClassifier):
        return plain_list(model.classes_)
    return None


def _predictions(
    model: Model, signals: Signals, coverage: float
) -> list[dict[str, Any]]:
    """Return numbers with intervals, or classes with probabilities and sets."""
    calibration, values = model.calibration_, signals.predictions
    typicality = plain_list(calibration.typicality(signals.table))
    classes = _classes(model)
    if classes is None:
        ends = intervals(calibration, coverage, signals)
        return [
            {"prediction": plain(value), "interval": plain_list(pair), "typicality": t}
            for value, pair, t in zip(values, ends, typicality, strict=True)
        ]
    names = [str(name) for name in classes]
    members = sets(calibration, coverage, values)
    return [
        {
            "prediction": classes[int(probabilities.argmax())],
            "probabilities": dict(zip(names, plain_list(probabilities), strict=True)),
            "set": [classes[j] for j in np.flatnonzero(is_member)],
            "typicality": t,
        }
        for probabilities, is_member, t in zip(values, members, typicality, strict=True)
    ]


def _origin(
    explanation: Explanation, k: int, top: int, rows: Mapping[Any, dict[str, Any]]
) -> dict[str, Any]:
    """Return the origin of the prediction for row k: the shares of its neighbours."""
    table, corrections = explanation.table, explanation.corrections
    order = np.flatnonzero(table.ids[k] >= 0)
    neighbors = []
    for j in order[:top]:
        neighbor = {
            "id": plain(table.ids[k, j]),
            "label": plain(explanation.labels[k, j]),
            "weight": plain(table.weights[k, j]),
            "effect": plain(explanation.effects[k, j]),
            "distance": plain(table.distances[k, j]),
            "row": rows[table.ids[k, j]],
        }
        if corrections is not None:
            neighbor["correction"] = plain(corrections[k, j])
        neighbors.append(neighbor)
    rest = order[top:]
    return {
        "usual": plain(explanation.usual[k]),
        "alone": plain(explanation.alone[k]),
        "share": plain(explanation.share[k]),
        "members": explanation.members.of_row(k),
        "neighbors": neighbors,
        "others": {
            "count": len(rest),
            "weight": plain(table.weights[k, rest].sum()),
            "effect": plain(explanation.effects[k, rest].sum()),
        },
    }

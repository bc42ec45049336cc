"""A fitted model in use: it answers, and its candidates change durably.

A change is first prepared on a copy, then committed to the store, then used. So an
acknowledged change survives the process, and one that cannot be kept is never seen.
"""

from __future__ import annotations

import copy
import hashlib
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from tabr import TabRClassifier, TabRRegressor, __version__
from tabr.errors import DataError
from tabr.estimators import load_model
from tabr.prediction.explanation import Explanation
from tabr.prediction.uncertainty import Signals, intervals, sets
from tabr.serving.messages import ChangeResult, Row, Schema
from tabr.serving.store.changes import (
    Change,
    ChangeKind,
    ChangesCompacted,
    NewChange,
    Store,
    open_store,
)
from tabr.serving.store.connection import NoStore
from tabr.text import json_text, plain, plain_list

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
        self, path: Path, store: str | Path, device: str | None = None
    ) -> None:
        """Load the store's checkpoint, or else the model file, and replay the rest.

        A store is begun only after its model file was loaded, and opened only for the
        same bytes. So a file with a checkpoint need not be loaded again to be checked.
        """
        with path.open("rb") as file:
            self.identity = hashlib.file_digest(file, "sha256").hexdigest()
        self.path, self._device, self._compacted = path, device, 0
        self._changing = threading.RLock()
        model = None
        try:
            self.store: Store = open_store(store, self.identity, begin=False)
        except NoStore:
            model = load_model(path, device)  # what is no model begins no store
            self.store = open_store(store, self.identity)
        if not self._load_checkpoint():
            self._state = State(model or load_model(path, device), 0)
        self.schema = Schema(self.model)
        self.catch_up()

    def _load_checkpoint(self) -> bool:
        """Begin from the checkpoint of the store; return whether there is one."""
        checkpoint = self.store.checkpoint()
        if checkpoint is None:
            return False
        self._compacted, content = checkpoint
        with tempfile.NamedTemporaryFile(suffix=".tabr") as file:
            file.write(content)
            file.flush()
            model = load_model(file.name, self._device)
        self._state = State(model, self._compacted)
        return True

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
        self, rows: list[Row], labels: list[Any], key: str | None = None
    ) -> ChangeResult:
        """Add labelled rows to the candidates, durably."""
        return self._change("add", {"rows": rows, "labels": labels}, key)

    def relabel(
        self, ids: list[int], labels: list[Any], key: str | None = None
    ) -> ChangeResult:
        """Give candidates other labels, durably."""
        return self._change("relabel", {"ids": ids, "labels": labels}, key)

    def remove(self, ids: list[int], key: str | None = None) -> ChangeResult:
        """Remove candidates, durably."""
        return self._change("remove", {"ids": ids}, key)

    def _change(
        self, kind: ChangeKind, payload: dict[str, Any], key: str | None
    ) -> ChangeResult:
        fingerprint = json_text([kind, payload], sort_keys=True)
        with self._changing:
            changed = self.model

            def make(newer: list[Change]) -> NewChange:
                nonlocal changed
                self._replay(newer)
                changed, ids = self._changed(kind, payload)
                return kind, payload, {"ids": ids}

            change, is_new = self._from_store(
                lambda applied: self.store.append(
                    make, after=applied, key=key, fingerprint=fingerprint
                )
            )
            if is_new:
                self._state = State(changed, change.seq)
            return ChangeResult(
                ids=change.response["ids"],
                n_candidates=len(self.model.candidates_),
                version=self.version,
            )

    def _from_store(self, call: Callable[[int], Result]) -> Result:
        """Call the store with the number of the last change that was applied.

        Where another service has compacted later changes, its checkpoint is loaded.
        """
        try:
            return call(self.applied)
        except ChangesCompacted:
            self._load_checkpoint()
            return call(self.applied)

    def _changed(
        self, kind: ChangeKind, payload: dict[str, Any]
    ) -> tuple[Model, list[int]]:
        """Return a changed copy of the model, and the ids of candidates concerned."""
        model = copy.copy(self.model)
        if kind == "add":
            frame = self.schema.to_frame(payload["rows"])
            return model, plain_list(model.add_candidates(frame, payload["labels"]))
        if kind == "remove":
            model.remove_candidates(payload["ids"])
        else:
            model.relabel_candidates(payload["ids"], payload["labels"])
        return model, payload["ids"]

    def _replay(self, changes: Sequence[Change]) -> None:
        for change in changes:
            changed, ids = self._changed(change.kind, change.payload)
            if ids != change.response["ids"]:
                raise DataError(
                    f"change {change.seq} of the store must give the ids that it gave"
                    f" before, however it gives others: the store is not of this model"
                )
            self._state = State(changed, change.seq)

    def catch_up(self) -> int:
        """Apply the store's newer changes; return their number."""
        with self._changing:
            changes = self._from_store(self.store.changes)
            self._replay(changes)
            return len(changes)

    def compact(self) -> Path:
        """Write the present state as a model file, the store's new checkpoint."""
        with self._changing:
            self.catch_up()
            path = self.path.with_name(f"{self.path.stem}-{self.applied}.tabr")
            self.model.save(path)
            self.store.compact(self.applied, path.read_bytes())
            self._compacted = self.applied
            return path

    def close(self) -> None:
        """Close the store."""
        self.store.close()


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

"""A fitted model in use: it answers, and its memory changes durably.

A change is first prepared on a copy, then committed to the store, then used. So an
acknowledged change survives the process, and one that cannot be kept is never seen.
"""

from __future__ import annotations

import copy
import hashlib
import json
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr import TabRClassifier, TabRRegressor, __version__
from tabr.errors import DataError
from tabr.estimators import load_model
from tabr.prediction.explanation import NeighborTable
from tabr.prediction.uncertainty import intervals, sets
from tabr.serving.schema import Row, Schema
from tabr.serving.store import Behind, Change, ChangeKind, NoStore, Store, open_store
from tabr.text import plain, plain_list

Model = TabRRegressor | TabRClassifier


class UnknownIds(KeyError):
    """Ids that no candidate has."""


class Answered(NamedTuple):
    """What a change has led to."""

    ids: list[int]
    n_candidates: int
    version: str


def _load(content: bytes, device: str | None) -> Model:
    with tempfile.NamedTemporaryFile(suffix=".tabr") as file:
        file.write(content)
        file.flush()
        return load_model(file.name, device)


class State(NamedTuple):
    """A model and the number of changes that it has seen; it is never changed."""

    model: Model
    applied: int


class ServedModel:
    """A model, its store, and all that may be asked of both.

    Any thread may ask, and sees one state from beginning to end; changes wait for one
    another and make a new state.
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
        self._changing = threading.Lock()
        model = None
        try:
            self.store: Store = open_store(store, self.identity, begin=False)
        except NoStore:
            model = load_model(path, device)  # what is no model begins no store
            self.store = open_store(store, self.identity)
        if not self._begin_from_checkpoint():
            self._state = State(model or load_model(path, device), 0)
        self.schema = Schema(self.model)
        with self._changing:
            self._replay(self._newer())

    def _begin_from_checkpoint(self) -> bool:
        """Load the model file that the store keeps; tell whether there is one."""
        checkpoint = self.store.checkpoint()
        if checkpoint is None:
            return False
        self._compacted, content = checkpoint
        self._state = State(_load(content, self._device), self._compacted)
        return True

    def _newer(self) -> list[Change]:
        """Return what is committed and not applied, whoever has compacted meanwhile."""
        try:
            return self.store.changes(self.applied)
        except Behind:
            self._begin_from_checkpoint()
            return self.store.changes(self.applied)

    # --- what it is -----------------------------------------------------------------

    @property
    def model(self) -> Model:
        """Return the model as it is now."""
        return self._state.model

    @property
    def applied(self) -> int:
        """Return how many changes have been made."""
        return self._state.applied

    @property
    def version(self) -> str:
        """Return a name of the present state: of the model file and its changes."""
        return self._version(self._state)

    def _version(self, state: State) -> str:
        return f"{self.identity[:12]}-{state.applied}"

    @property
    def n_uncompacted(self) -> int:
        """Return how many changes no model file holds yet."""
        return self.applied - self._compacted

    def about(self) -> dict[str, Any]:
        """Return what a client must know."""
        classes, place = _classes(self.model), self.schema.place
        return {
            "version": self.version,
            "task": "regression" if classes is None else "classification",
            "target": self.model.target_name_,
            "classes": classes,
            "n_candidates": len(self.model.candidates_),
            "n_members": len(self.model.members_),
            "context_size": self.model.context_size,
            "tabr": __version__,
            "columns": [
                {
                    "name": c.name,
                    "kind": c.kind,
                    "levels": None if c.levels is None else list(c.levels),
                    "low": c.low,
                    "high": c.high,
                    "median": c.median,
                    "example": c.example,
                }
                for c in self.schema.columns
            ],
            "place": None if place is None else place._asdict(),
        }

    def sample(self, n: int) -> list[dict[str, Any]]:
        """Return candidates spread evenly over the memory."""
        candidates = self.model.candidates_
        n = min(n, len(candidates))
        places = np.linspace(0, len(candidates) - 1, n).round().astype(int)
        ids = np.asarray(candidates.ids)[np.unique(places)]
        return self._candidates(ids, candidates)

    def _candidates(self, ids: NDArray[Any], candidates: Any) -> list[dict[str, Any]]:
        rows = self.schema.to_rows(candidates.look_up(ids))
        labels = plain_list(candidates.y_of(ids))
        return [
            {"id": int(i), "label": label, "row": row}
            for i, label, row in zip(ids, labels, rows, strict=True)
        ]

    # --- answers --------------------------------------------------------------------

    def predict(
        self, frame: pd.DataFrame, coverages: Sequence[float]
    ) -> tuple[str, list[dict[str, Any]]]:
        """Predict rows by one search, each with a coverage of its own.

        Returns the version that was asked; for each row the prediction, how sure it is
        and how typical the row is.
        """
        state = self._state
        prediction, table, labels = state.model.signals(frame)
        answers: list[dict[str, Any]] = [{}] * len(frame)
        for coverage in sorted(set(coverages)):
            index = np.flatnonzero(np.asarray(coverages) == coverage)
            part = NeighborTable(
                table.ids[index], table.weights[index], table.distances[index]
            )
            found = _predictions(
                state.model, prediction[index], part, labels[index], coverage
            )
            for k, answer in zip(index, found, strict=True):
                answers[k] = answer
        return self._version(state), answers

    def matched(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a table of a client's with the columns of the model."""
        found: pd.DataFrame = self.model.preprocessor_.match(frame, caller="The model")
        return found

    def explain(
        self, frame: pd.DataFrame, coverage: float, top: int
    ) -> tuple[str, list[dict[str, Any]]]:
        """Predict rows, and say what each neighbour did to the prediction."""
        state = self._state
        found = state.model.explain(frame)
        of_all = found.probabilities
        predictions = _predictions(
            state.model,
            found.predictions if of_all is None else of_all,
            found.table,
            found.labels,
            coverage,
        )
        neighbors = found.neighbors
        rows = dict(zip(neighbors.index, self.schema.to_rows(neighbors), strict=True))
        answers = []
        for k, said in enumerate(predictions):
            there = found.table.ids[k] >= 0
            shown = np.flatnonzero(there)[:top]
            rest = np.flatnonzero(there)[top:]
            listed = []
            for j in shown:
                name = found.table.ids[k, j]
                one = {
                    "id": int(name),
                    "label": plain(found.labels[k, j]),
                    "weight": plain(found.table.weights[k, j]),
                    "effect": plain(found.effects[k, j]),
                    "distance": plain(found.table.distances[k, j]),
                    "row": rows[name],
                }
                if found.corrections is not None:
                    one["correction"] = plain(found.corrections[k, j])
                listed.append(one)
            answers.append(
                {
                    **said,
                    "usual": plain(found.usual[k]),
                    "alone": plain(found.alone[k]),
                    "share": plain(found.share[k]),
                    "neighbors": listed,
                    "others": {
                        "count": len(rest),
                        "weight": float(found.table.weights[k, rest].sum()),
                        "effect": float(found.effects[k, rest].sum()),
                    },
                }
            )
        return self._version(state), answers

    # --- changes --------------------------------------------------------------------

    def add(
        self, rows: Sequence[Row], labels: Sequence[Any], key: str | None = None
    ) -> Answered:
        """Add labelled rows, durably; return their ids."""
        payload = {"rows": [dict(row) for row in rows], "labels": list(labels)}
        return self._change("add", payload, key)

    def relabel(
        self, ids: Sequence[int], labels: Sequence[Any], key: str | None = None
    ) -> Answered:
        """Give candidates other labels, durably."""
        return self._change("relabel", {"ids": list(ids), "labels": list(labels)}, key)

    def remove(self, ids: Sequence[int], key: str | None = None) -> Answered:
        """Remove candidates, durably."""
        return self._change("remove", {"ids": list(ids)}, key)

    def _change(
        self, kind: ChangeKind, payload: dict[str, Any], key: str | None
    ) -> Answered:
        fingerprint = json.dumps([kind, payload], sort_keys=True)
        with self._changing:
            prepared: list[Model] = []

            def make(
                newer: list[Change],
            ) -> tuple[ChangeKind, dict[str, Any], dict[str, Any]]:
                self._replay(newer)
                trial = copy.copy(self.model)
                ids = self._apply(trial, kind, payload)
                prepared.append(trial)
                return kind, payload, {"ids": ids}

            how: dict[str, Any] = {"key": key, "fingerprint": fingerprint}
            try:
                change, is_new = self.store.append(make, after=self.applied, **how)
            except Behind:  # another service has compacted
                self._begin_from_checkpoint()
                change, is_new = self.store.append(make, after=self.applied, **how)
            if is_new:
                self._state = State(prepared[0], change.seq)
            n = len(self.model.candidates_)
            return Answered(change.response["ids"], n, self.version)

    def _apply(
        self, model: Model, kind: ChangeKind, payload: dict[str, Any]
    ) -> list[int]:
        """Change a model in place; return the ids that were changed."""
        if kind == "add":
            frame = self.schema.to_frame(payload["rows"])
            return [int(i) for i in model.add_candidates(frame, payload["labels"])]
        try:
            model.candidates_.positions(payload["ids"])
        except KeyError as error:
            raise UnknownIds(error.args[0]) from None
        if kind == "remove":
            model.remove_candidates(payload["ids"])
        else:
            model.relabel_candidates(payload["ids"], payload["labels"])
        return list(payload["ids"])

    def _replay(self, changes: Sequence[Change]) -> None:
        for change in changes:
            trial = copy.copy(self.model)
            ids = self._apply(trial, change.kind, change.payload)
            if ids != change.response["ids"]:
                raise DataError(
                    f"change {change.seq} of the store must give the ids that it gave"
                    f" before, however it gives others: the store is not of this model"
                )
            self._state = State(trial, change.seq)

    def catch_up(self) -> int:
        """Apply what others have committed to a shared store; return how much."""
        with self._changing:
            newer = self._newer()
            self._replay(newer)
            return len(newer)

    def compact(self) -> Path:
        """Write the present state as a model file, and let the store begin from it."""
        with self._changing:
            self._replay(self._newer())
            path = self.path.with_name(f"{self.path.stem}-{self.applied}.tabr")
            self.model.save(path)
            self.store.compact(self.applied, path.read_bytes())
            self._compacted = self.applied
            return path

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()


def _classes(model: Model) -> list[Any] | None:
    """Return the classes as JSON has them, or None."""
    if isinstance(model, TabRClassifier):
        return plain_list(model.classes_)
    return None


def _predictions(
    model: Model,
    prediction: NDArray[np.float64],
    table: NeighborTable,
    labels: NDArray[Any],
    coverage: float,
) -> list[dict[str, Any]]:
    """Return values with intervals, or classes with probabilities and sets."""
    calibration = model.calibration_
    typicality = plain_list(calibration.typicality(table))
    classes = _classes(model)
    if classes is None:
        ends = intervals(calibration, coverage, prediction, table, labels)
        return [
            {"prediction": plain(p), "interval": plain_list(i), "typicality": t}
            for p, i, t in zip(prediction, ends, typicality, strict=True)
        ]
    names = [str(name) for name in classes]
    inside = sets(calibration, coverage, prediction)
    return [
        {
            "prediction": classes[int(shares.argmax())],
            "probabilities": dict(zip(names, plain_list(shares), strict=True)),
            "set": [c for c, yes in zip(classes, chosen, strict=True) if yes],
            "typicality": t,
        }
        for shares, chosen, t in zip(prediction, inside, typicality, strict=True)
    ]

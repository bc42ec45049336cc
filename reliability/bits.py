"""One version of a model, one answer: rows asked alone, in batches, after a load."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reliability.trials import Trial
from tabr import TabRClassifier, TabRRegressor

Answers = list[np.ndarray[Any, Any]]

N_ROWS = 40  # that are asked at each version
LOADED_EVERY = 10  # versions


def table(n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Return rows, half of them copies of twelve, and labels that differ."""
    few = np.random.default_rng(0).integers(-1, 2, (12, 5)).astype(float)
    numbers = np.where(
        rng.random((n, 1)) < 0.5, few[rng.integers(0, 12, n)], rng.normal(size=(n, 5))
    )
    frame = pd.DataFrame(numbers, columns=list("abcde"))
    frame["town"] = rng.choice(["x", "y", "z"], n)
    return frame, numbers[:, 0] + rng.normal(size=n)


def models() -> Iterator[tuple[str, Any]]:
    """Yield small models by name, fitted."""
    frame, y = table(400, np.random.default_rng(1))
    small: dict[str, Any] = {"max_epochs": 2, "random_state": 0, "device": "cpu"}
    classes = np.digitize(y, [-0.5, 0.5])
    yield "numbers", TabRRegressor(n_members=1, **small).fit(frame, y)
    yield "classes", TabRClassifier(n_members=2, **small).fit(frame, classes)
    paper = TabRRegressor(preset="paper", encoder_blocks=1, **small)
    yield "numbers, with an encoder", paper.fit(frame, y)


def run(n_versions: int, seed: int) -> list[Trial]:
    """Change models again and again, and ask each version in many ways."""
    return [_trial(name, model, n_versions, seed) for name, model in models()]


def _trial(name: str, model: Any, n_versions: int, seed: int) -> Trial:
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(("versions", "rows asked", "loads", "other bits"), 0)
    for version in range(n_versions):
        _change(model, rng)
        rows, _ = table(N_ROWS, rng)
        whole = _answers(model, rows)
        ways = [model]
        if version % LOADED_EVERY == 0:
            ways.append(_loaded(model))
            counts["loads"] += 1
        for way in ways:
            for part in _parts(rng):
                differ = [
                    (new != old[part]).reshape(len(part), -1).any(1)
                    for new, old in zip(
                        _answers(way, rows.iloc[part]), whole, strict=True
                    )
                ]
                counts["other bits"] += int(np.any(differ, 0).sum())
                counts["rows asked"] += len(part)
        counts["versions"] += 1
    tried = (
        "Rows, half of them copies, were added, removed and relabelled at random. At"
        f" each version {N_ROWS} rows were asked together, alone and in batches of any"
        f" size and order, and at one in {LOADED_EVERY} of a saved and loaded model:"
        " predictions, neighbours, weights and distances."
    )
    title = f"One version, one answer: {name}"
    return Trial(title, tried, counts, held=counts["other bits"] == 0)


def _change(model: Any, rng: np.random.Generator) -> None:
    """Add, remove or relabel a few candidates."""
    n = int(rng.integers(1, 8))
    kind = rng.choice(["add", "remove", "relabel"])
    labels = np.asarray(model.candidates_.y)
    if kind == "add":
        rows, _ = table(n, rng)
        model.add_candidates(rows, rng.choice(labels, n))
        return
    ids = rng.choice(model.candidates_.ids, n, replace=False)
    if kind == "remove":
        model.remove_candidates(ids)
    else:
        model.relabel_candidates(ids, rng.choice(labels, n))


def _loaded(model: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tabr"
        model.save(path)
        return type(model).load(path, device="cpu")


def _parts(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """Return the rows in some order, cut into batches, two of them of one row."""
    cuts = np.sort(rng.integers(0, N_ROWS, 3))
    parts = np.split(rng.permutation(N_ROWS), [1, 2, *cuts])
    return [part for part in parts if len(part)]


def _answers(model: Any, rows: pd.DataFrame) -> Answers:
    near = model.neighbors(rows)
    ask = getattr(model, "predict_proba", model.predict)
    return [np.asarray(ask(rows)), near.ids, near.weights, near.distances]

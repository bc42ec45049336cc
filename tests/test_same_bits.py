"""One version of a model is one answer: the same bits for a row, on a CPU.

Alone or in a batch of any size, at any place in it; before and after save and load;
whatever the way by which the candidates came to be what they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tabr import PastOnly, TabRClassifier, TabRRegressor

pytest.importorskip("numba")

SMALL = {"max_epochs": 2, "random_state": 0, "device": "cpu"}


def table(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return rows, half of them copies of few, whose labels differ."""
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(generator.standard_normal((n, 5)), columns=list("abcde"))
    few = np.random.default_rng(0).integers(-1, 2, (12, 5)).astype(float)
    copies = generator.random(n) < 0.5
    frame.loc[copies] = few[generator.integers(0, len(few), copies.sum())]
    frame["town"] = generator.choice(["x", "y", "z"], n)
    frame["time"] = generator.integers(0, 50, n).astype(float)
    return frame, frame["a"].to_numpy() + generator.standard_normal(n)


def answers(model: Any, rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return all that a model says of rows."""
    found = model.explain(rows)
    table = model.neighbors(rows)
    said = {
        "predict": model.predict(rows),
        "ids": table.ids,
        "weights": table.weights,
        "distances": table.distances,
        "explained": found.predictions,
        "effects": found.effects,
        "alone": found.alone,
        "typicality": model.typicality(rows),
    }
    if found.corrections is not None:
        said["corrections"] = found.corrections
    if hasattr(model, "predict_proba"):
        said["proba"] = model.predict_proba(rows)
        said["sets"] = model.predict_set(rows, coverage=0.8)
    else:
        said["intervals"] = model.predict_interval(rows, coverage=0.8)
    return {name: np.asarray(values) for name, values in said.items()}


def check_same(a: dict[str, np.ndarray], b: dict[str, np.ndarray], what: str) -> None:
    """Check that two models, or two ways of asking one, say the same bits."""
    for name, values in a.items():
        differ = (values != b[name]).reshape(len(values), -1).any(1).sum()
        assert differ == 0, f"{what}: {name} differs for {differ} of {len(values)} rows"


def check_batches(model: Any, rows: pd.DataFrame, seed: int = 0) -> None:
    """Check that rows get the same answers in any batches and in any order."""
    whole = answers(model, rows)
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(rows))
    cuts = np.sort(generator.integers(0, len(rows), 4))
    parts = [part for part in np.split(order, [1, 2, *cuts]) if len(part)]
    for part in parts:
        expected = {name: values[part] for name, values in whole.items()}
        check_same(answers(model, rows.iloc[part]), expected, f"{len(part)} rows")


CASES: dict[str, tuple[type, dict[str, Any]]] = {
    "default": (TabRRegressor, {}),
    "broad": (TabRRegressor, {"width": 150}),
    "classes": (TabRClassifier, {"n_members": 2}),
    "paper": (TabRRegressor, {"preset": "paper"}),
    "encoder": (TabRRegressor, {"preset": "paper", "encoder_blocks": 1}),
    "lr": (TabRClassifier, {"preset": "paper", "embedding": "lr"}),
    "plr": (TabRRegressor, {"preset": "paper", "embedding": "plr"}),
    "plr-lite": (TabRRegressor, {"preset": "paper", "embedding": "plr-lite"}),
    "pbld": (TabRRegressor, {"embedding": "pbld"}),
    "pbld-fixed": (TabRRegressor, {"embedding": "pbld-fixed"}),
    "bins": (TabRClassifier, {"embedding": "bins", "n_heads": 4}),
    "heads": (TabRRegressor, {"n_heads": 8, "n_members": 2}),
    "dot": (TabRRegressor, {"preset": "paper", "retrieval": "step-0"}),
    "itself": (TabRClassifier, {"preset": "paper", "retrieval": "step-1"}),
    "rule": (TabRRegressor, {"candidates": PastOnly("time")}),
}


def fitted(case: str, n: int = 700) -> Any:
    kind, parameters = CASES[case]
    frame, y = table(n, seed=1)
    if kind is TabRClassifier:
        y = np.digitize(y, [-0.5, 0.5])
    n_members = parameters.get("n_members", 1)
    how = {**SMALL, "width": 24, "context_size": 30, **parameters}
    how["n_members"] = n_members
    return kind(**how).fit(frame, y)


@pytest.mark.parametrize("case", CASES)
def test_a_row_gets_the_same_bits_in_any_batch_and_after_save_and_load(
    case: str, tmp_path: Path
) -> None:
    model, (rows, _) = fitted(case), table(300, seed=2)
    check_batches(model, rows)
    before = answers(model, rows[:40])
    model.save(tmp_path / "m.tabr")
    again = type(model).load(tmp_path / "m.tabr", device="cpu")
    check_same(answers(again, rows[:40]), before, "load")


def changes(seed: int, alive: list[int], next_id: int) -> list[tuple[str, Any]]:
    """Return random changes of candidates with these ids; many rows are copies."""
    generator = np.random.default_rng(seed)
    steps: list[tuple[str, Any]] = []
    for _ in range(12):
        kind = generator.choice(["add", "remove", "relabel"])
        if kind == "add":
            size = int(generator.integers(1, 60))
            steps.append(("add", table(size, int(generator.integers(1 << 30)))))
            alive += range(next_id, next_id + size)
            next_id += size
            continue
        some = generator.choice(alive, int(generator.integers(1, 60)), replace=False)
        if kind == "remove":
            steps.append(("remove", some))
            alive = sorted(set(alive) - {*some.tolist()})
        else:
            steps.append(("relabel", (some, generator.standard_normal(len(some)))))
    return steps


def make(model: Any, change: tuple[str, Any], n_pieces: int) -> None:
    """Make a change of a model in so many pieces, which gives the same ids."""
    kind, what = change
    if kind == "remove":
        for part in np.array_split(what, min(n_pieces, len(what))):
            model.remove_candidates(part)
        return
    first, y = what
    for part in np.array_split(np.arange(len(y)), min(n_pieces, len(y))):
        if kind == "add":
            model.add_candidates(first.iloc[part], y[part])
        else:
            model.relabel_candidates(first[part], y[part])


@pytest.mark.parametrize("case", ["default", "encoder", "rule", "itself"])
def test_a_version_is_one_answer_however_it_came_about(
    case: str, tmp_path: Path
) -> None:
    first, rows = fitted(case, 400), table(40, seed=9)[0]
    first.save(tmp_path / "start.tabr")
    others = [type(first).load(tmp_path / "start.tabr") for _ in range(2)]
    classes = isinstance(first, TabRClassifier)
    first.predict(rows)  # its index is there, and follows the changes
    start = first.candidates_.ids.tolist(), first.candidates_.next_id
    for number, (kind, what) in enumerate(changes(3, *start)):
        if classes and kind != "remove":
            what = what[0], np.digitize(what[1], [-0.5, 0.5])
        for n_pieces, model in enumerate([first, *others], start=1):
            make(model, (kind, what), n_pieces * n_pieces)
        if number % 4 == 3:  # one is written and read between the changes
            others[0].save(tmp_path / "now.tabr")
            others[0] = type(first).load(tmp_path / "now.tabr")
            others[0].predict(rows[:1])
    expected = answers(first, rows)
    for model in others:
        np.testing.assert_array_equal(model.candidates_.ids, first.candidates_.ids)
        check_same(answers(model, rows), expected, "another way")


def test_of_copies_the_smaller_ids_are_neighbours() -> None:
    model = fitted("paper")
    row = table(1, seed=11)[0]
    copies = pd.concat([row] * 100, ignore_index=True)
    ids = model.add_candidates(copies, np.arange(100.0))
    model.remove_candidates(ids[:7])
    for batch in (row, pd.concat([row, table(300, seed=12)[0]])):
        assert model.neighbors(batch).ids[0].tolist() == ids[7:37].tolist()


def test_threads_change_no_bit() -> None:
    model, rows = fitted("encoder"), table(600, seed=2)[0]
    before, n_threads = answers(model, rows), torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        check_same(answers(model, rows), before, "three threads")
    finally:
        torch.set_num_threads(n_threads)

"""What is read from the results folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.paper.scores import Model, compare, place
from tabr.bench.ranks import Score
from tabr.bench.tasks.catalog import TASKS

from ..folders import add_runs, publish, results_of

MLP, TABR = Model("mlp"), Model("tabr-s", "default")
SCORES = st.builds(Score, st.floats(-10, 10), st.floats(0, 3))


def test_a_cell_is_the_mean_and_deviation_of_its_runs(tmp_path: Path) -> None:
    publish(tmp_path, {("california", "MLP", "single"): (0.5, 0.01)})
    add_runs(tmp_path, "california", "mlp-tuned", [0.4, 0.5, 0.9], workers=3)
    results = results_of(tmp_path)
    cell = results.ours.cell(MLP, "single", "california")
    assert cell is not None
    assert cell.score.mean == pytest.approx(0.6)
    assert cell.score.std == pytest.approx(np.std([0.4, 0.5, 0.9]))
    assert (cell.n_runs, cell.seconds, cell.hardware) == (3, 2.0, ("a GPU",))
    assert cell.workers == (3, 3)
    published = results.published.cell(MLP, "single", "california")
    assert published is not None
    assert (published.score, published.n_runs) == ((0.5, 0.01), 15)
    assert (published.seconds, published.hardware) == (30.0, ("A100",))


def test_the_runs_that_shared_the_hardware_least_tell_the_time(tmp_path: Path) -> None:
    publish(tmp_path, {("california", "MLP", "single"): (0.5, 0.01)})
    for workers, seconds in ((10, 30.0), (1, 4.0)):  # the last overwrites two seeds
        scores = [0.4, 0.5, 0.6, 0.7] if workers == 10 else [0.4, 0.5]
        facts = {"workers": workers, "seconds": seconds}
        add_runs(tmp_path, "california", "mlp-tuned", scores, **facts)
    cell = results_of(tmp_path).ours.cell(MLP, "single", "california")
    assert cell is not None
    assert (cell.n_runs, cell.seconds, cell.workers) == (4, 4.0, (1, 1))


def test_single_runs_and_ensembles_are_kept_apart(tmp_path: Path) -> None:
    publish(
        tmp_path,
        {
            ("adult", "TabR-S default", "single"): (0.8, 0.02),
            ("adult", "TabR-S default", "ensemble of 5"): (0.9, 0.01),
        },
    )
    add_runs(tmp_path, "adult", "tabr-s-default", [0.7, 0.7])
    add_runs(tmp_path, "adult", "tabr-s-default", [0.8, 0.8, 0.8], kind="ensemble")
    results = results_of(tmp_path)
    for scores, single, ensemble in (
        (results.ours, 0.7, 0.8),
        (results.published, 0.8, 0.9),
    ):
        for kind, mean in (("single", single), ("ensemble", ensemble)):
            cell = scores.cell(TABR, kind, "adult")
            assert cell is not None and cell.score.mean == pytest.approx(mean)
    assert results.ours.cell(TABR, "ensemble", "adult").n_runs == 3


def test_splits_are_pooled_with_the_same_weight(tmp_path: Path) -> None:
    publish(tmp_path, {})
    add_runs(tmp_path, "why/rl", "mlp-tuned", [0.5, 0.5, 0.5, 0.5], split=0)
    add_runs(tmp_path, "why/rl", "mlp-tuned", [0.7, 0.9], split=2)
    ours = results_of(tmp_path).ours
    assert ours.splits(MLP, "single", "why/rl") == {0, 2}
    cell = ours.cell(MLP, "single", "why/rl")
    assert cell is not None
    assert cell.score.mean == pytest.approx(0.65)  # not that of six runs
    assert cell.score.std == pytest.approx(np.std([0.5, 0.5, 0.7, 0.9]))
    some = ours.cell(MLP, "single", "why/rl", splits={2, 1})
    assert some is not None and some.score.mean == pytest.approx(0.8)
    assert ours.cell(MLP, "single", "why/rl", splits={1}) is None


def test_what_cannot_be_compared_is_left_out(tmp_path: Path) -> None:
    publish(tmp_path, {("california", "TabR-S CF-4", "single"): (0.5, 0.01)})
    add_runs(tmp_path, "california", "mlp-trial", [0.5])
    add_runs(tmp_path, "california", "forgotten-tuned", [0.5])
    add_runs(tmp_path, "why/jannis-part", "mlp-tuned", [0.5])
    results = results_of(tmp_path)
    assert results.ours.parts == {}
    assert results.published.parts == {}


def test_every_published_name_leads_to_its_task() -> None:
    for task in TASKS:
        label, split = place(task.published)
        assert split == task.split
        assert label == task.label.removesuffix("-part")


def test_the_measure_tells_what_is_better(tmp_path: Path) -> None:
    name = "why/classif-num-large-0-Higgs"
    publish(tmp_path, {(name, "MLP", "single"): (0.7, 0.1)})
    results = results_of(tmp_path)
    assert results.larger_is_better("adult")
    assert not results.larger_is_better("california")
    assert not results.larger_is_better("microsoft")  # no table of ours
    assert results.larger_is_better("why/Higgs")  # known by its figure alone


@given(SCORES, SCORES, st.booleans())
def test_a_comparison_is_by_the_deviation_of_the_better_one(first, second, larger):
    outcome = compare(first, second, larger_is_better=larger)
    assert compare(second, first, larger_is_better=larger) == -outcome
    better = (max if larger else min)(first, second, key=lambda score: score.mean)
    is_apart = abs(first.mean - second.mean) > better.std
    if first.mean != second.mean:
        assert outcome == is_apart * (1 if better is first else -1)


def test_the_standard_deviation_of_the_better_one_counts() -> None:
    precise, vague = Score(1.0, 0.01), Score(0.9, 5.0)
    assert compare(precise, vague, larger_is_better=True) == 1
    assert compare(precise, vague, larger_is_better=False) == 0

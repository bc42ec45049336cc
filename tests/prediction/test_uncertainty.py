"""Intervals and sets: what they cover, and who is far."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tabr import DataError, TabRClassifier, TabRRegressor
from tabr.prediction.explanation import NeighborTable
from tabr.prediction.uncertainty import (
    Calibration,
    Signals,
    calibrate,
    distance,
    intervals,
    sets,
    spreads,
)
from tabr.tables.targets import ClassTarget, NumberTarget


def neighbours(n: int, m: int = 8, seed: int = 0) -> tuple[NeighborTable, np.ndarray]:
    """Random neighbours whose labels spread differently from row to row."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(m), n)
    away = np.sort(rng.exponential(size=(n, m)), 1)
    ids = np.tile(np.arange(m), (n, 1))
    size = rng.uniform(0.2, 3, (n, 1))
    return NeighborTable(ids, weights, away), size * rng.normal(size=(n, m))


@pytest.mark.parametrize("unit", [1e-300, 1e-6, 1e300])
def test_spreads_have_the_unit_of_the_labels(unit: float) -> None:
    table, labels = neighbours(20)
    of_labels = spreads(Signals(np.zeros(20), table, labels))
    in_unit = spreads(Signals(np.zeros(20), table, labels * unit))
    np.testing.assert_allclose(in_unit / unit, of_labels)


def test_equal_labels_have_no_spread() -> None:
    table, labels = neighbours(20)
    equal = np.full_like(labels, 0.1)
    table.ids[3, 2:] = -1  # a row with few neighbours, and one with none
    table.ids[4] = -1
    assert (spreads(Signals(np.zeros(20), table, equal)) == 0).all()


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("n", [30, 400])
def test_intervals_cover_what_they_state(coverage: float, n: int) -> None:
    """On average over calibrations, never less and hardly more."""
    covered = []
    for seed in range(120):
        table, labels = neighbours(n + 200, seed=seed)
        rng = np.random.default_rng(1000 + seed)
        prediction = rng.normal(size=n + 200)
        truth = prediction + rng.standard_t(3, n + 200) * spreads(
            Signals(prediction, table, labels)
        )
        parts = [
            (prediction[s], NeighborTable(*(a[s] for a in table)), labels[s], truth[s])
            for s in (slice(0, n), slice(n, None))
        ]
        (p, t, y, truth_held), (p_new, t_new, y_new, truth_new) = parts
        learned = calibrate(Signals(p, t, y), truth_held, NumberTarget())
        new = Signals(p_new, t_new, y_new)
        low, high = intervals(learned, coverage, new).T
        covered.append(np.mean((low <= truth_new) & (truth_new <= high)))
    error = np.std(covered) / np.sqrt(len(covered))
    assert coverage - 4 * error <= np.mean(covered)
    assert np.mean(covered) <= coverage + 1 / (n + 1) + 4 * error


def test_intervals_are_shorter_where_neighbours_agree() -> None:
    table, labels = neighbours(300)
    labels[:100] *= 0.01
    zeros = np.zeros(300)
    signals = Signals(zeros, table, labels)
    learned = calibrate(signals, labels.mean(1), NumberTarget())
    low, high = intervals(learned, 0.9, signals).T
    assert (high - low)[:100].max() < np.median((high - low)[100:])


@pytest.mark.parametrize("coverage", [0.6, 0.9])
def test_sets_cover_what_they_state(coverage: float) -> None:
    covered, sizes = [], []
    target = ClassTarget().fit([0, 1, 2, 3])
    for seed in range(100):
        rng = np.random.default_rng(seed)
        p = rng.dirichlet(np.ones(4) * 0.5, 500)
        truth = np.array([rng.choice(4, p=row) for row in p])
        table, _ = neighbours(500, seed=seed)
        held = NeighborTable(*(a[:250] for a in table))
        signals = Signals(p[:250], held, np.zeros_like(held.ids))
        learned = calibrate(signals, truth[:250], target)
        inside = sets(learned, coverage, p[250:])
        covered.append(inside[np.arange(250), truth[250:]].mean())
        sizes.append(inside.sum(1).min())
    assert np.mean(covered) >= coverage - 4 * np.std(covered) / 10
    assert min(sizes) >= 1


def test_too_few_rows_for_a_coverage_are_refused() -> None:
    learned = Calibration(np.arange(20.0), np.arange(20.0), 1.0)
    assert learned.limit(0.95) == 19
    with pytest.raises(DataError, match=r"needs 99 rows .* there are 20"):
        learned.limit(0.99)
    with pytest.raises(ValueError, match="0 < coverage < 1"):
        learned.limit(95)


def test_typicality_is_the_share_of_rows_that_are_as_far() -> None:
    table, _ = neighbours(99)
    learned = Calibration(np.zeros(99), np.sort(distance(table)), 0.0)
    shares = learned.typicality(table)
    assert sorted(shares.round(2)) == [round((k + 2) / 100, 2) for k in range(99)]
    far = NeighborTable(table.ids[:1], table.weights[:1], table.distances[:1] + 1e6)
    nobody = NeighborTable(
        np.full((1, 3), -1), np.zeros((1, 3)), np.full((1, 3), np.inf)
    )
    assert learned.typicality(far) == learned.typicality(nobody) == 0.01


def test_rows_without_neighbours_have_a_width_too() -> None:
    nobody = NeighborTable(
        np.full((2, 3), -1), np.zeros((2, 3)), np.full((2, 3), np.inf)
    )
    assert spreads(Signals(np.zeros(2), nobody, np.zeros((2, 3)))).tolist() == [0, 0]
    assert np.isinf(distance(nobody)).all()


# --- through the estimators ---------------------------------------------------

SMALL: dict[str, Any] = {
    "width": 16, "context_size": 12, "max_epochs": 6, "learning_rate": 0.01,
    "device": "cpu", "random_state": 0,
}  # fmt: skip


def table(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    noise = rng.normal(size=n) * np.where(X.a > 0, 1.0, 0.1)
    return X, (X.a + X.b * 2 + noise).to_numpy()


def covered(model: TabRRegressor) -> float:
    """Return the share of new rows that lie in their intervals for 80 %."""
    new, truth = table(1500, 1)
    low, high = model.predict_interval(new, 0.8).T
    return float(np.mean((low <= truth) & (truth <= high)))


def test_intervals_hold_their_share_of_new_rows() -> None:
    held_out, given = [], []
    for seed in (0, 3, 4, 5):  # a single sample of 80 or 500 rows tells little
        model = TabRRegressor(**SMALL).fit(*table(400, seed))
        held_out.append(covered(model))
        assert model.calibrate(*table(500, 10 + seed)) is model
        given.append(covered(model))
    assert np.mean(held_out) == pytest.approx(0.8, abs=0.06)
    assert np.mean(given) == pytest.approx(0.8, abs=0.04)


def test_a_model_states_its_uncertainty_and_keeps_it_when_saved(tmp_path: Any) -> None:
    X, y = table(400, 0)
    model = TabRRegressor(**SMALL).fit(X, y).calibrate(*table(500, 2))
    new, _ = table(1500, 1)
    low, high = model.predict_interval(new, 0.8).T
    wide = high - low
    assert np.median(wide[new.a > 0.5]) > np.median(wide[new.a < -0.5])
    model.save(tmp_path / "m.tabr")
    loaded = TabRRegressor.load(tmp_path / "m.tabr")
    np.testing.assert_array_equal(
        loaded.predict_interval(new), model.predict_interval(new)
    )
    far = pd.DataFrame({"a": [8.0], "b": [-8.0], "c": [8.0]})
    assert model.typicality(far)[0] < 0.01 < np.median(model.typicality(new))


def test_a_classifier_gives_sets_of_classes() -> None:
    X, y = table(400, 0)
    model = TabRClassifier(**SMALL).fit(X, np.digitize(y, [-1, 1]))
    held_out, labels = table(500, 2)
    model.calibrate(held_out, np.digitize(labels, [-1, 1]))
    new, truth = table(1000, 1)
    inside = model.predict_set(new, 0.9)
    assert inside.shape == (1000, 3) and inside.dtype == bool
    code = np.digitize(truth, [-1, 1])
    assert inside[np.arange(1000), code].mean() == pytest.approx(0.9, abs=0.06)
    assert inside.sum(1).mean() < 2.5

"""Weights of predictors, and the temperature of probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from tabr.prediction import blend
from tabr.prediction.blend import blend_weights, temperature


def values(n: int, noise: list[float], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions (k, n) of so much noise each, and the truth (n,)."""
    rng = np.random.RandomState(seed)
    y = rng.standard_normal(n)
    return y + np.array(noise)[:, None] * rng.standard_normal((len(noise), n)), y


def test_weights_sum_to_one_and_are_not_negative() -> None:
    for n, noise in [(5, [1.0, 1.0]), (300, [0.1, 3.0, 0.5]), (40, [0.0, 1.0])]:
        weights = blend_weights(*values(n, noise))
        assert weights.sum() == pytest.approx(1)
        assert (weights >= 0).all()


def test_predictors_that_are_alike_count_nearly_alike() -> None:
    for seed in range(5):
        weights = blend_weights(*values(200, [1.0, 1.0, 1.0], seed))
        assert weights.min() > 0.25


def test_a_predictor_that_is_clearly_worse_gets_nothing() -> None:
    weights = blend_weights(*values(500, [0.2, 0.2, 5.0]))
    assert weights[2] == 0
    probabilities = np.full((2, 400, 2), 0.5)
    codes = np.random.RandomState(0).randint(2, size=400)
    probabilities[0, np.arange(400), codes] = 0.9
    probabilities[0, np.arange(400), 1 - codes] = 0.1
    assert blend_weights(probabilities, codes, codes).tolist() == [1.0, 0.0]


def test_fewer_rows_move_weights_less() -> None:
    few = blend_weights(*values(30, [1.0, 1.3]))
    many = blend_weights(*values(10_000, [1.0, 1.3]))
    best = 1.69 / 2.69  # of independent errors, by their variances
    assert abs(many[0] - (0.5 + (best - 0.5) / 2)) < 0.02  # half way to equal
    assert abs(few[0] - 0.5) < abs(best - 0.5)


def test_one_predictor_has_all_the_weight() -> None:
    assert blend_weights(np.zeros((1, 3)), np.ones(3)).tolist() == [1.0]


def test_perfect_predictors_are_no_division_by_zero() -> None:
    y = np.arange(6.0)
    np.testing.assert_allclose(blend_weights(np.stack([y, y]), y).sum(), 1)


@pytest.mark.parametrize("seed", range(4))
def test_best_weights_of_squares_are_those_of_a_slow_search(seed: int) -> None:
    rng = np.random.RandomState(seed)
    errors = rng.standard_normal((3, 3)) @ rng.standard_normal((3, 60))
    counts = rng.randint(0, 4, 60).astype(float)

    def loss(weights: np.ndarray) -> float:
        return float((counts * (weights @ errors) ** 2).sum())

    sum_to_one = {"type": "eq", "fun": lambda w: w.sum() - 1}
    found = minimize(
        loss, np.full(3, 1 / 3), bounds=[(0, 1)] * 3, constraints=[sum_to_one]
    )
    weights = blend._Squares(errors)(counts)
    assert loss(weights) <= found.fun * (1 + 1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_best_weights_of_log_loss_are_those_of_a_slow_search(seed: int) -> None:
    rng = np.random.RandomState(seed)
    of_truth = rng.uniform(0.05, 1, (2, 80))
    counts = rng.randint(0, 4, 80).astype(float)

    def loss(share: float) -> float:
        mixed = share * of_truth[0] + (1 - share) * of_truth[1]
        return float(-(counts * np.log(mixed)).sum())

    weights = blend._LogLoss(of_truth)(counts)
    best = min(loss(share) for share in np.linspace(0, 1, 1001))
    assert loss(weights[0]) == pytest.approx(best, rel=1e-3)


def test_logits_that_were_scaled_get_their_scale_back() -> None:
    rng = np.random.RandomState(0)
    logits = 2 * rng.standard_normal((5000, 3))
    codes = np.array([rng.choice(3, p=p) for p in softmax(logits, 1)])
    found = temperature(lambda t: softmax(1.6 * logits / t, 1), codes)
    assert found == pytest.approx(1.6, rel=0.1)


def test_probabilities_that_are_right_keep_their_temperature() -> None:
    rng = np.random.RandomState(1)
    logits = rng.standard_normal((300, 2))
    codes = np.array([rng.choice(2, p=p) for p in softmax(logits, 1)])
    assert temperature(lambda t: softmax(logits / t, 1), codes) == 1.0

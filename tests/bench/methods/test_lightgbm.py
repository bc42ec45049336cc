from __future__ import annotations

import numpy as np
import pytest

from tabr.bench.methods import lightgbm
from tabr.optional import require
from tests.bench.methods.checks import SETTINGS, parts

# The tuned configuration of the published runs on California.
CALIFORNIA = {
    "model": {
        "bagging_fraction": 0.5712986090533039,
        "feature_fraction": 0.6640957505217641,
        "lambda_l2": 0.6855691126093517,
        "learning_rate": 0.012145157889057508,
        "min_sum_hessian_in_leaf": 6.759205256523011,
        "n_estimators": 4000,
        "n_jobs": 4,
        "num_leaves": 107,
    }
}


def test_published_parameters_are_translated() -> None:
    params = lightgbm.LightGBM.published(CALIFORNIA)
    method = lightgbm.LightGBM(SETTINGS["regression"], 0, **params)
    assert method.options["num_leaves"] == 107
    assert (method.n_trees, method.patience) == (4000, 200)


@pytest.mark.parametrize("kind", ["binary", "classes"])
@pytest.mark.parametrize("patience", [3, 8, 25, 60])
def test_the_first_measure_out_of_patience_decides(kind: str, patience: int) -> None:
    data = parts(kind)
    params = {"n_trees": 60, "learning_rate": 0.3, "feature_fraction": 0.5}
    method = lightgbm.LightGBM(SETTINGS[kind], 0, patience=patience, **params)
    method.fit(data.train, data.val)

    expected = best_round(losses_of_rounds(method, kind), patience)
    assert method.best_epoch == expected + 1


def losses_of_rounds(method: lightgbm.LightGBM, kind: str) -> list[list[float]]:
    """Return errors and log-losses after each round, by the library without an end."""
    library = require("lightgbm", extra="boost")
    data, losses = parts(kind), {}
    rows, held_out = method._encoded(data.train), method._encoded(data.val)
    train = library.Dataset(method._one_hot(rows.arrays), rows.labels)
    objective, metrics = lightgbm.LOSSES[method.task]
    options = {"objective": objective, "metric": metrics, "verbosity": -1, "seed": 0}
    if kind == "classes":
        options["num_class"] = 3
    library.train(
        {**method.options, **options, "num_threads": 1},
        train,
        60,
        valid_sets=[
            train.create_valid(method._one_hot(held_out.arrays), held_out.labels)
        ],
        callbacks=[library.record_evaluation(losses)],
    )
    return [losses["valid_0"][name] for name in metrics]


def best_round(losses: list[list[float]], patience: int) -> int:
    for now in range(len(losses[0])):
        for values in losses:
            best = int(np.argmin(values[: now + 1]))
            if now - best >= patience:
                return best
    return int(np.argmin(losses[0]))


def test_a_share_of_rows_alone_draws_none() -> None:
    data = parts("regression")
    predictions = []
    for share in (0.5, 1.0):
        method = lightgbm.LightGBM(
            SETTINGS["regression"], 0, n_trees=5, bagging_fraction=share
        )
        predictions.append(method.fit(data.train, data.val).predict(data.test.X))
    np.testing.assert_array_equal(*predictions)

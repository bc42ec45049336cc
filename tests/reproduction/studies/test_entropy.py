"""The entropy of average weights, against the paper's recipe written slowly."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from reproduction.studies.entropy import entropy, mean_entropy
from reproduction.studies.units import Model, make_method
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import load
from tabr.network.rows import Rows
from tabr.prediction.explanation import NeighborTable
from tests.bench.tables import TINY, write_california, write_churn

HERE = {**TINY, "device": "cpu"}
(CALIFORNIA,) = select(["california"])


@torch.no_grad()
def slow_entropy(model: Model, X: pd.DataFrame, candidates: pd.DataFrame) -> float:
    """All similarities one by one, in double precision; the row itself comes last."""
    network = copy.deepcopy(model.members_[0].network).double()

    def read(frame: pd.DataFrame) -> torch.Tensor:
        arrays = model.preprocessor_.transform(frame)
        rows = Rows.from_arrays(arrays, torch.device("cpu"))
        return network.linear(network.input(rows).double())

    def similarity(x: torch.Tensor, other: torch.Tensor) -> float:
        key, width = network.to_key(other), x.shape[-1]
        if network.to_query is not None:  # step 1
            return float(network.to_query(x) @ key) / math.sqrt(width)
        return -float((network.to_key(x) - key).square().sum()) / math.sqrt(width)

    others, n = read(candidates), len(candidates)
    average = np.zeros(n + 1)
    for x in read(X):
        all_of_them = np.array([similarity(x, other) for other in others])
        context = np.argsort(-all_of_them)[: model.context_size]
        weights = np.exp(np.append(all_of_them[context], similarity(x, x)))
        average[np.append(context, n)] += weights / weights.sum() / len(X)
    return -sum(p * math.log(p) for p in average if p > 0)


@pytest.mark.parametrize("step", ["step-1", "step-2"])
def test_entropy_is_that_of_the_paper(step: str, tmp_path: Path) -> None:
    write_california(tmp_path)
    parts = load(CALIFORNIA, tmp_path)
    method = make_method(
        CALIFORNIA, parts, 0, step, "default", {**TINY, "device": "cpu"}
    )
    model = method.fit(parts.train, parts.val).estimator
    found = mean_entropy(model.neighbors(parts.test.X))
    expected = slow_entropy(model, parts.test.X, parts.train.X)
    assert found == pytest.approx(expected, abs=1e-4)
    assert 0 < found < math.log(len(parts.train.y) + 1)


def table(ids: list[list[int]], weights: list[list[float]]) -> NeighborTable:
    shape = np.array(ids), np.array(weights)
    return NeighborTable(*shape, np.zeros(shape[0].shape))


def test_contexts_that_all_rows_share_are_not_diverse() -> None:
    same = table([[5, 9]] * 4, [[1.0, 0.0]] * 4)
    assert mean_entropy(same) == pytest.approx(0)
    other = table([[k, 9] for k in range(4)], [[1.0, 0.0]] * 4)
    assert mean_entropy(other) == pytest.approx(math.log(4))


def test_what_rows_give_to_themselves_is_one_candidate() -> None:
    alone = table([[-1, -1]] * 3, [[0.0, 0.0]] * 3)
    assert mean_entropy(alone) == pytest.approx(0)
    half = table([[k, -1] for k in range(3)], [[0.5, 0.0]] * 3)
    expected = -0.5 * math.log(0.5) - 0.5 * math.log(0.5 / 3)
    assert mean_entropy(half) == pytest.approx(expected)


def test_records_tell_the_entropies_and_where_parameters_come_from(
    tmp_path: Path,
) -> None:
    write_churn(tmp_path)
    records = [
        {**unit.about, **record}
        for unit in entropy(["churn"], tmp_path, [0], HERE)
        for record in unit.run()
    ]
    assert [r["model"] for r in records] == ["step-1", "step-2"]
    for record in records:
        assert record["config"] == "tuned"
        assert record["uniform"] == round(math.log(64), 4)
        assert 0 < record["entropy"] < record["uniform"] + 0.02
        assert 0 < record["on_itself"] < 1 and 0 <= record["test"] <= 1

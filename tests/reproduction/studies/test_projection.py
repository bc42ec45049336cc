"""Projections of T that are left out, against T's values one by one."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from reproduction.studies.projection import (
    N_RANDOM,
    asked_network,
    label_direction,
    left_out,
    projection,
    random_directions,
)
from reproduction.studies.units import make_method, score_of
from tabr.bench.methods.tabr import TabRMethod
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import SplitTable, load
from tabr.network.labels import NumberLabel
from tabr.network.layers import Difference
from tabr.network.rows import Rows
from tabr.network.tabr import TabR
from tests.bench.tables import TINY, write_diamond

(DIAMOND,) = select(["diamond"])
Fitted = tuple[TabRMethod, TabR, SplitTable]


@pytest.fixture
def fitted(tmp_path: Path) -> Fitted:
    write_diamond(tmp_path)
    parts = load(DIAMOND, tmp_path)
    params = {**TINY, "device": "cpu", "max_epochs": 3}
    method = make_method(DIAMOND, parts, 0, "tabr-s", "tuned", params)
    method.fit(parts.train, parts.val)
    return method, asked_network(method.estimator), parts


def values(network: TabR, differences: Tensor) -> Tensor:
    """T of differences of keys (n, d), one by one."""
    t = cast(Difference, network.difference_value)
    return t.second(t.first(differences).relu())


def test_values_have_no_part_along_the_labels_that_were_left_out(
    fitted: Fitted,
) -> None:
    _, network, _ = fitted
    direction = label_direction(network)
    assert torch.equal(direction, cast(NumberLabel, network.label_value).weight[:, 0])
    differences = torch.randn(50, len(direction), dtype=direction.dtype)
    along = values(network, differences) @ direction
    assert (along.abs() > 1e-3).any()
    with left_out(network, direction):
        projected = values(network, differences)
        assert (projected @ direction).abs().max() < 1e-12
    # What is not along it stays.
    unit = direction / direction.norm()
    whole = projected + torch.outer(values(network, differences) @ unit, unit)
    torch.testing.assert_close(whole, values(network, differences))


def test_predictions_are_those_of_projected_values(fitted: Fitted) -> None:
    method, network, parts = fitted
    model, direction = method.estimator, label_direction(fitted[1])
    arrays = [model.preprocessor_.transform(p.X) for p in (parts.test, parts.train)]
    cpu, double = torch.device("cpu"), torch.float64
    rows, others = (Rows.from_arrays(a, cpu).in_precision(double) for a in arrays)
    labels = torch.from_numpy(model.target_.encode(parts.train.y)).double()
    unit = direction / direction.norm()
    wanted = []
    with torch.no_grad():
        x = network.linear(network.input(rows))
        keys = network.to_key(network.linear(network.input(others)))
        for row, key in zip(x, network.to_key(x), strict=True):
            similarity = -(key - keys).square().sum(1)
            best, index = similarity.topk(model.context_size)
            weights = best.softmax(0)
            label = cast(NumberLabel, network.label_value)
            value = labels[index, None] * label.weight[:, 0] + label.bias
            added = values(network, key - keys[index])
            value += added - torch.outer(added @ unit, unit)
            out = network.head(network.predictor((row + weights @ value)[None]))
            wanted.append(out.squeeze())
    as_it_is = method.predict(parts.test.X)
    with left_out(network, direction):
        found = method.predict(parts.test.X)
    expected = model.target_.predictions(torch.stack(wanted)[:, None].numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.abs(found - as_it_is).max() > 1e-2


def test_the_weight_comes_back_bit_for_bit(fitted: Fitted) -> None:
    _, network, _ = fitted
    weight = cast(Difference, network.difference_value).second.weight
    before = weight.detach().clone()
    with left_out(network, label_direction(network)):
        assert not torch.equal(weight, before)
    assert torch.equal(weight, before)
    with pytest.raises(KeyError), left_out(network, label_direction(network)):
        raise KeyError("what goes wrong meanwhile")
    assert torch.equal(weight, before)


def test_leaving_out_nothing_changes_nothing(fitted: Fitted) -> None:
    method, network, parts = fitted
    before = method.predict(parts.test.X)
    with left_out(network, torch.zeros_like(label_direction(network))):
        assert (method.predict(parts.test.X) == before).all()


def test_random_directions_come_from_the_seed() -> None:
    like = torch.zeros(12)
    first = random_directions(5, like, 0)
    assert first.shape == (5, 12) and first.dtype == like.dtype
    assert torch.equal(first, random_directions(5, like, 0))
    assert not torch.equal(first, random_directions(5, like, 1))
    assert torch.linalg.matrix_rank(first) == 5


def test_records_are_scores_in_the_published_unit(
    fitted: Fitted, tmp_path: Path
) -> None:
    method, network, parts = fitted
    params = {**TINY, "device": "cpu", "max_epochs": 3}
    (unit,) = projection(["diamond"], tmp_path, [0], params)
    (record,) = unit.run()
    assert unit.about == {"table": "diamond", "seed": 0}
    assert record["test"] == round(score_of(DIAMOND, parts.test, method), 6)
    label = label_direction(network)
    with left_out(network, label):
        expected = score_of(DIAMOND, parts.test, method)
    assert record["without_label"] == round(expected, 6) != record["test"]
    scores = []
    for direction in random_directions(N_RANDOM, label, 0):
        with left_out(network, direction):
            scores.append(score_of(DIAMOND, parts.test, method))
    assert record["without_random"] == pytest.approx(np.mean(scores), abs=1e-6)
    assert record["worst_random"] == pytest.approx(max(scores), abs=1e-6)

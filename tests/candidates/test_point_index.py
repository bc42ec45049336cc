"""Prediction from an index of points."""

from __future__ import annotations

import torch

from tabr.candidates import point_index
from tabr.candidates.point_index import PointIndex, candidate_points, predict
from tabr.config import NetworkConfig
from tabr.network.rows import Rows
from tabr.network.tabr import TabR


def setting(n: int = 50, **values: object) -> tuple[TabR, Rows, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    num = torch.randn(n, 3, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = TabR(NetworkConfig(width=8, **values), 3, 0, (), "regression").eval()
    return network, Rows(num, num[:, :0], num[:, :0].long()), num[:, 0]


def test_prediction_does_not_depend_on_the_chunk(monkeypatch) -> None:
    network, rows, labels = setting(encoder_blocks=1)
    index = PointIndex(network, candidate_points(network, rows))
    whole = predict(index, labels, rows, 5)[0].prediction
    monkeypatch.setattr(point_index, "_ROWS", {"cpu": 7})
    parts = predict(index, labels, rows, 5)[0].prediction
    torch.testing.assert_close(whole, parts)


def test_a_refreshed_index_follows_the_network() -> None:
    network, rows, _ = setting()
    index = PointIndex(network, candidate_points(network, rows))
    stale = index.neighbors(index.points, 5).position
    with torch.no_grad():
        network.linear.weight[:, 0] = 0
        network.linear.weight[:, 1] *= 100
    index.refresh()
    new = PointIndex(network, candidate_points(network, rows))
    fresh = index.neighbors(index.points, 5).position
    assert torch.equal(fresh, new.neighbors(new.points, 5).position)
    assert not torch.equal(fresh, stale)


def test_one_row_and_fewer_candidates_than_asked_for() -> None:
    network, rows, labels = setting(3)
    index = PointIndex(network, candidate_points(network, rows))
    output, neighbors = predict(index, labels, rows.take(slice(0, 1)), 96)
    assert output.prediction.shape == (1, 1)
    assert neighbors.position.shape == (1, 3)
    assert neighbors.position[0, 0] == 0  # a new row may equal a candidate

"""Candidates under a metric."""

from __future__ import annotations

import torch

from tabr.candidates.point_index import PointIndex, candidate_points
from tabr.config import NetworkConfig
from tabr.network.rows import Rows
from tabr.network.tabr import TabR
from tabr.tables.shape import DataShape


def setting(n: int = 50, **values: object) -> tuple[TabR, Rows, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    num = torch.randn(n, 3, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = TabR(
            NetworkConfig(width=8, **values), DataShape(3, 0, (), "regression", 0)
        ).eval()
    return network, Rows(num, num[:, :0], num[:, :0].long()), num[:, 0]


def test_a_refreshed_index_follows_the_network() -> None:
    network, rows, labels = setting()
    index = PointIndex(network, candidate_points(network, rows), labels)
    stale = index.neighbors(index.points, 5).position
    with torch.no_grad():
        network.linear.weight[:, 0] = 0
        network.linear.weight[:, 1] *= 100
    index.refresh()
    new = PointIndex(network, candidate_points(network, rows), labels)
    fresh = index.neighbors(index.points, 5).position
    assert torch.equal(fresh, new.neighbors(new.points, 5).position)
    assert not torch.equal(fresh, stale)

"""Candidates whose points are mostly zeros are found as all others are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tabr.candidates.point_index import PointIndex
from tabr.candidates.sparse_index import SparseIndex, make_index
from tabr.config import STEPS, NetworkConfig
from tabr.network.rows import Rows
from tabr.network.tabr import TabR
from tabr.search.filter import among
from tabr.tables.shape import DataShape

pytest.importorskip("numba")

LEVELS = (12, 9, 20)


def table(n: int, n_num: int = 3) -> tuple[Rows, Tensor]:
    generator = torch.Generator().manual_seed(0)
    num = torch.randn(n, n_num, generator=generator)
    cat = [torch.randint(k, (n,), generator=generator) for k in LEVELS]
    return Rows(num, num[:, :0], torch.stack(cat, 1)), num[:, 0]


def network(n_num: int = 3, **values: object) -> TabR:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = NetworkConfig(**{"width": 48, "scale_layer": True, **values})
        return TabR(config, DataShape(n_num, 0, LEVELS, "regression", 0))


def neighbors(index: PointIndex, points: Tensor, **how: object) -> set[tuple[int, int]]:
    position, found = index.neighbors(points, 10, **how)
    rows = torch.arange(len(points))[:, None].expand_as(position)
    return set(zip(rows[found].tolist(), position[found].tolist(), strict=True))


@pytest.mark.parametrize("ruled", [False, True])
def test_neighbours_are_those_of_the_dense_search(ruled: bool) -> None:
    rows, labels = table(3000)
    model = network()
    points = model.points(rows)
    sparse, dense = make_index(model, points, labels), PointIndex(model, points, labels)
    assert isinstance(sparse, SparseIndex)
    flags = (torch.arange(3000) % 3 > 0).int()
    how = {"exclude": torch.arange(50)}
    how |= {"rules": among(flags, None, 50)} if ruled else {}
    for _ in range(2):  # under another metric, too
        first, second = (neighbors(i, points[:50], **how) for i in (sparse, dense))
        assert len(first) == 500 and len(first & second) >= 498
        with torch.no_grad():
            model.to_key.weight.mul_(torch.rand(48, 1) + 0.5)
        sparse.refresh()
        dense.refresh()


def test_no_neighbours_asked_for_are_none() -> None:
    rows, labels = table(2000)
    model = network()
    points = model.points(rows)
    index = make_index(model, points, labels)
    assert index.neighbors(points[:4], 0).position.shape == (4, 0)
    assert index.neighbors(points[:0], 5).position.shape == (0, 5)


@pytest.mark.parametrize(
    ("n", "n_num", "values", "is_sparse"),
    [
        (2000, 3, {}, True),
        (900, 3, {}, False),  # few candidates
        (2000, 30, {}, False),  # mostly numbers
        (2000, 3, {"retrieval": STEPS["step-1"]}, False),  # products of queries
    ],
)
def test_zeros_are_passed_by_where_it_pays(
    n: int, n_num: int, values: dict[str, object], is_sparse: bool
) -> None:
    rows, labels = table(n, n_num)
    model = network(n_num, **values)
    index = make_index(model, model.points(rows), labels)
    assert isinstance(index, SparseIndex) == is_sparse

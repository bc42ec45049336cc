"""What each neighbour did, against predictions made without it."""

from __future__ import annotations

import pytest
import torch

from tabr.candidates.point_index import PointIndex, candidate_points
from tabr.config import STEPS, NetworkConfig
from tabr.network.rows import Rows
from tabr.network.tabr import Context, TabR
from tabr.prediction import effects
from tabr.prediction.effects import leave_out
from tabr.prediction.predict import predict
from tabr.tables.shape import DataShape

M = 5


def setup(step: str, task: str, n_classes: int, blocks: int = 0):
    torch.manual_seed(0)
    retrieval = STEPS[step]
    config = NetworkConfig(width=12, encoder_blocks=blocks, retrieval=retrieval)
    network = TabR(config, DataShape(4, 0, (), task, n_classes)).double().eval()
    num = torch.randn(30, 4, dtype=torch.float64)
    rows = Rows(num, num[:, :0], num[:, :0].long())
    labels = torch.randn(30, dtype=torch.float64)
    if n_classes:
        labels = torch.randint(n_classes, (30,))
    index = PointIndex(network, candidate_points(network, rows), labels)
    new = rows.take(slice(0, 7))
    output, neighbors = predict(index, new, M)
    return network, index, new, output, neighbors


CASES = [
    ("step-4", "regression", 0),
    ("step-0", "regression", 0),
    ("step-1", "binary", 2),
    ("step-3", "classes", 3),
    ("step-4", "classes", 4),
]


@pytest.mark.parametrize(("step", "task", "n_classes"), CASES)
@pytest.mark.parametrize("blocks", [0, 1])
def test_without_a_neighbour_is_a_context_that_lacks_it(
    step: str, task: str, n_classes: int, blocks: int
) -> None:
    network, index, rows, _, neighbors = setup(step, task, n_classes, blocks)
    found = leave_out(index, rows, neighbors)
    points = index.points[neighbors.position]
    near = index.labels[neighbors.position]
    for k in range(M):
        others = [i for i in range(M) if i != k]
        context = Context(points[:, others], near[:, others])
        expected = network(rows, context).prediction
        torch.testing.assert_close(found.without[:, k], expected)
    nobody = torch.zeros(7, M, dtype=torch.bool)
    alone = network(rows, Context(points, near, nobody)).prediction
    torch.testing.assert_close(found.alone, alone)


def test_a_neighbour_that_is_none_has_no_effect() -> None:
    _, index, rows, output, neighbors = setup("step-4", "regression", 0)
    missing = neighbors.found.clone()
    missing[:, 3:] = False
    few = neighbors._replace(found=missing)
    found = leave_out(index, rows, few)
    for k in (3, 4):
        torch.testing.assert_close(found.without[:, k], found.without[:, 3])
    assert not torch.allclose(found.without[:, 0], output.prediction)


def test_chunks_do_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _, index, rows, _, neighbors = setup("step-4", "regression", 0)
    whole = leave_out(index, rows, neighbors)
    monkeypatch.setattr(effects, "_MOST_NUMBERS", 1)
    for mine, theirs in zip(leave_out(index, rows, neighbors), whole, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_correction_is_what_t_adds_along_the_line_of_labels() -> None:
    network, index, rows, _, neighbors = setup("step-4", "regression", 0)
    found = leave_out(index, rows, neighbors)
    assert found.correction is not None
    difference = network.difference_value
    assert difference is not None
    # Slowly: keys, T, and the nearest point on the line W_Y(y) = y w + c.
    key = network.to_key(network.linear(rows.num))
    keys = network.to_key(network.linear(index.points[neighbors.position]))
    t = difference.second(difference.first(key[:, None] - keys).relu())
    line = network.label_value.weight[:, 0]
    expected = (t * line).sum(-1) / (line * line).sum()
    torch.testing.assert_close(found.correction, expected)


@pytest.mark.parametrize(("step", "task", "n"), [("step-2", "regression", 0), CASES[3]])
def test_there_is_no_correction_without_numbers_or_without_t(
    step: str, task: str, n: int
) -> None:
    _, index, rows, _, neighbors = setup(step, task, n)
    assert leave_out(index, rows, neighbors).correction is None

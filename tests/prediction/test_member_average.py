"""Neighbours of ensembles, against a slow count."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tabr.prediction.member_average import join


def said(seed: int, n: int = 6, m: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Return names, weights and distances of one member."""
    rng = np.random.default_rng(seed)
    names = np.stack([rng.permutation(9)[:m] for _ in range(n)])
    weights = rng.dirichlet(np.ones(m), n)
    distances = rng.random((n, m))
    names[0, -1], weights[0, -1], distances[0, -1] = -1, 0.0, np.inf
    return torch.tensor(names), torch.tensor(weights), torch.tensor(distances)


def joined(*members: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    names, weights, distances = zip(*members, strict=True)
    return join(names, {"weights": weights}, {"distances": distances})


def test_one_member_is_sorted_and_otherwise_left_as_it_is() -> None:
    names, weights, distances = said(0)
    order = weights.argsort(dim=1, descending=True)
    position, found = joined((names, weights, distances))
    assert torch.equal(position, names.gather(1, order))
    assert torch.equal(found["weights"], weights.gather(1, order))
    there = position >= 0
    assert torch.equal(found["distances"][there], distances.gather(1, order)[there])


def test_one_members_equals_stay_in_their_order() -> None:
    names = torch.tensor([[7, 3, 5, 1]])
    weights = torch.tensor([[0.0, 0.5, 0.0, 0.5]], dtype=torch.float64)
    position, _ = joined((names, weights, weights))
    assert position.tolist() == [[3, 1, 7, 5]]


def test_members_are_averaged_as_a_slow_count_does() -> None:
    members = [said(seed) for seed in range(3)]
    position, found = joined(*members)
    for i in range(6):
        weights: dict[int, float] = {}
        distances: dict[int, list[float]] = {}
        for names, w, d in members:
            of_row = (names[i].tolist(), w[i].tolist(), d[i].tolist())
            for name, weight, distance in zip(*of_row, strict=True):
                if name >= 0:
                    weights[name] = weights.get(name, 0) + weight / 3
                    distances.setdefault(name, []).append(distance)
        best = sorted(weights, key=lambda name: -weights[name])[:5]
        assert position[i].tolist() == best
        np.testing.assert_allclose(found["weights"][i], [weights[k] for k in best])
        expected = [np.mean(distances[k]) for k in best]
        np.testing.assert_allclose(found["distances"][i], expected)


def test_absent_neighbours_stay_at_the_end() -> None:
    one = (
        torch.tensor([[4, -1, -1]]),
        torch.tensor([[1.0, 0.0, 0.0]]),
        torch.tensor([[0.5, torch.inf, torch.inf]]),
    )
    position, found = joined(one, one)
    assert position.tolist() == [[4, -1, -1]]
    assert found["weights"].tolist() == [[1.0, 0.0, 0.0]]
    assert found["distances"].tolist() == [[0.5, 0.0, 0.0]]

"""Neighbours of ensembles, against a slow count."""

from __future__ import annotations

import numpy as np

from tabr.explanation import NeighborTable, join_members


def table(seed: int, n: int = 6, m: int = 5) -> NeighborTable:
    rng = np.random.default_rng(seed)
    ids = np.stack([rng.permutation(9)[:m] for _ in range(n)])
    weights = -np.sort(-rng.dirichlet(np.ones(m), n), axis=1)
    distances = rng.random((n, m))
    ids[0, -1], weights[0, -1], distances[0, -1] = -1, 0.0, np.inf
    return NeighborTable(ids, weights, distances)


def test_one_member_speaks_for_itself() -> None:
    only = table(0)
    assert join_members([only]) is only


def test_members_are_averaged_as_a_slow_count_does() -> None:
    tables = [table(seed) for seed in range(3)]
    joined = join_members(tables)
    for i in range(6):
        weights: dict[int, float] = {}
        distances: dict[int, list[float]] = {}
        for ids, w, d in tables:
            for name, weight, distance in zip(ids[i], w[i], d[i], strict=True):
                if name >= 0:
                    weights[name] = weights.get(name, 0) + weight / 3
                    distances.setdefault(name, []).append(distance)
        best = sorted(weights, key=lambda name: -weights[name])[:5]
        assert joined.ids[i].tolist() == best
        np.testing.assert_allclose(joined.weights[i], [weights[k] for k in best])
        expected = [np.mean(distances[k]) for k in best]
        np.testing.assert_allclose(joined.distances[i], expected)


def test_absent_neighbours_stay_at_the_end() -> None:
    ids = np.array([[4, -1, -1]])
    one = NeighborTable(ids, np.array([[1.0, 0, 0]]), np.array([[0.5, np.inf, np.inf]]))
    joined = join_members([one, one])
    assert joined.ids.tolist() == [[4, -1, -1]]
    assert joined.weights.tolist() == [[1.0, 0.0, 0.0]]
    assert joined.distances.tolist() == [[0.5, np.inf, np.inf]]

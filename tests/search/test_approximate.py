"""Best-of-bins search: its recall is foretold, and everything else is as in `top`."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tabr import TabRRegressor
from tabr.candidates import point_index as retrieval
from tabr.candidates.point_index import PointIndex
from tabr.config import NetworkConfig
from tabr.network.tabr import TabR
from tabr.search import Neighbors, best_of_bins, n_bins_for, top
from tabr.search.approximate import expected_recall
from tests.search.test_exact import problem


def recall(found: Neighbors, true: Neighbors) -> float:
    """Return the mean share of true neighbours that were found."""
    same = found.position[:, :, None] == true.position[:, None]
    hit = (same & found.found[:, :, None]).any(1) & true.found
    return float(hit.sum() / true.found.sum())


def recall_of_random_order(n_bins: int, n: int, m: int, repeat: int) -> float:
    rng = np.random.default_rng(0)
    draws = (rng.choice(n, m, replace=False) % n_bins for _ in range(repeat))
    return float(np.mean([len(np.unique(bins)) for bins in draws])) / m


# --- the closed form --------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "n_bins", "m"), [(7, 3, 2), (9, 4, 4), (10, 5, 3), (8, 8, 5), (6, 2, 5)]
)
def test_expected_recall_is_the_mean_over_all_orders(
    n: int, n_bins: int, m: int
) -> None:
    kept = [len({i % n_bins for i in best}) for best in combinations(range(n), m)]
    assert expected_recall(n_bins, n, m) == pytest.approx(np.mean(kept) / m)


@pytest.mark.parametrize(
    ("n", "n_bins", "m"), [(2000, 300, 96), (5003, 71, 30), (100_000, 953, 96)]
)
def test_expected_recall_is_that_of_a_simulation(n: int, n_bins: int, m: int) -> None:
    measured = recall_of_random_order(n_bins, n, m, repeat=2000)
    assert expected_recall(n_bins, n, m) == pytest.approx(measured, abs=3e-3)


def test_expected_recall_grows_with_the_bins_and_keeps_its_bound() -> None:
    for n, m in ((500, 1), (500, 40), (3001, 96)):
        values = [expected_recall(n_bins, n, m) for n_bins in range(m, n + 1)]
        assert (np.diff(values) >= -1e-12).all()
        assert values[-1] == pytest.approx(1)
        bounds = 1 - (m - 1) / (2 * np.arange(m, n + 1))
        assert (values >= bounds - 1e-12).all()


@pytest.mark.parametrize("n", [20_000, 100_000, 3_000_000])
@pytest.mark.parametrize("m", [1, 32, 96])
@pytest.mark.parametrize("target", [0.5, 0.9, 0.95, 0.99])
def test_bins_reach_the_target_and_are_few(n: int, m: int, target: float) -> None:
    n_bins = n_bins_for(target, n, m)
    if n_bins is None:
        # Even the most bins that are worth it, one in 16 candidates, do not.
        assert 1 - (m - 1) / (2 * n / 20) < target
        return
    aim = 1 - 0.9 * (1 - target)
    assert m <= n_bins <= n / 16
    assert expected_recall(n_bins, n, m) >= aim
    assert all(n_bins % divisor for divisor in range(2, math.isqrt(n_bins) + 1))
    for fewer in range(max(m, n // 128), n_bins):
        prime = all(fewer % divisor for divisor in range(2, math.isqrt(fewer) + 1))
        assert not prime or expected_recall(fewer, n, m) < aim


@pytest.mark.parametrize("target", [None, 1, 1.0, 0.9999])
def test_no_bins_without_a_target_or_with_one_that_needs_too_many(
    target: float | None,
) -> None:
    assert n_bins_for(target, 100_000, 96) is None


@pytest.mark.parametrize("n", [0, 1, 95, 96, 1500])
def test_small_tables_are_searched_exactly(n: int) -> None:
    assert n_bins_for(0.9, n, 96) is None


# --- the search -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "m", "target"),
    [(20_000, 96, 0.9), (40_001, 96, 0.95), (30_000, 16, 0.9), (60_000, 24, 0.99)],
)
def test_recall_on_random_rows_reaches_the_target(
    n: int, m: int, target: float
) -> None:
    q, v, o = problem(b=300, n=n)
    n_bins = n_bins_for(target, n, m)
    assert n_bins is not None
    found = recall(best_of_bins(q, v, o, m, n_bins), top(q, v, o, m))
    assert found >= target
    assert found == pytest.approx(expected_recall(n_bins, n, m), abs=5e-3)


@pytest.mark.parametrize("order", ["sorted", "daily", "appended"])
def test_recall_holds_for_usual_orders(order: str) -> None:
    _, v, _ = problem(n=24_000)
    if order == "sorted":
        v = v[v[:, 0].argsort()]
    elif order == "daily":  # the same hour returns after 24 rows
        hours = torch.arange(24_000) % 24
        v = torch.cat([v * 0.1, hours[:, None].float()], 1)
    else:  # each row stands there twice
        v[12_000:] = v[:12_000]
    q, o = 2 * v[::100], -v.square().sum(-1)
    n_bins = n_bins_for(0.9, 24_000, 96)
    assert n_bins is not None
    best = (q @ v.T + o).sort(descending=True).values
    found = best_of_bins(q, v, o, 96, n_bins)
    mine = (q @ v.T + o).gather(1, found.position)
    # Of equal rows either will do, so scores are compared.
    assert (mine >= best[:, 95:96] - 1e-4).float().mean() >= 0.9


def test_the_nearest_is_never_lost_and_all_come_best_first() -> None:
    q, v, o = problem(n=9000)
    found = best_of_bins(q, v, o, 50, 257)
    assert torch.equal(found.position[:, 0], top(q, v, o, 1).position[:, 0])
    scores = (q @ v.T + o).gather(1, found.position)
    assert (scores.diff(dim=1) <= 1e-5).all()


def test_each_neighbour_is_the_best_of_its_bin_and_none_comes_twice() -> None:
    q, v, o = problem(n=5003)
    v[100:400] = v[100]  # equal rows
    o = -v.square().sum(-1)
    found = best_of_bins(q, v, o, 40, 101)
    scores = q @ v.T + o
    for row, positions in zip(scores, found.position.tolist(), strict=True):
        assert len({i % 101 for i in positions}) == len(set(positions)) == 40
        for i in positions:
            assert row[i] == pytest.approx(float(row[i % 101 :: 101].max()), abs=1e-4)


def test_own_row_is_excluded_before_the_selection() -> None:
    _, v, o = problem(n=4000)
    own = torch.arange(0, 4000, 7)
    found = best_of_bins(2 * v[own], v, o, 30, 257, exclude=own)
    assert found.found.all()
    assert not (found.position == own[:, None]).any()
    # Who was second in its bin takes its place.
    without = top(2 * v[own], v, o, 1, exclude=own)
    assert torch.equal(found.position[:, 0], without.position[:, 0])


def test_rule_is_applied_before_the_selection() -> None:
    q, v, o = problem(n=8000)
    may = torch.rand(30, 8000, generator=torch.Generator().manual_seed(1)) < 0.1

    def allowed(rows: slice, part: slice) -> Tensor:
        return may[rows, part]

    true = top(q, v, o, 20, allowed=allowed)
    found = best_of_bins(q, v, o, 20, 257, allowed=allowed)
    assert found.found.all() and may.gather(1, found.position).all()
    assert recall(found, true) > 0.95


def test_row_with_few_allowed_candidates_finds_no_others() -> None:
    q, v, o = problem(n=3000)
    may = torch.zeros(30, 3000, dtype=torch.bool)
    may[:, [5, 6, 7]] = True
    may[3] = False
    found = best_of_bins(q, v, o, 9, 101, allowed=lambda r, c: may[r, c])
    assert found.found.sum(1).tolist() == [3] * 3 + [0] + [3] * 26
    assert may[found.found.any(1)][:, [5, 6, 7]].all()
    assert ((found.position >= 0) & (found.position < 3000)).all()


def test_result_does_not_depend_on_the_batch() -> None:
    q, v, o = problem(b=600, n=9000)
    whole = best_of_bins(q, v, o, 17, 257).position
    order = torch.randperm(600, generator=torch.Generator().manual_seed(0))
    assert torch.equal(best_of_bins(q[order], v, o, 17, 257).position, whole[order])
    assert torch.equal(best_of_bins(q[3:4], v, o, 17, 257).position, whole[3:4])
    assert best_of_bins(q[:0], v, o, 17, 257).position.shape == (0, 17)


def test_without_offsets_products_are_ranked() -> None:
    q, v, _ = problem(n=9000)
    zeros = torch.zeros(9000)
    one, other = best_of_bins(q, v, None, 9, 257), best_of_bins(q, v, zeros, 9, 257)
    assert torch.equal(one.position, other.position)


# --- the way there from the estimator ---------------------------------------------


def test_index_without_a_target_finds_what_it_always_found() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(9000, 3, generator=generator)
    network = TabR(NetworkConfig(width=8), 3, 0, (), "regression").eval()
    index = PointIndex(network, points)
    queries = network.queries(points[:40], index.center, index.metric)
    own = torch.arange(40)
    plain = top(queries, index.vectors, index.offsets, 8, exclude=own)
    for target in (None, 1.0):
        found = index.neighbors(points[:40], 8, own, recall_target=target)
        assert torch.equal(found.position, plain.position)
    found = index.neighbors(points[:40], 8, own, recall_target=0.9)
    assert 0.9 <= recall(found, plain) < 1


def data(n: int = 10_500) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, X[:, 0] + X[:, 1] ** 2


def model(**params: object) -> TabRRegressor:
    fast = {"width": 8, "context_size": 24, "max_epochs": 1, "batch_size": 2048}
    return TabRRegressor(**fast, random_state=0, device="cpu", **params)


def test_estimator_searches_by_its_target_in_training_and_prediction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def recorded(target: float | None, n: int, m: int) -> int | None:
        asked.append(target)
        return n_bins_for(target, n, m)

    monkeypatch.setattr(retrieval, "n_bins_for", recorded)
    X, y = data()
    fitted = model(recall_target=0.9).fit(X, y)
    assert set(asked) == {0.9}
    asked.clear()
    fitted.predict(X[:3])
    assert asked == [0.9]


def test_target_changes_few_neighbours_and_none_changes_nothing() -> None:
    X, y = data()
    exact = model().fit(X, y)
    same = model(recall_target=1.0).fit(X, y)
    assert np.array_equal(exact.predict(X[:50]), same.predict(X[:50]))
    before = exact.neighbors(X[:50]).ids
    after = exact.set_params(recall_target=0.9).neighbors(X[:50]).ids
    pairs = zip(before, after, strict=True)
    shared = np.mean([len(set(a) & set(b)) / 24 for a, b in pairs])
    assert 0.9 <= shared < 1


def test_target_is_kept_in_the_file(tmp_path: Path) -> None:
    X, y = data()
    fitted = model(recall_target=0.9).fit(X, y)
    fitted.save(tmp_path / "model.tabr")
    loaded = TabRRegressor.load(tmp_path / "model.tabr", device="cpu")
    assert loaded.recall_target == 0.9
    assert np.array_equal(loaded.predict(X[:50]), fitted.predict(X[:50]))

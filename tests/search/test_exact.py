"""Exact search against a float64 brute force, up to ties."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tabr.search import Filter, Neighbors, top
from tabr.search.exact import _select

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(
            not torch.cuda.is_available(), reason="needs a CUDA device"
        ),
    ),
]


def problem(
    b: int = 30, n: int = 500, p: int = 6, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(b, p, generator=generator)
    vectors = torch.randn(n, p, generator=generator)
    return 2 * queries, vectors, -vectors.square().sum(-1)


def brute_force(
    queries: Tensor,
    vectors: Tensor,
    offsets: Tensor | None,
    m: int,
    allowed: Tensor | None = None,
) -> list[Tensor]:
    """Return each query's best scores, in float64."""
    scores = queries.double() @ vectors.double().T
    if offsets is not None:
        scores = scores + offsets.double()
    if allowed is None:
        allowed = torch.ones_like(scores, dtype=torch.bool)
    rows = zip(scores, allowed, strict=True)
    return [row[ok].sort(descending=True).values[:m] for row, ok in rows]


def check_up_to_ties(
    neighbors: Neighbors,
    best: list[Tensor],
    queries: Tensor,
    vectors: Tensor,
    offsets: Tensor | None,
) -> None:
    """Neighbours may differ from the best only where scores agree to rounding."""
    scores = queries.double() @ vectors.double().T
    if offsets is not None:
        scores = scores + offsets.double()
    index, ok = neighbors.position.cpu(), neighbors.found.cpu()
    for i, expected in enumerate(best):
        positions = index[i][ok[i]]
        assert len(set(positions.tolist())) == len(positions) == len(expected)
        torch.testing.assert_close(scores[i][positions], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [1, 7, 500, 40_000])
@pytest.mark.parametrize("m", [1, 96])
def test_finds_the_same_as_brute_force(device: str, n: int, m: int) -> None:
    q, v, o = problem(b=20, n=n)
    neighbors = top(q.to(device), v.to(device), o.to(device), m)
    assert neighbors.position.shape == neighbors.found.shape == (20, min(m, n))
    check_up_to_ties(neighbors, brute_force(q, v, o, m), q, v, o)


def test_neighbours_come_best_first() -> None:
    q, v, o = problem(n=2000)
    scores = (q @ v.T + o).gather(1, top(q, v, o, 50).position)
    assert (scores.diff(dim=1) <= 1e-5).all()


def test_without_offsets_products_are_ranked() -> None:
    q, v, _ = problem()
    check_up_to_ties(top(q, v, None, 9), brute_force(q, v, None, 9), q, v, None)


@pytest.mark.parametrize("max_bytes", [1, 5_000, 50_000])
def test_result_does_not_depend_on_chunk_size(max_bytes: int) -> None:
    q, v, o = problem(n=3000)
    rows = torch.arange(30) * 90
    whole = top(q, v, o, 17, exclude=rows)
    parts = top(q, v, o, 17, exclude=rows, max_bytes=max_bytes)
    assert torch.equal(whole.position, parts.position)
    assert torch.equal(whole.found, parts.found)


def test_result_does_not_depend_on_row_order_nor_on_the_batch() -> None:
    q, v, o = problem(n=3000)
    whole = top(q, v, o, 17).position
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    assert torch.equal(top(q[order], v, o, 17).position, whole[order])
    assert torch.equal(top(q[3:4], v, o, 17).position, whole[3:4])


def test_own_row_is_excluded_by_identity_even_among_duplicates() -> None:
    _, v, o = problem(n=50)
    v[10:20] = v[10]  # ten copies of one row
    o = -v.square().sum(-1)
    rows = torch.arange(50)
    neighbors = top(2 * v, v, o, 12, exclude=rows)
    assert not (neighbors.position == rows[:, None]).any()
    for i in range(10, 20):  # all nine others are found, itself is not
        assert set(range(10, 20)) - {i} <= set(neighbors.position[i].tolist())


def test_exclude_of_minus_one_excludes_nobody() -> None:
    q, v, o = problem()
    none = torch.full((30,), -1)
    assert torch.equal(top(q, v, o, 9, exclude=none).position, top(q, v, o, 9).position)


def flagged(may: Tensor) -> Filter:
    """A filter that asks a function for flags (b, n)."""
    b, n = may.shape
    codes, ends = torch.zeros(1, n).int(), torch.zeros(1, b).int()
    return Filter(codes, ends, ends, 0, 1, ((0, lambda r, c: may[r, c]),))


@pytest.mark.parametrize("max_bytes", [None, 2_000])
def test_rule_is_applied_before_the_selection(max_bytes: int | None) -> None:
    q, v, o = problem()
    may = torch.rand(30, 500, generator=torch.Generator().manual_seed(1)) < 0.03
    neighbors = top(q, v, o, 25, filter=flagged(may), max_bytes=max_bytes)
    check_up_to_ties(neighbors, brute_force(q, v, o, 25, may), q, v, o)


def test_row_with_no_allowed_candidate_finds_nobody() -> None:
    q, v, o = problem()
    may = torch.ones(30, 500, dtype=torch.bool)
    may[5] = False
    neighbors = top(q, v, o, 4, filter=flagged(may))
    assert not neighbors.found[5].any()
    assert neighbors.found[:5].all() and neighbors.found[6:].all()


def test_no_candidates_and_no_queries_give_empty_results() -> None:
    q, v, o = problem()
    assert top(q, v[:0], o[:0], 4).position.shape == (30, 0)
    assert top(q[:0], v, o, 4).position.shape == (0, 4)


def test_offset_shared_by_all_points_does_not_blur_centred_search() -> None:
    q, v, _ = problem(n=5000, p=32)
    far = 1000.0
    center = (v + far).mean(0)
    vectors = v + far - center
    queries = 2 * (q / 2 + far - center)
    offsets = -vectors.square().sum(-1)
    exact = top(q.double(), v.double(), -v.double().square().sum(-1), 20).position
    shared = (
        top(queries, vectors, offsets, 20).position[:, :, None] == exact[:, None]
    ).any(-1)
    assert shared.float().mean() > 0.99


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("ties", [False, True])
def test_two_stage_selection_equals_topk(seed: int, ties: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    n = int(torch.randint(1, 3000, (), generator=generator))
    m = int(torch.randint(1, 40, (), generator=generator))
    score = torch.randn(4, n, generator=generator)
    if ties:
        score = score.round()
    score[0] = -math.inf
    value, index = _select(score, min(m, n))
    assert torch.equal(value, score.topk(min(m, n)).values)
    assert torch.equal(score.gather(1, index), value)
    assert all(len(set(row.tolist())) == min(m, n) for row in index)


def test_users_precision_setting_is_given_back() -> None:
    q, v, o = problem()
    torch.set_float32_matmul_precision("medium")
    try:
        top(q, v, o, 3)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_result_does_not_depend_on_the_device() -> None:
    q, v, o = problem(b=100, n=50_000)
    cpu = top(q, v, o, 96)
    gpu = top(q.cuda(), v.cuda(), o.cuda(), 96)
    same = (
        (cpu.position.sort(1).values == gpu.position.cpu().sort(1).values)
        .float()
        .mean()
    )
    assert same > 0.999

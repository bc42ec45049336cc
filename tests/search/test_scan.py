"""The kernels of a scan against a float64 brute force, up to ties.

They need a GPU, or Triton's interpreter: TRITON_INTERPRET=1.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (torch.cuda.is_available() or INTERPRETED)
        or importlib.util.find_spec("triton") is None,
        reason="needs a CUDA device and Triton",
    ),
]

# An interpreter is slow: it sees the same cases, smaller.
B, N = (6, 900) if INTERPRETED else (150, 20_000)
WIDTHS = [1, 8, 16, 29, 40, 64, 98, 128, 150, 265]


def problem(p: int, n: int = N, b: int = B, seed: int = 0) -> tuple[Tensor, ...]:
    """Points around zero, a metric of uneven scales, and rows that are among them."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, p, generator=generator)
    key = torch.randn(max(p, 20), p, generator=generator) / p**0.5
    key = key * torch.logspace(-1, 1, p)
    rows = torch.randperm(n, generator=generator)[:b]
    return points.to(DEVICE), (key.T @ key).to(DEVICE), rows.to(DEVICE)


def scan_of(points: Tensor, gram: Tensor):
    from tabr.search.scan import Scan

    scan = Scan(points)
    scan.set_metric(gram)
    return scan


def scores_of(points: Tensor, gram: Tensor, rows: Tensor) -> Tensor:
    v, a = points.double(), gram.double()
    return 2 * rows.double() @ a @ v.T - ((v @ a) * v).sum(-1)


def check(
    neighbors: tuple[Tensor, Tensor],
    scores: Tensor,
    m: int,
    allowed: Tensor | None = None,
) -> None:
    """Neighbours score as the best that are allowed, to float32 rounding."""
    position, exists = neighbors[0], neighbors[1].bool()
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    best = scores.topk(min(m, scores.shape[1])).values
    assert torch.equal(exists, best > -torch.inf)
    largest = scores.abs().nan_to_num(posinf=0).amax()
    close = (scores.gather(1, position) - best).abs() <= 1e-5 * largest
    assert (close | ~exists).all()
    for ids, ok in zip(position, exists, strict=True):
        assert len(set(ids[ok].tolist())) == int(ok.sum())


def not_itself(rows: Tensor, n: int) -> Tensor:
    return torch.arange(n, device=DEVICE) != rows[:, None]


@pytest.mark.parametrize("p", WIDTHS)
@pytest.mark.parametrize("has_last", [False, True])
def test_finds_the_same_as_brute_force(p: int, has_last: bool) -> None:
    points, gram, rows = problem(p)
    m, scan, last = 32, scan_of(points, gram), None
    if has_last:  # the neighbours under another metric; one row has none
        other = gram + 0.1 * gram.diagonal().diag()
        last = scores_of(points, other, points[rows]).masked_fill(
            ~not_itself(rows, N), -torch.inf
        )
        last = last.topk(m).indices.int()
        last[0] = -1
    neighbors = scan.top(2 * points[rows] @ gram, m, exclude=rows, last=last)
    scores = scores_of(points, gram, points[rows])
    check(neighbors, scores, m, not_itself(rows, N))


@pytest.mark.parametrize("p", [8, 40])
@pytest.mark.parametrize("n", [1, 20, 300])
def test_fewer_candidates_than_asked_for_are_all_found(p: int, n: int) -> None:
    points, gram, rows = problem(p, n=n, b=min(n, B))
    neighbors = scan_of(points, gram).top(2 * points[rows] @ gram, 50, exclude=rows)
    scores = scores_of(points, gram, points[rows])
    check(neighbors, scores, 50, not_itself(rows, n))


@pytest.mark.parametrize("p", [8, 40])
def test_without_a_gram_products_are_ranked(p: int) -> None:
    from tabr.search.scan import Scan

    points, _, rows = problem(p)
    scan = Scan(points)
    scan.set_metric(None)
    neighbors = scan.top(points[rows], 20)
    check(neighbors, points[rows].double() @ points.double().T, 20)


def interval(value: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return (value >= low[:, None]) & (value <= high[:, None])


RULES: list[tuple[int, int, Callable[[Tensor, Tensor], Tensor]]] = [
    (0b00, 0b11, lambda a, b: a & b),
    (0b10, 0b11, lambda a, b: a & ~b),
    (0b00, 0b10, lambda a, b: a | b),
    (0b11, 0b10, lambda a, b: ~a | ~b),
]


@pytest.mark.parametrize("p", [8, 40])
@pytest.mark.parametrize(("outside", "ends", "rule"), RULES)
def test_rules_are_applied_before_the_selection(
    p: int, outside: int, ends: int, rule: Callable[[Tensor, Tensor], Tensor]
) -> None:
    from tabr.search import Filter

    points, gram, rows = problem(p)
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(0, 40, (2, N), generator=generator).int().to(DEVICE)
    low = torch.randint(0, 30, (2, B), generator=generator).int().to(DEVICE)
    high = low + 6
    high[:, 0] = low[:, 0] - 1  # an empty interval
    neighbors = scan_of(points, gram).top(
        2 * points[rows] @ gram,
        32,
        exclude=rows,
        filter=Filter(codes, low, high, outside, ends),
    )
    a, b = (interval(codes[i], low[i], high[i]) for i in range(2))
    allowed = rule(a, b) & not_itself(rows, N)
    check(neighbors, scores_of(points, gram, points[rows]), 32, allowed)


@pytest.mark.parametrize("p", [2, 20])
@pytest.mark.parametrize("n_listed", [128, 2048])
def test_ties_that_no_list_can_hold_are_broken_by_position(
    p: int, n_listed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few distinct points: thousands of candidates tie at every bound."""
    from tabr.search import scan

    monkeypatch.setattr(scan, "_LISTED", n_listed)
    points, gram, rows = problem(p)
    points = points[:8].repeat(N // 8 + 1, 1)[:N].contiguous()
    neighbors = scan_of(points, gram).top(2 * points[rows] @ gram, 32, exclude=rows)
    scores = scores_of(points, gram, points[rows])
    check(neighbors, scores, 32, not_itself(rows, N))
    twins = [[j for j in range(i % 8, N, 8) if j != i][:32] for i in rows.tolist()]
    assert neighbors.position.tolist() == twins


@pytest.mark.parametrize("p", [8, 40])
@pytest.mark.parametrize("n_listed", [128, 2048])
def test_a_loose_bound_costs_time_but_no_neighbour(
    p: int, n_listed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tabr.search import scan

    monkeypatch.setattr(scan, "_LISTED", n_listed)
    points, gram, rows = problem(p)
    far = scores_of(points, gram, points[rows]).argsort(1)[:, N // 2 : N // 2 + 32]
    neighbors = scan_of(points, gram).top(
        2 * points[rows] @ gram, 32, exclude=rows, last=far.int()
    )
    check(neighbors, scores_of(points, gram, points[rows]), 32, not_itself(rows, N))


@pytest.mark.parametrize("p", [8, 40])
def test_far_outliers_do_not_blur_the_rest(p: int) -> None:
    points, gram, rows = problem(p)
    points[::97] *= 1000
    neighbors = scan_of(points, gram).top(2 * points[rows] @ gram, 32, exclude=rows)
    usual = rows % 97 != 0
    scores = scores_of(points, gram, points[rows])
    best = scores.masked_fill(~not_itself(rows, N), -torch.inf).topk(32).values
    scores_found = scores.gather(1, neighbors.position)
    # Sums of float32 are as exact as the squares of the row itself, no more.
    size = scores.gather(1, rows[:, None]).abs()
    assert ((scores_found - best).abs() <= 1e-5 * size + 1e-5)[usual].all()


@pytest.mark.parametrize("p", [8, 40])
def test_result_depends_neither_on_the_batch_nor_on_last_neighbours(p: int) -> None:
    points, gram, rows = problem(p)
    scan, queries = scan_of(points, gram), 2 * points[rows] @ gram
    whole = scan.top(queries, 32, exclude=rows).position
    assert torch.equal(scan.top(queries, 32, exclude=rows).position, whole)
    part = scan.top(queries[3:5], 32, exclude=rows[3:5], last=whole[3:5].int())
    assert torch.equal(part.position, whole[3:5])


@pytest.mark.parametrize("p", [8, 40])
def test_offset_is_the_squared_length(p: int) -> None:
    points, gram, _ = problem(p)
    v, a = points.double(), gram.double()
    offsets = scan_of(points, gram).offsets[:N].double()
    exact = -((v @ a) * v).sum(-1)
    assert ((offsets - exact).abs() <= 2e-6 * exact.abs() + 1e-9).all()


@pytest.mark.skipif(INTERPRETED, reason="the interpreter captures no graphs")
def test_a_search_can_be_captured() -> None:
    points, gram, rows = problem(40)
    scan, queries = scan_of(points, gram), 2 * points[rows] @ gram
    eager = scan.top(queries, 32, exclude=rows).position
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        scan.set_metric(gram)
        captured = scan.top(queries, 32, exclude=rows).position
    graph.replay()
    assert torch.equal(eager, captured)


@pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
@pytest.mark.parametrize("p", [40, 128])
def test_two_walks_share_a_multiprocessor(p: int) -> None:
    from tabr.search.walk_triton import collect

    collect.device_caches.clear()  # other tests walk wider points: only one fits there
    points, gram, rows = problem(p)
    scan_of(points, gram).top(2 * points[rows] @ gram, 32, exclude=rows)
    kernels, *_ = collect.device_caches[torch.cuda.current_device()]
    limits = torch.cuda.get_device_properties(0)
    walks = [k for k in kernels.values() if k.metadata.num_warps == 8]
    assert walks
    for kernel in walks:
        registers = 2 * 32 * kernel.metadata.num_warps * kernel.n_regs
        assert registers <= limits.regs_per_multiprocessor
        assert kernel.n_spills == 0

"""The search in compiled loops against float64, up to ties."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
import torch

from tabr.device.compiled import has_numba
from tabr.search import exact
from tests.search.test_exact import brute_force, check_up_to_ties, problem

pytest.importorskip("numba")
from tabr.search import walk_numba
from tabr.search.exact import Neighbors
from tabr.search.filter import Filter
from tabr.search.walk_numba import walk


@pytest.mark.parametrize("n", [1, 7, 192, 193, 2000, 40_000])
@pytest.mark.parametrize("m", [1, 5, 96, 130])
@pytest.mark.parametrize("p", [1, 6, 61])
def test_finds_the_same_as_brute_force(n: int, m: int, p: int) -> None:
    q, v, o = problem(b=11, n=n, p=p)
    near = Neighbors(*walk(q, v, o, min(m, n)))
    assert near.position.shape == near.found.shape == (11, min(m, n))
    check_up_to_ties(near, brute_force(q, v, o, m), q, v, o)
    scores = (q @ v.T + o).gather(1, near.position)
    assert (scores.diff() <= 1e-4).all()  # best first


@pytest.mark.parametrize("b", [1, 3, 128, 301])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_every_query_finds_its_own(b: int, n_threads: int) -> None:
    q, v, o = problem(b=b, n=3000)
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        near = Neighbors(*walk(q, v, o, 9))
    finally:
        torch.set_num_threads(before)
    check_up_to_ties(near, brute_force(q, v, o, 9), q, v, o)


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_candidates_does_not_matter(order: int) -> None:
    q, v, o = problem(b=5, n=20_000, p=3)
    by_score = (q[0] @ v.T + o).argsort(descending=order < 0)
    v, o = v[by_score], o[by_score]
    near = Neighbors(*walk(q, v, o, 50))
    check_up_to_ties(near, brute_force(q, v, o, 50), q, v, o)


def test_candidates_that_are_all_alike_are_found_again() -> None:
    q, v, o = torch.randn(40, 5), torch.zeros(3000, 5), torch.zeros(3000)
    position, _ = walk(q, v, o, 12)
    again = walk(q, v, o, 12, last=position.int())
    assert again[1].all()
    assert torch.equal(again[0], torch.arange(12).expand(40, 12))


def test_among_equals_the_lower_position_wins() -> None:
    q = torch.ones(2, 3)
    for n in (500, 20_000):
        position, found = walk(q, torch.zeros(n, 3), torch.zeros(n), 96)
        assert torch.equal(position, torch.arange(96).expand(2, 96))
        assert found.all()
    v = torch.arange(20_000)[:, None] // 400 % 7 * torch.ones(1, 3)  # many of a kind
    position, _ = walk(q, v, None, 96)
    assert torch.equal(position[0], (v[:, 0] == 6).nonzero()[:96, 0])


def test_zero_is_zero_whatever_its_sign() -> None:
    offsets = torch.zeros(1000)
    offsets[::2] = -0.0
    position, _ = walk(torch.zeros(1, 2), torch.zeros(1000, 2), offsets, 20)
    assert torch.equal(position[0], torch.arange(20))


@pytest.mark.parametrize("n", [300, 5000])
def test_who_is_excluded_is_not_found(n: int) -> None:
    _, v, o = problem(n=n)
    exclude = torch.arange(40)
    exclude[::4] = -1
    position, found = walk(2 * v[:40], v, o, 20, exclude)
    itself = (position == torch.arange(40)[:, None]).any(1)
    assert torch.equal(itself, exclude < 0)
    assert found.all()


def conditions(b: int, n: int, seed: int = 0) -> Filter:
    """Codes within two intervals, the second of which is outside: 1 and (2 or 3)."""
    generator = torch.Generator().manual_seed(seed)

    def codes(*shape: int) -> torch.Tensor:
        return torch.randint(0, 9, shape, generator=generator).int()

    low = codes(3, b)
    return Filter(codes(3, n), low, low + codes(3, b) // 2, 0b010, 0b101)


@pytest.mark.parametrize("n", [5, 300, 5000])
@pytest.mark.parametrize("m", [3, 96])
def test_only_whom_a_filter_allows_is_found(n: int, m: int) -> None:
    q, v, o = problem(b=37, n=n)
    filter = conditions(37, n)
    may = filter.allowed(slice(0, 37), slice(0, n))
    assert 0.05 < may.float().mean() < 0.6
    near = Neighbors(*walk(q, v, o, min(m, n), filter=filter))
    check_up_to_ties(near, brute_force(q, v, o, m, may), q, v, o)


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("p", [3, 60])
def test_neighbours_of_before_change_nothing(filtered: bool, p: int) -> None:
    """Not under another metric, nor where some or all of them are gone."""
    q, v, o = problem(b=140, n=4000, p=p)
    filter = conditions(140, 4000) if filtered else None
    exact_ones = walk(q, v, o, 12, None, filter)
    for moved in (q, q + 0.1 * torch.randn_like(q), -q):
        last = walk(moved, v, o, 12, None, filter)[0].int()
        last[:3] = -1
        last[5, 4] = -1
        again = walk(q, v, o, 12, None, filter, last)
        assert all(map(torch.equal, again, exact_ones))


def test_who_was_removed_is_not_found() -> None:
    q, v, o = problem(b=4, n=5000)
    o[torch.randperm(5000)[:-10]] = -math.inf
    position, found = walk(q, v, o, 20)
    assert torch.equal(found.sum(1), torch.full((4,), 10))
    assert (o[position[found]] > -math.inf).all()


def test_scores_of_any_sign_and_size_are_ranked() -> None:
    q, v, o = problem(b=6, n=9000)
    for scale, shift in ((1e-30, 0.0), (1e15, 0.0), (1.0, 100.0), (1.0, -100.0)):
        near = Neighbors(*walk(q * scale, v, o * scale + shift, 33))
        best = brute_force(q * scale, v, o * scale + shift, 33)
        scores = (q.double() * scale) @ v.double().T + (o * scale + shift).double()
        reached = scores.gather(1, near.position)
        torch.testing.assert_close(reached, torch.stack(best), rtol=1e-5, atol=0.0)


def test_vectors_may_lie_in_memory_in_any_order() -> None:
    q, v, o = problem(n=3000)
    room = torch.zeros(6, 4000)
    room[:, :3000] = v.T
    expected = walk(q, v, o, 9)
    for same in (v.T.contiguous().T, room[:, :3000].T, v.repeat(1, 2)[:, :6]):
        assert all(map(torch.equal, walk(q, same, o, 9), expected))


@pytest.mark.parametrize(
    ("b", "n", "walks"),
    [
        (exact._FEW - 1, 5_000, False),
        (exact._FEW, 5_000, True),
        (exact._FEW, 2_000, False),
        (1, exact._WORTH_IT, True),
    ],
)
def test_searches_that_are_worth_it_walk(
    b: int, n: int, walks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, v, o = problem(b=b, n=n, p=2)
    calls = []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return walk(*arguments)

    monkeypatch.setattr(walk_numba, "walk", counted)
    near = exact.top(q, v, o, 9)
    assert len(calls) == walks
    check_up_to_ties(near, brute_force(q, v, o, 9), q, v, o)


def test_without_numba_the_neighbours_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    q, v, o = problem(b=exact._FEW, n=3000)
    exclude = torch.arange(len(q))
    walked = exact.top(q, v, o, 9, exclude=exclude)
    monkeypatch.setitem(sys.modules, "numba", None)
    has_numba.cache_clear()
    try:
        assert torch.equal(exact.top(q, v, o, 9, exclude=exclude)[0], walked.position)
    finally:
        has_numba.cache_clear()

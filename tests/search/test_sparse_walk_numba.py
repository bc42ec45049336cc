"""The search among vectors that are mostly zero, against float64, up to ties."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.search.test_exact import brute_force, check_up_to_ties

pytest.importorskip("numba")
from tabr.search.exact import Neighbors
from tabr.search.sparse_walk_numba import SparseVectors, walk
from tests.search.test_walk_numba import conditions


def problem(b: int = 30, n: int = 500, p: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, vectors of three numbers and levels, offsets."""
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(b, p, generator=generator)
    vectors = torch.randn(n, p, generator=generator)
    vectors[:, 3:] = (torch.rand(n, p - 3, generator=generator) < 0.1).float()
    return 2 * queries, vectors, -vectors.square().sum(-1)


@pytest.mark.parametrize("n", [1, 7, 500, 30_000])
@pytest.mark.parametrize("m", [1, 96])
@pytest.mark.parametrize("p", [4, 90])
def test_finds_the_same_as_brute_force(n: int, m: int, p: int) -> None:
    q, v, o = problem(b=11, n=n, p=p)
    near = Neighbors(*walk(q, SparseVectors.of(v), o, min(m, n)))
    assert near.position.shape == near.found.shape == (11, min(m, n))
    check_up_to_ties(near, brute_force(q, v, o, m), q, v, o)
    scores = (q @ v.T + o).gather(1, near.position)
    assert (scores.diff() <= 1e-4).all()  # best first


@pytest.mark.parametrize("b", [1, 64, 128, 301])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_every_query_finds_its_own(b: int, n_threads: int) -> None:
    q, v, o = problem(b=b, n=3000)
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        near = Neighbors(*walk(q, SparseVectors.of(v), o, 9))
    finally:
        torch.set_num_threads(before)
    check_up_to_ties(near, brute_force(q, v, o, 9), q, v, o)


@pytest.mark.parametrize("n", [5, 300, 5000])
@pytest.mark.parametrize("m", [3, 96])
def test_only_whom_a_filter_allows_is_found(n: int, m: int) -> None:
    q, v, o = problem(b=37, n=n)
    filter = conditions(37, n)
    may = filter.allowed(slice(0, 37), slice(0, n))
    near = Neighbors(*walk(q, SparseVectors.of(v), o, min(m, n), filter=filter))
    check_up_to_ties(near, brute_force(q, v, o, m, may), q, v, o)


@pytest.mark.parametrize("filtered", [False, True])
def test_neighbours_of_before_change_nothing(filtered: bool) -> None:
    q, v, o = problem(b=140, n=4000)
    filter, vectors = conditions(140, 4000) if filtered else None, SparseVectors.of(v)
    exact = walk(q, vectors, o, 12, None, filter)
    for moved in (q, q + 0.1 * torch.randn_like(q), -q):
        last = walk(moved, vectors, o, 12, None, filter)[0].int()
        last[:3] = -1
        last[5, 4] = -1
        assert all(map(torch.equal, walk(q, vectors, o, 12, None, filter, last), exact))


def test_candidates_that_are_all_alike_are_found_again() -> None:
    q, v, o = torch.randn(40, 5), torch.zeros(3000, 5), torch.zeros(3000)
    position, _ = walk(q, SparseVectors.of(v), o, 12)
    again = walk(q, SparseVectors.of(v), o, 12, last=position.int())
    assert again[1].all()
    assert torch.equal(again[0], torch.arange(12).expand(40, 12))


def test_among_equals_the_lower_position_wins() -> None:
    v = torch.zeros(900, 5)
    v[::3, 0] = 1.0
    q, o = torch.ones(3, 5), torch.zeros(900)
    position, found = walk(q, SparseVectors.of(v), o, 10)
    assert found.all()
    assert torch.equal(position, torch.arange(0, 30, 3).expand(3, 10))


def test_who_is_excluded_or_removed_is_not_found() -> None:
    _, v, o = problem(n=3000)
    exclude: Any = torch.arange(30)
    gone = torch.arange(0, 3000, 7)
    offsets = o.index_fill(0, gone, -math.inf)
    position, found = walk(2 * v[:30], SparseVectors.of(v), offsets, 20, exclude)
    assert found.all()
    assert not (position == exclude[:, None]).any()
    assert not torch.isin(position, gone).any()


@pytest.mark.parametrize("p", [1, 5, 70])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_lengths_are_quadratic_forms(p: int, n_threads: int) -> None:
    generator = torch.Generator().manual_seed(1)
    v = torch.randn(200, p, generator=generator)
    v *= torch.rand(200, p, generator=generator) < 0.3
    root = torch.randn(p, p, generator=generator)
    gram, before = root @ root.T, torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        lengths = SparseVectors.of(v).lengths(gram)
    finally:
        torch.set_num_threads(before)
    expected = torch.einsum("np,pq,nq->n", v.double(), gram.double(), v.double())
    torch.testing.assert_close(lengths.double(), expected, rtol=1e-4, atol=1e-4)

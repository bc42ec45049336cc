"""Who may be among the m best, against exact scores of everybody."""

from __future__ import annotations

import pytest
import torch

from tabr.search import contenders as contenders_of
from tabr.search.contenders import Rated, contenders, margins, ranked, rate
from tabr.search.filter import Filter

M = 20


def setting(n: int, p: int, copies: bool, far: float) -> tuple[torch.Tensor, ...]:
    """Return points and exact similarities, and what a search in float32 reads."""
    generator = torch.Generator().manual_seed(n + p)
    points = torch.randn(n, p, generator=generator)
    if copies:
        points = points[torch.randint(5, (n,), generator=generator)]
    points[0] = far
    root = torch.randn(p, p, generator=generator, dtype=torch.float64)
    gram, own = root @ root.T, points[: min(n, 30)].double() + 1e-3
    distinct, place = points.double().unique(dim=0, return_inverse=True)
    apart = own[:, None] - distinct
    exact = -((apart @ gram) * apart).sum(-1)[:, place]  # the same for copies
    center = points.mean(0)
    vectors, x = points - center, (points - center).double()
    rated = rate(vectors, -((x @ gram) * x).sum(1), x @ gram)
    queries = margins((2 * (own - center) @ gram).float())
    return exact, queries, Rated(rated[0].T, *rated[1])


@pytest.mark.parametrize("numba", [True, False])
@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("far", [0.0, 1e3, 1e6])
@pytest.mark.parametrize(("n", "p"), [(15, 2), (400, 1), (3000, 9)])
def test_the_best_are_found_and_of_equal_ones_the_first(
    n: int,
    p: int,
    far: float,
    copies: bool,
    numba: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if numba:
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(contenders_of, "has_numba", lambda: False)
    exact, queries, rated = setting(n, p, copies, far)
    odd = torch.arange(n, dtype=torch.int32)[None] % 2
    one = torch.ones(1, len(queries), dtype=torch.int32)
    for filter in (None, Filter(odd, one, one, 0, 1)):
        m = min(M, n)
        allowed = exact if filter is None else exact.where(odd == 1, -torch.inf)
        listed = contenders(queries, rated, m, filter)
        measured = allowed.gather(1, listed.position)
        near, similarity = ranked(*listed, measured, m)
        best, position = allowed.sort(dim=1, descending=True, stable=True)
        k = min(m, n if filter is None else n // 2)
        assert torch.equal(near.position[:, :k], position[:, :k])
        assert torch.equal(similarity[:, :k], best[:, :k])
        assert near.found[:, :k].all() and not near.found[:, k:].any()

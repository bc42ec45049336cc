"""Products that give a row the same bits whoever comes along."""

from __future__ import annotations

import pytest
import torch

from tabr.network import products

pytest.importorskip("numba")
SHAPES = [(1, 1, 1), (7, 3, 5), (64, 21, 200), (130, 265, 530)]


def floats(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


@torch.no_grad()
@pytest.mark.parametrize(("n", "k", "h"), SHAPES)
def test_a_linear_layer_is_that_of_torch_and_the_same_in_any_batch(
    n: int, k: int, h: int
) -> None:
    x, weight, bias = floats(n, k), floats(h, k), floats(h)
    x[:, : k // 2] *= floats(n, k // 2) > 0.5  # some zeros
    whole = products.linear(x, weight, bias)
    torch.testing.assert_close(whole, x @ weight.T + bias)
    for rows in (slice(0, 1), slice(n // 2, None), slice(None, None, 3)):
        assert torch.equal(products.linear(x[rows], weight, bias), whole[rows])
    turned = products.turned(weight)
    assert torch.equal(products.linear(x, turned, bias), whole)


@torch.no_grad()
def test_other_products_are_those_of_torch_and_the_same_in_any_batch() -> None:
    x, matrices, w = floats(9, 4, 6), floats(4, 6, 5), floats(9, 4).abs()
    by_group = (x[:, :, None] @ matrices).squeeze(2)
    for mine, slow in (
        (lambda r: products.group_products(x[r], matrices), by_group),
        (lambda r: products.squares(x[r]), (x * x).sum(-1)),
        (lambda r: products.pair_products(x[r], x[r][:, 0]), (x * x[:, :1]).sum(-1)),
        (lambda r: products.weighted_sum(w[r], x[r]), (w[..., None] * x).sum(1)),
        (lambda r: products.shares(w[r], None), w.softmax(1)),
        (lambda r: products.total(x[r], 1), x.sum(1)),
    ):  # fmt: skip
        whole = mine(slice(None))
        torch.testing.assert_close(whole, slow)
        for i in range(9):
            assert torch.equal(mine(slice(i, i + 1))[0], whole[i])


@torch.no_grad()
def test_who_is_not_found_changes_no_share() -> None:
    similarity, found = floats(5, 11), torch.zeros(5, 11, dtype=torch.bool)
    found[:, :7] = True
    padded = products.shares(similarity, found)
    assert torch.equal(padded[:, :7], products.shares(similarity[:, :7], None))
    assert not padded[:, 7:].any()
    assert not products.shares(similarity, ~found & found).any()


@torch.no_grad()
@pytest.mark.parametrize(("m", "h"), [(1, 3), (10, 192), (13, 401)])
def test_a_hidden_sum_is_that_of_torch_and_the_same_in_any_batch(
    m: int, h: int
) -> None:
    d, w = floats(20, m, 9).float(), floats(20, m).abs().float()
    weight, bias = floats(h, 9).float(), floats(h).float()
    whole = products.hidden_sum(d, w, weight, bias)
    slow = (w[..., None] * (d @ weight.T + bias).relu()).sum(1)
    torch.testing.assert_close(whole, slow, rtol=1e-4, atol=1e-4)
    assert torch.equal(products.hidden_sum(d[3:4], w[3:4], weight, bias)[0], whole[3])


@torch.no_grad()
@pytest.mark.parametrize("zeros", [0.0, 0.6, 0.97])
@pytest.mark.parametrize(("k", "p"), [(1, 1), (33, 6), (70, 41)])
def test_a_length_is_that_of_torch_whoever_else_is_measured(
    k: int, p: int, zeros: float
) -> None:
    kept = torch.rand(60 + 7, p, generator=torch.Generator().manual_seed(k)) >= zeros
    points, x = (floats(60, p) * kept[:60]).float(), floats(7, p) * kept[60:]
    positions, root = floats(7, k).argsort(1) % 60, floats(p, p)
    gram = root @ root.T
    x[0] = points[positions[0, -1]].double()
    triangle = products.triangle(gram)
    whole = products.lengths(x, points, positions, triangle)
    away = x[:, None] - points[positions].double()
    torch.testing.assert_close(whole, ((away @ gram) * away).sum(-1))
    assert whole[0, -1] == 0
    turned = products.lengths(x.flip(0), points, positions.flip(0, 1), triangle)
    assert torch.equal(turned.flip(0, 1), whole)
    for j in {0, k // 2, k - 1}:
        one = positions[2:3, j : j + 1]
        assert products.lengths(x[2:3], points, one, triangle) == whole[2, j]


@torch.no_grad()
def test_zeros_that_are_passed_by_change_no_bit() -> None:
    d, w = floats(5, 12, 21).float(), floats(5, 12).abs().float()
    d[:, :, ::3] = 0
    weight, bias = floats(300, 21).float(), floats(300).float()
    left = [q for q in range(21) if q % 3]
    whole = products.hidden_sum(d, w, weight, bias)
    narrow = products.hidden_sum(d[:, :, left], w, weight[:, left], bias)
    assert torch.equal(whole, narrow)
    x = d[:, 0].double()
    some = products.linear(x[:, left], weight[:, left].double())
    assert torch.equal(products.linear(x, weight.double()), some)


@torch.no_grad()
@pytest.mark.parametrize("h", [143, 144, 145, 288, 290])
def test_a_unit_has_the_same_bits_in_a_tile_and_beside_it(h: int) -> None:
    x, weight, bias = floats(6, 11), floats(h, 11), floats(h)
    whole = products.linear(x, weight, bias)
    for j in (0, h // 2, h - 1):
        one = products.linear(x, weight[j : j + 1], bias[j : j + 1])
        assert torch.equal(one[:, 0], whole[:, j])

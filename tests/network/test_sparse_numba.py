"""Squared lengths of differences that are mostly zero, against plain torch.

The sums of `Sparse` are tested beside the dense ones.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tabr.network.hidden_sum import squared_length

pytest.importorskip("numba")
from tabr.device.tiles_numba import TILE
from tabr.network.sparse_numba import SquaredLength, _Fours

SHAPES = [(1, 1, 1), (3, 4, 5), (2, 7, TILE - 1), (3, 5, TILE), (4, 3, 2 * TILE + 2)]


def differences(b: int, m: int, p: int, share: float = 0.3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    d = torch.randn(b, m, p, generator=generator).double()
    return d * (torch.rand(b, m, p, generator=generator) < share)


def root(p: int, d: int | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(d or p, p, generator=generator).double()


def symmetric(p: int) -> Tensor:
    return (root(p).T @ root(p)).requires_grad_()


@pytest.mark.parametrize(("b", "m", "p"), SHAPES)
@pytest.mark.parametrize("n_threads", [1, 2])
def test_lengths_and_gradients_are_those_of_the_quadratic_form(
    b: int, m: int, p: int, n_threads: int
) -> None:
    d, gram, before = differences(b, m, p), symmetric(p), torch.get_num_threads()
    g = torch.randn(b, m, generator=torch.Generator().manual_seed(2)).double()
    expected = torch.einsum("bmp,pq,bmq->bm", d, gram, d)
    torch.set_num_threads(n_threads)
    try:
        lengths = SquaredLength.apply(d, gram)
        gradients = [
            torch.autograd.grad((out * g).sum(), gram)[0] for out in (lengths, expected)
        ]
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(lengths, expected)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
@pytest.mark.parametrize(("p", "width"), [(8, 8), (8, 5), (100, 100), (100, 30)])
def test_lengths_are_those_of_keys_in_whatever_form(
    p: int, width: int, share: float
) -> None:
    d, key = differences(40, 96, p, share), root(p, width)
    expected = (d @ key.T).square().sum(-1)
    lengths = squared_length(d.float(), key.float(), (key.T @ key).float())
    torch.testing.assert_close(lengths.double(), expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(
    ("b", "p", "share", "dtype", "is_taken"),
    [
        (40, 100, 0.2, torch.float32, True),
        (40, 100, 0.6, torch.float32, False),
        (40, 60, 0.2, torch.float32, False),
        (1, 100, 0.2, torch.float32, False),  # a single prediction
        (40, 100, 0.2, torch.float64, False),  # a fitted model's
    ],
)
def test_loops_measure_many_sparse_differences_of_training(
    b: int,
    p: int,
    share: float,
    dtype: torch.dtype,
    is_taken: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, real = [], SquaredLength.apply
    monkeypatch.setattr(
        SquaredLength, "apply", lambda *given: calls.append(given) or real(*given)
    )
    key = root(p).to(dtype)
    squared_length(differences(b, 96, p, share).to(dtype), key, key.T @ key)
    assert len(calls) == is_taken


def test_fours_hold_every_number_of_the_rows_pairs_and_no_other() -> None:
    d, counts = differences(1, 14, 50)[0], torch.tensor([5, 0, 8, 1])
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    fours, rebuilt = _Fours.of(d, starts), torch.zeros_like(d)
    for i in range(len(counts)):
        pairs = range(int(starts[i]), int(starts[i + 1]))
        for g, k in enumerate(pairs[::4], int(fours.first[i])):
            begin, end = fours.starts[g : g + 2].tolist()
            assert (end - begin) % 4 == 0
            for column, values in zip(
                fours.columns[begin:end], fours.values[begin:end], strict=True
            ):
                if column >= 50:
                    assert not values.any()
                    continue
                some = range(k, min(k + 4, pairs.stop))
                assert not values[len(some) :].any()
                rebuilt[list(some), column] = values[: len(some)]
    assert torch.equal(rebuilt, d)

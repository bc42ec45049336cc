"""Lanes and captured functions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tabr.device.cuda_graphs import Graphed, Lane

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device"
)


def test_on_a_cpu_a_function_is_called_as_it_is() -> None:
    lane, calls = Lane(CPU, seed=3), []

    def double(x: Tensor) -> Tensor:
        calls.append(len(x))
        return 2 * x

    graphed = Graphed(double, lane)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with lane:
        results = [graphed(torch.arange(n)) for n in (2, 2, 2, 2, 3)]
    lane.wait()
    assert calls == [2, 2, 2, 2, 3]
    assert results[-1].tolist() == [0, 2, 4]
    assert not graphed.graphs
    assert torch.equal(torch.get_rng_state(), before)


def draws(lane: Lane, n: int) -> list[list[float]]:
    graphed = Graphed(lambda x: torch.rand_like(x), lane)
    x = torch.zeros(4, device="cuda")
    with lane:
        return [graphed(x).tolist() for _ in range(n)]


@pytest.mark.gpu
@needs_gpu
def test_each_length_is_captured_once_and_replayed() -> None:
    lane, calls = Lane(torch.device("cuda")), []

    def double(x: Tensor) -> Tensor:
        calls.append(len(x))
        return 2 * x

    graphed = Graphed(double, lane)
    with lane:
        for n in (5, 7):
            for start in range(4):
                x = torch.arange(start, start + n, device="cuda")
                assert torch.equal(graphed(x), 2 * x)
    assert sorted(graphed.graphs) == [5, 7]
    assert calls == [5, 5, 7, 7]  # of each length one eager call, then the capture


@pytest.mark.gpu
@needs_gpu
def test_a_lane_draws_its_own_numbers_whoever_draws_beside_it() -> None:
    device = torch.device("cuda")
    torch.cuda.manual_seed(9)
    before = torch.cuda.get_rng_state()
    alone = draws(Lane(device, seed=1), 8)
    one, other = Lane(device, seed=1), Lane(device, seed=2)
    mine = Graphed(lambda x: torch.rand_like(x), one)
    theirs = Graphed(lambda x: torch.rand_like(x), other)
    x, beside = torch.zeros(4, device="cuda"), []
    for _ in range(8):
        with one:
            beside.append(mine(x).tolist())
        with other:
            theirs(x)
    assert beside == alone
    assert len({tuple(numbers) for numbers in alone}) == 8
    assert torch.equal(torch.cuda.get_rng_state(), before)


@pytest.mark.gpu
@needs_gpu
def test_what_cannot_be_captured_stays_eager_and_keeps_its_numbers() -> None:
    def waits(x: Tensor) -> Tensor:
        return torch.rand_like(x) + float(x.sum())  # asks the device: no capture

    def free(x: Tensor) -> Tensor:
        return torch.rand_like(x)

    device, x = torch.device("cuda"), torch.zeros(4, device="cuda")
    results = []
    for function in (waits, free):
        lane = Lane(device, seed=1)
        graphed = Graphed(function, lane)
        with lane:
            results.append([graphed(x).tolist() for _ in range(8)])
        assert bool(graphed.graphs) == (function is free)
    assert results[0] == results[1]


@pytest.mark.gpu
@needs_gpu
def test_what_was_forgotten_is_captured_again() -> None:
    lane, factor, x = Lane(torch.device("cuda")), [2], torch.ones(4, device="cuda")
    graphed = Graphed(lambda x: factor[0] * x, lane)
    with lane:
        before = [graphed(x).tolist() for _ in range(3)]
        graphed.forget()
        factor[0] = 3
        after = [graphed(x).tolist() for _ in range(3)]
    assert before == 3 * [[2.0] * 4] and after == 3 * [[3.0] * 4]
    assert graphed.graphs and not graphed.refused


@pytest.mark.gpu
@needs_gpu
def test_a_failed_capture_does_not_hinder_the_next() -> None:
    lane = Lane(torch.device("cuda"), seed=1)
    waits = Graphed(lambda x: x + float(x.sum()), lane)
    free = Graphed(lambda x: 2 * x, lane)
    with lane:
        for graphed in (waits, free):
            for _ in range(3):
                graphed(torch.ones(4, device="cuda"))
    assert waits.refused and free.graphs and not free.refused

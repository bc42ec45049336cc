"""Lanes and captured functions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tabr.device.cuda_graphs import GraphedFunction, Lane

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device"
)


def test_on_a_cpu_a_function_is_called_as_it_is() -> None:
    lane, calls = Lane(CPU, seed=3), []

    def double(x: Tensor) -> Tensor:
        calls.append(len(x))
        return 2 * x

    graphed = GraphedFunction(double, lane)
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
    graphed = GraphedFunction(torch.rand_like, lane)
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

    graphed = GraphedFunction(double, lane)
    with lane:
        for n in (5, 7):
            for start in range(4):
                x = torch.arange(start, start + n, device="cuda")
                assert torch.equal(graphed(x), 2 * x)
    assert sorted(graphed.graphs) == [5, 7]
    assert calls == [5, 5, 7, 7]  # of each length one eager call, then the capture


@pytest.mark.gpu
@needs_gpu
def test_a_lane_draws_the_same_numbers_alone_and_next_to_another() -> None:
    device = torch.device("cuda")
    torch.cuda.manual_seed(9)
    before = torch.cuda.get_rng_state()
    alone = draws(Lane(device, seed=1), 8)
    lanes = [Lane(device, seed=seed) for seed in (1, 2)]
    draw, draw_other = (GraphedFunction(torch.rand_like, lane) for lane in lanes)
    x, numbers_of_first = torch.zeros(4, device="cuda"), []
    for _ in range(8):
        with lanes[0]:
            numbers_of_first.append(draw(x).tolist())
        with lanes[1]:
            draw_other(x)
    assert numbers_of_first == alone
    assert len({tuple(numbers) for numbers in alone}) == 8
    assert torch.equal(torch.cuda.get_rng_state(), before)


@pytest.mark.gpu
@needs_gpu
def test_what_cannot_be_captured_stays_eager_and_keeps_its_numbers() -> None:
    def synchronizes(x: Tensor) -> Tensor:
        return torch.rand_like(x) + float(x.sum())  # no graph can hold this

    device, x = torch.device("cuda"), torch.zeros(4, device="cuda")
    results = []
    for function in (synchronizes, torch.rand_like):
        lane = Lane(device, seed=1)
        graphed = GraphedFunction(function, lane)
        with lane:
            results.append([graphed(x).tolist() for _ in range(8)])
        assert bool(graphed.graphs) == (function is torch.rand_like)
    assert results[0] == results[1]


@pytest.mark.gpu
@needs_gpu
def test_what_was_forgotten_is_captured_again() -> None:
    factor, x = [2], torch.ones(4, device="cuda")
    lane = Lane(torch.device("cuda"))  # it begins after what was there before
    graphed = GraphedFunction(lambda x: factor[0] * x, lane)
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
    synchronizes = GraphedFunction(lambda x: x + float(x.sum()), lane)
    doubles = GraphedFunction(lambda x: 2 * x, lane)
    with lane:
        for graphed in (synchronizes, doubles):
            for _ in range(3):
                graphed(torch.ones(4, device="cuda"))
    assert synchronizes.refused and doubles.graphs and not doubles.refused

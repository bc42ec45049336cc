"""Random numbers by member."""

from __future__ import annotations

import pytest
import torch

from tabr.device.member_axis import stacked_members
from tabr.device.random import Dropout, dropout, new_counter, use_counters

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device"
)


def test_dropout_keeps_rate_and_mean_in_training_and_does_nothing_otherwise() -> None:
    x = torch.full((300, 40), 3.0)
    module = Dropout(0.3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        dropped = module(x)
    assert abs(float((dropped == 0).double().mean()) - 0.3) < 0.02
    assert abs(float(dropped.mean()) - 3) < 0.1
    assert set(dropped.unique().tolist()) == {0.0, dropped.max().item()}
    assert module.eval()(x) is x
    assert dropout(x, 0.0) is x


@pytest.mark.parametrize("axis", [0, 1])
def test_each_member_drops_its_own_numbers(axis: int) -> None:
    with torch.random.fork_rng(), stacked_members(40):
        torch.manual_seed(0)
        drop = torch.vmap(lambda x: dropout(x, 0.5), in_dims=axis)
        out = drop(torch.ones(40, 40))
    assert out.shape == (40, 40)
    assert len({tuple(part.tolist()) for part in out}) == 40


def test_gradients_pass_where_numbers_were_kept() -> None:
    x = torch.ones(2, 200, requires_grad=True)
    with torch.random.fork_rng(), stacked_members(2):
        torch.manual_seed(0)
        out = torch.vmap(lambda x: dropout(x, 0.5))(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


@pytest.mark.gpu
@needs_gpu
def test_counters_decide_what_is_drawn_and_each_call_counts() -> None:
    device = torch.device("cuda")
    x = torch.ones(700, 90, device=device)

    def drawn(seeds: list[int], n_calls: int) -> list[torch.Tensor]:
        counters = torch.cat([new_counter(seed, device) for seed in seeds])
        with use_counters(counters):
            if len(seeds) == 1:
                return [dropout(x, 0.4)[None] for _ in range(n_calls)]
            with stacked_members(len(seeds)):
                several = x.expand(len(seeds), *x.shape)
                drop = torch.vmap(lambda x: dropout(x, 0.4))
                return [drop(several) for _ in range(n_calls)]

    alone = [drawn([seed], 2) for seed in (5, 2**31 + 1)]
    stacked = drawn([5, 2**31 + 1], 2)
    for call in (0, 1):
        assert torch.equal(torch.cat([calls[call] for calls in alone]), stacked[call])
    parts = [part for call in stacked for part in call]
    for i, part in enumerate(parts):
        assert abs(float((part == 0).double().mean()) - 0.4) < 0.01
        assert abs(float(part.mean()) - 1) < 0.02
        for other in parts[:i]:  # independent: zero in both as often as by chance
            in_both = float(((part == 0) & (other == 0)).double().mean())
            assert abs(in_both - 0.16) < 0.01

"""Random numbers of networks that are run as one."""

from __future__ import annotations

import pytest
import torch

from tabr.device import member_axis

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device"
)


def test_dropout_keeps_rate_and_mean_in_training_and_does_nothing_otherwise() -> None:
    x = torch.full((300, 40), 3.0)
    module = member_axis.Dropout(0.3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        dropped = module(x)
    assert abs(float((dropped == 0).double().mean()) - 0.3) < 0.02
    assert abs(float(dropped.mean()) - 3) < 0.1
    assert set(dropped.unique().tolist()) == {0.0, dropped.max().item()}
    assert module.eval()(x) is x
    assert member_axis.dropout(x, 0.0) is x


@pytest.mark.parametrize("axis", [0, 1])
def test_each_member_drops_its_own_numbers(axis: int) -> None:
    with torch.random.fork_rng(), member_axis.as_members(40):
        torch.manual_seed(0)
        drop = torch.vmap(lambda x: member_axis.dropout(x, 0.5), in_dims=axis)
        out = drop(torch.ones(40, 40))
    assert member_axis.n_members() == 0
    assert out.shape == (40, 40)
    assert len({tuple(part.tolist()) for part in out}) == 40


def test_a_function_for_all_sees_every_tensor_with_the_member_axis_in_front() -> None:
    x, weight = torch.rand(4, 3, requires_grad=True), torch.rand(2, requires_grad=True)
    seen = []

    def scaled(x: torch.Tensor, weight: torch.Tensor, factor: float) -> torch.Tensor:
        seen.append((x.shape, weight.shape))
        return factor * x[..., None] * weight[:, None]

    out = torch.vmap(lambda x: member_axis.for_all(scaled, x, weight, 3.0), in_dims=1)(
        x
    )
    assert seen == [((3, 4), (3, 2))]
    torch.testing.assert_close(out, 3 * x.T[..., None] * weight)
    grads = torch.autograd.grad(out.square().sum(), (x, weight))
    plain = (3 * x.T[..., None] * weight).square().sum()
    for ours, theirs in zip(
        grads, torch.autograd.grad(plain, (x, weight)), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_gradients_pass_where_numbers_were_kept() -> None:
    x = torch.ones(2, 200, requires_grad=True)
    with torch.random.fork_rng(), member_axis.as_members(2):
        torch.manual_seed(0)
        out = torch.vmap(lambda x: member_axis.dropout(x, 0.5))(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


@pytest.mark.gpu
@needs_gpu
def test_counters_decide_what_is_drawn_and_each_call_counts() -> None:
    device = torch.device("cuda")
    x = torch.ones(700, 90, device=device)

    def drawn(seeds: list[int], n_calls: int) -> list[torch.Tensor]:
        counters = torch.cat([member_axis.new_counter(seed, device) for seed in seeds])
        with member_axis.counting(counters):
            if len(seeds) == 1:
                return [member_axis.dropout(x, 0.4)[None] for _ in range(n_calls)]
            with member_axis.as_members(len(seeds)):
                several = x.expand(len(seeds), *x.shape)
                drop = torch.vmap(lambda x: member_axis.dropout(x, 0.4))
                return [drop(several) for _ in range(n_calls)]

    alone = [drawn([seed], 2) for seed in (5, 2**31 + 1)]
    together = drawn([5, 2**31 + 1], 2)
    for call in (0, 1):
        assert torch.equal(torch.cat([one[call] for one in alone]), together[call])
    parts = [part for call in together for part in call]
    for i, part in enumerate(parts):
        assert abs(float((part == 0).double().mean()) - 0.4) < 0.01
        assert abs(float(part.mean()) - 1) < 0.02
        for other in parts[:i]:  # independent: both zero as often as by chance
            both = float(((part == 0) & (other == 0)).double().mean())
            assert abs(both - 0.16) < 0.01

"""Functions that see the member axis, called from code that does not."""

from __future__ import annotations

import pytest
import torch

from tabr.device import member_axis


def test_a_function_sees_every_tensor_with_the_member_axis_in_front() -> None:
    x, weight = torch.rand(4, 3, requires_grad=True), torch.rand(2, requires_grad=True)
    shapes = []

    def scaled(x: torch.Tensor, weight: torch.Tensor, factor: float) -> torch.Tensor:
        shapes.append((x.shape, weight.shape))
        return factor * x[..., None] * weight[:, None]

    def of_one_member(x: torch.Tensor) -> torch.Tensor:
        return member_axis.with_member_axis(scaled, x, weight, 3.0)

    out = torch.vmap(of_one_member, in_dims=1)(x)
    assert shapes == [((3, 4), (3, 2))]
    expected = 3 * x.T[..., None] * weight
    torch.testing.assert_close(out, expected)
    gradients = [
        torch.autograd.grad(result.square().sum(), (x, weight))
        for result in (out, expected)
    ]
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain)


def test_members_are_counted_within_their_context() -> None:
    counts = []

    def count() -> None:
        counts.append((member_axis.n_members(), member_axis.n_on_device()))

    count()
    with pytest.raises(KeyError), member_axis.stacked_members(3):
        count()
        with member_axis.separate_members():
            count()
        raise KeyError
    count()
    assert counts == [(0, 1), (3, 3), (0, 3), (0, 1)]

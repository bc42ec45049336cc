"""The member axis: networks of one shape that run as one.

`torch.vmap` puts a member axis in front of each tensor, and the code that it runs sees
one member. Two things still depend on the number of members: random numbers (`random`),
and how much work keeps a GPU busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

_n_members: ContextVar[int] = ContextVar("n_members", default=0)
_n_on_device: ContextVar[int] = ContextVar("n_on_device", default=1)


def n_members() -> int:
    """Return how many networks run as one; 0 for a network by itself."""
    return _n_members.get()


def n_on_device() -> int:
    """Return how many networks share the device, as one or in streams of their own."""
    return _n_on_device.get()


@contextmanager
def stacked_members(n: int) -> Iterator[None]:
    """A context in which n networks run as one."""
    with set_variable(_n_members, n), set_variable(_n_on_device, n):
        yield


@contextmanager
def separate_members() -> Iterator[None]:
    """A context, within `stacked_members`, in which each member runs by itself."""
    with set_variable(_n_members, 0):
        yield


@contextmanager
def set_variable(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """A context in which the variable has this value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def with_member_axis(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Return what a function makes of all members, called from the code of one member.

    The function gets each tensor with the member axis in front, and returns such a one.
    """
    call: Any = _WithMemberAxis
    out: Tensor = call.apply(function, *arguments)
    return out


class _WithMemberAxis(torch.autograd.Function):
    """Its rule for `torch.vmap` is the function itself."""

    @staticmethod
    def forward(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
        # Torch calls it only if no tensor has a member axis; gradients would be lost.
        raise NotImplementedError("one tensor at least must have a member axis")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], function: Any, *arguments: Any
    ) -> tuple[Tensor, int]:
        """Call the function with the member axis in front."""
        moved = (
            _member_axis_first(argument, axis, info.batch_size)
            for argument, axis in zip(arguments, in_dims[1:], strict=True)
        )
        return function(*moved), 0


def _member_axis_first(argument: Any, axis: int | None, n: int) -> Any:
    """Return a tensor with the member axis first; without one all n members share it.

    What is no tensor stays as it is.
    """
    if not isinstance(argument, Tensor):
        return argument
    if axis is None:
        return argument.expand(n, *argument.shape)
    return argument.movedim(axis, 0)

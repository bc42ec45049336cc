"""What is different when networks of one shape are run as one.

`torch.vmap` gives every tensor a member axis. Code that it runs sees one member, and
need not know, with two exceptions: a member must draw the random numbers it would draw
alone, so whoever draws comes here; and what keeps a GPU busy for one network may be
more than enough for several.

On a GPU random numbers follow from a counter of each member, which counts the calls: no
library's generator has to be asked for each member and each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.device.devices import has_triton

_n_members: ContextVar[int] = ContextVar("n_members", default=0)
_n_at_once: ContextVar[int] = ContextVar("n_at_once", default=1)
_counters: ContextVar[Tensor | None] = ContextVar("counters", default=None)


def n_members() -> int:
    """Tell how many networks are run as one; 0 is one by itself."""
    return _n_members.get()


def n_at_once() -> int:
    """Tell how many networks share the device, as one or side by side."""
    return _n_at_once.get()


@contextmanager
def as_members(n: int) -> Iterator[None]:
    """Tell that n networks are run as one."""
    with _set(_n_members, n), _set(_n_at_once, n):
        yield


@contextmanager
def side_by_side() -> Iterator[None]:
    """Tell that the members are run each by itself for a while, at the same time."""
    with _set(_n_members, 0):
        yield


@contextmanager
def _set(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def new_counter(seed: int, device: torch.device) -> Tensor | None:
    """Return a counter (1,), where random numbers follow from one."""
    if not has_triton(device):
        return None
    start = (seed << 32) % 2**64  # members of other seeds never meet
    signed = start - 2**64 if start >= 2**63 else start
    return torch.tensor([signed], dtype=torch.int64, device=device)


@contextmanager
def counting(counters: Tensor | None) -> Iterator[None]:
    """Draw by counters (k,), one for each member; None asks torch's generator."""
    with _set(_counters, counters):
        yield


def seeds(device: torch.device) -> Tensor:
    """Return a new seed for each member, (k,) or (1,), until the next call."""
    counters = _counters.get()
    if counters is not None:
        return counters.add_(1)
    # Drawn on the device: a captured graph draws a new seed at each replay.
    drawn = torch.empty(max(1, n_members()), dtype=torch.int64, device=device)
    return drawn.random_()


def dropout(x: Tensor, rate: float) -> Tensor:
    """Set numbers to zero at this rate, and scale the others up."""
    if rate == 0.0:
        return x
    if n_members():
        return for_all(_drop, x, rate)
    if _counters.get() is None or x.dtype != torch.float32:
        return F.dropout(x, rate)
    return x * _factors(x, rate).squeeze(0)


class Dropout(nn.Module):
    """`dropout` in training; otherwise nothing."""

    def __init__(self, rate: float) -> None:
        """Keep the rate."""
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Drop, or leave x as it is."""
        return dropout(x, self.rate) if self.training else x


def _factors(one: Tensor, rate: float) -> Tensor:
    """Return what the numbers of each member are multiplied with, (k, ...)."""
    from tabr.device.random_triton import factors

    return factors(seeds(one.device), one.shape, rate)


def _drop(x: Tensor, rate: float) -> Tensor:
    """Drop numbers of x (k, ...), of each member its own."""
    if _counters.get() is None:
        return F.dropout(x, rate)
    return x * _factors(x[0], rate)


def for_all(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Call a function that knows the member axis from code that does not see it.

    All tensors come to it with the member axis in front, and so does its result leave.
    """
    call: Any = _ForAll
    out: Tensor = call.apply(function, *arguments)
    return out


class _ForAll(torch.autograd.Function):
    """Its rule for `torch.vmap` is the function itself."""

    @staticmethod
    def forward(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
        # Torch asks for a forward, and calls it if no tensor has a member axis: then
        # there is nothing to do for all, and gradients would be lost.
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
            _in_front(argument, axis, info.batch_size)
            for argument, axis in zip(arguments, in_dims[1:], strict=True)
        )
        return function(*moved), 0


def _in_front(argument: Any, axis: int | None, n: int) -> Any:
    """Return a tensor with the member axis first; without one all n members share it.

    What is no tensor stays as it is.
    """
    if not isinstance(argument, Tensor):
        return argument
    if axis is None:
        return argument.expand(n, *argument.shape)
    return argument.movedim(axis, 0)

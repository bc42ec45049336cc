"""What is different when networks of one shape are run as one.

`torch.vmap` gives every tensor a member axis. Code that it runs sees one member, and
need not know, with two exceptions: a member must draw the random numbers it would draw
alone, so whoever draws comes here; and what keeps a GPU busy for one network may be
more than enough for several.

On a GPU random numbers follow from a counter of each member, which counts the calls: no
library's generator has to be asked for each member and each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.devices import has_triton

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
        function: Any = _MembersDropout
        out: Tensor = function.apply(x, rate)
        return out
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
    from tabr.draws_triton import factors

    return factors(seeds(one.device), one.shape, rate)


class _MembersDropout(torch.autograd.Function):
    """Only its rule for `torch.vmap` is ever called."""

    @staticmethod
    def forward(x: Tensor, rate: float) -> Tensor:
        raise NotImplementedError("members are run under torch.vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, rate: float
    ) -> tuple[Tensor, int]:
        """Drop numbers of x (k, ...), of each member its own."""
        x = on_first_axis(x, in_dims[0], info.batch_size)
        if _counters.get() is None:
            return F.dropout(x, rate), 0
        return x * _factors(x[0], rate), 0


def on_first_axis(x: Tensor, axis: int | None, n: int) -> Tensor:
    """Return x with the member axis first; without one all n members share it."""
    return x.expand(n, *x.shape) if axis is None else x.movedim(axis, 0)

"""Random numbers of members: each draws its own, though all are one tensor.

Networks of one shape may be run as one, with `torch.vmap`: every tensor then has a
member axis. A member must draw what it would draw alone, so the few places that draw
come here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Source = Callable[[], AbstractContextManager[object]]

_sources: ContextVar[Sequence[Source]] = ContextVar("sources", default=())


@contextmanager
def as_members(sources: Sequence[Source]) -> Iterator[None]:
    """Tell that networks are run as one, and within what each of them draws."""
    token = _sources.set(sources)
    try:
        yield
    finally:
        _sources.reset(token)


def are_members() -> bool:
    """Tell whether networks are run as one."""
    return bool(_sources.get())


def seeds(device: torch.device) -> Tensor:
    """Draw a seed, or one for each member: (k,), on the device."""
    sources = _sources.get()
    # Drawn on the device: a captured graph draws a new seed at each replay.
    drawn = torch.empty(max(1, len(sources)), dtype=torch.int64, device=device)
    if not sources:
        return drawn.random_()
    for source, seed in zip(sources, drawn.split(1), strict=True):
        with source():
            seed.random_()
    return drawn


def dropout(x: Tensor, rate: float) -> Tensor:
    """Set numbers to zero at this rate, and scale the others up."""
    if rate == 0.0 or not are_members():
        return F.dropout(x, rate)
    function: Any = _MembersDropout
    out: Tensor = function.apply(x, rate)
    return out


class Dropout(nn.Module):
    """`dropout` in training; otherwise nothing."""

    def __init__(self, rate: float) -> None:
        """Keep the rate."""
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Drop, or leave x as it is."""
        return dropout(x, self.rate) if self.training else x


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
        """Multiply x (k, ...) with a mask for each member."""
        x = on_first_axis(x, in_dims[0], info.batch_size)
        ones, masks = torch.ones_like(x[0]), []
        for source in _sources.get():
            with source():
                masks.append(F.dropout(ones, rate))
        return x * torch.stack(masks), 0


def on_first_axis(x: Tensor, axis: int | None, n_members: int) -> Tensor:
    """Return x with the member axis first; without one all members share it."""
    return x.expand(n_members, *x.shape) if axis is None else x.movedim(axis, 0)

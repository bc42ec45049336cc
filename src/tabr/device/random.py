"""Random numbers by member: stacked or alone, a member draws the same ones.

On a GPU they follow from a counter of each member, which counts the calls: torch's
generator would have to be set for each member at each step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.device.devices import has_triton
from tabr.device.member_axis import n_members, set_variable, with_member_axis

_counters: ContextVar[Tensor | None] = ContextVar("counters", default=None)


def new_counter(seed: int, device: torch.device) -> Tensor | None:
    """Return a counter (1,), or None where torch's generator is used."""
    if not has_triton(device):
        return None
    start = (seed << 32) % 2**64  # counters of different seeds never meet
    signed = start - 2**64 if start >= 2**63 else start
    return torch.tensor([signed], dtype=torch.int64, device=device)


@contextmanager
def use_counters(counters: Tensor | None) -> Iterator[None]:
    """A context that draws by counters (k,) of the members; None: by torch."""
    with set_variable(_counters, counters):
        yield


def seeds(device: torch.device) -> Tensor:
    """Return a new seed for each member, (k,) or (1,); the next call overwrites it."""
    counters = _counters.get()
    if counters is not None:
        return counters.add_(1)
    # Drawn on the device: a captured graph draws a new seed at each replay.
    drawn = torch.empty(max(1, n_members()), dtype=torch.int64, device=device)
    return drawn.random_()


def dropout(x: Tensor, rate: float) -> Tensor:
    """Return x with numbers set to zero at this rate, and the others scaled up."""
    if rate == 0.0:
        return x
    if n_members():
        return with_member_axis(_drop, x, rate)
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
        """Return x with numbers dropped, or x itself."""
        return dropout(x, self.rate) if self.training else x


def _drop(x: Tensor, rate: float) -> Tensor:
    """Return x (k, ...) with different numbers of each member dropped."""
    if _counters.get() is None:
        return F.dropout(x, rate)
    return x * _factors(x[0], rate)


def _factors(x: Tensor, rate: float) -> Tensor:
    """Return the factors of dropout (k, ...) for all members; x is of one member."""
    from tabr.device.random_triton import factors

    return factors(seeds(x.device), x.shape, rate)

"""Networks of one shape, trained as one: every tensor has a member axis.

A GPU begins small kernels one after the other, whoever asks. A step of several members
as one asks for hardly more kernels than a step of one; they are larger. Only searches
and optimizers stay apart, side by side in the members' lanes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tabr.device import member_axis, random
from tabr.device.cuda_graphs import Lane, run_in_lanes
from tabr.search import Neighbors
from tabr.training.losses import BatchLoss

T = TypeVar("T")


def share_storage(networks: Sequence[nn.Module]) -> None:
    """Move the networks' parameters beside each other, so that stacks need no copy."""
    for _, *parameters in _by_name(networks):
        stacked = torch.stack([parameter.detach() for parameter in parameters])
        for parameter, part in zip(parameters, stacked, strict=True):
            parameter.data = part


def part_storage(networks: Sequence[nn.Module]) -> None:
    """Return the networks' parameters to memory of their own: one may outlive all."""
    for network in networks:
        for parameter in network.parameters():
            parameter.data = parameter.detach().clone()


class Stack:
    """The networks' parameters, stacked on a member axis.

    Where parameters lie beside each other, at equal distances, a stack is a view of
    them; otherwise it is a copy.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        """Make room; nothing is copied yet."""
        self.networks = networks
        self.tensors: dict[str, Tensor] = {}
        self._own: list[Tensor] = []
        self._copies: list[Tensor] = []
        for name, *parameters in _by_name(networks):
            values = [parameter.detach() for parameter in parameters]
            stacked = _as_view(values)
            if stacked is None:
                stacked = torch.stack(values)
                self._own += values
                self._copies += stacked.unbind()
            self.tensors[name] = stacked.requires_grad_()

    @torch.no_grad()
    def follow(self) -> None:
        """Copy the networks' present parameters; gradients are forgotten."""
        if self._own:
            torch._foreach_copy_(self._copies, self._own)
        for tensor in self.tensors.values():
            tensor.grad = None

    def hand_out(self) -> None:
        """Copy the gradients of the stack to the networks."""
        for name, *parameters in _by_name(self.networks):
            grad = self.tensors[name].grad
            for place, parameter in enumerate(parameters):
                parameter.grad = None if grad is None else grad[place]

    def call(self, function: Callable[..., T], *inputs: Any) -> T:
        """Call a function of the first network for all members at once.

        Inputs and outputs are tensors with a member axis in front, or None, in tuples
        of any depth.
        """
        leaves, form = tree_flatten(inputs)
        is_tensor = [isinstance(leaf, Tensor) for leaf in leaves]
        forms: list[Any] = []

        def of_one(parameters: dict[str, Tensor], tensors: list[Tensor]) -> Any:
            values = iter(tensors)
            filled = [next(values) if exists else None for exists in is_tensor]
            call = _Call(self.networks[0], function)
            named = {f"network.{name}": value for name, value in parameters.items()}
            result = functional_call(call, named, tuple(tree_unflatten(filled, form)))
            out, out_form = tree_flatten(result)
            forms.append((out_form, [leaf is not None for leaf in out]))
            return [leaf for leaf in out if leaf is not None]

        tensors = [leaf for leaf in leaves if leaf is not None]
        values = iter(torch.vmap(of_one)(self.tensors, tensors))
        ((out_form, is_tensor_out),) = forms
        filled = [next(values) if exists else None for exists in is_tensor_out]
        result: T = tree_unflatten(filled, out_form)
        return result


def _as_view(values: Sequence[Tensor]) -> Tensor | None:
    """Return tensors of one shape as a view (k, ...), if there is one."""
    first = values[0]
    starts = [value.storage_offset() for value in values]
    steps = {b - a for a, b in itertools.pairwise(starts)} or {first.numel()}
    one_storage = len({value.untyped_storage().data_ptr() for value in values}) == 1
    if not one_storage or len(steps) > 1 or min(steps) < first.numel():
        return None
    size, stride = (len(values), *first.shape), (*steps, *first.stride())
    return torch.as_strided(first, size, stride, starts[0])


class _Call(nn.Module):
    """A function that reads a network, as a module whose parameters can be replaced."""

    def __init__(self, network: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.network, self.function = network, function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def _counters(lanes: Sequence[Lane]) -> Tensor:
    """Return the lanes' counters (k,); from now on the lanes count there, too."""
    joined = torch.cat([lane.counter for lane in lanes if lane.counter is not None])
    for lane, counter in zip(lanes, joined.split(1), strict=True):
        lane.counter = counter
    return joined


def _by_name(networks: Sequence[nn.Module]) -> list[tuple[Any, ...]]:
    """Return the name of each parameter, and the parameters of that name."""
    named = [dict(network.named_parameters()) for network in networks]
    return [(name, *(of[name] for of in named)) for name in named[0]]


class StackedLosses:
    """The losses of networks in lanes of their own, computed in a lane of all."""

    def __init__(self, losses: Sequence[BatchLoss], lanes: Sequence[Lane]) -> None:
        """Stack the networks."""
        self.losses, self.lanes = losses, lanes
        first = lanes[0]
        self.lane = Lane(first.device, captures=first.captures)
        self.stack = Stack([loss.contexts.network for loss in losses])
        self.counters = None
        if first.counter is not None:
            for lane in lanes:
                self.lane.follow(lane)
            with self.lane:
                self.counters = _counters(lanes)

    def gradients(self, batches: Tensor) -> Tensor:
        """Leave gradients in the networks; row indices (k, b) -> losses (k,)."""
        first, b = self.losses[0], batches.shape[1]
        self.stack.follow()
        with (
            member_axis.stacked_members(len(self.lanes)),
            random.use_counters(self.counters),
        ):
            shared = self.stack.call(lambda: first.contexts.snapshot(b))

            def search(place: int) -> Neighbors:
                of_one = tree_map(lambda t: t if t is None else _of(t, place), shared)
                batch = _of(batches, place)
                return self.losses[place].contexts.neighbors(batch, of_one)

            with member_axis.separate_members():
                of_each = run_in_lanes(self.lane, self.lanes, search)
            near = Neighbors(
                *(torch.stack(parts) for parts in zip(*of_each, strict=True))
            )
            losses = self.stack.call(first.of_neighbors, batches, near, shared)
        losses.sum().backward()
        self.stack.hand_out()
        return losses.detach()


def _of(values: Tensor, place: int) -> Tensor:
    """Return one member's values (k, ...), without gradients.

    They begin at a multiple of 16 bytes: kernels are compiled anew for what does not.
    """
    part = values[place].detach()
    return part if part.data_ptr() % 16 == 0 else part.clone()

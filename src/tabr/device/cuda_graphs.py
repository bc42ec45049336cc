"""CUDA graphs, and lanes: streams in which networks are trained at the same time."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Self, TypeVar
from weakref import WeakSet

import torch
from torch import Tensor

from tabr.device.random import new_counter, use_counters

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Lane:
    """A CUDA stream with random numbers of its own, for the training of one network.

    Work of different lanes overlaps, and none sees the random numbers of another: a
    network becomes the same alone and next to others. Use it as a context around all
    that is done to the network; on other devices it does nothing.
    """

    def __init__(
        self, device: torch.device, seed: int | None = None, *, captures: bool = True
    ) -> None:
        """Begin after the work that the device has so far.

        Args:
            device: Where the network is.
            seed: Of the random numbers; without one torch's generator is used.
            captures: False if graphs cannot hold the work: a failed attempt costs time.
        """
        self.device, self.captures, self._entered = device, captures, ExitStack()
        self.stream: torch.cuda.Stream | None = None
        self.counter: Tensor | None = None
        self._state: torch.Generator | None = None
        if device.type != "cuda":
            return
        self.stream = torch.cuda.Stream(device)
        self.stream.wait_stream(torch.cuda.current_stream(device))
        self._graphs: WeakSet[torch.cuda.CUDAGraph] = WeakSet()
        self._pool: Any = None
        if seed is not None:
            self._state = self._generator().clone_state()
            self._state.manual_seed(seed)
            with torch.cuda.stream(self.stream):
                self.counter = new_counter(seed, device)

    def _generator(self) -> torch.Generator:
        index = torch.cuda.current_device()
        if self.device.index is not None:
            index = self.device.index
        return torch.cuda.default_generators[index]

    def __enter__(self) -> Self:
        if self.stream is None:
            return self
        self._entered.enter_context(torch.cuda.stream(self.stream))
        self._entered.enter_context(use_counters(self.counter))
        if self._state is not None:
            generator = self._generator()
            before = generator.graphsafe_get_state()
            generator.graphsafe_set_state(self._state)
            self._entered.callback(generator.graphsafe_set_state, before)
        return self

    def pool_of(self, graph: torch.cuda.CUDAGraph) -> Any:
        """Return the memory pool that this graph shares with others of the lane.

        It is new where all earlier graphs are gone: torch takes none into such a pool.
        """
        if not self._graphs:
            self._pool = torch.cuda.graph_pool_handle()
        self._graphs.add(graph)
        return self._pool

    @property
    def offset(self) -> int:
        """How many random numbers were drawn."""
        return 0 if self._state is None else self._state.get_offset()

    def renew(self, offset: int) -> None:
        """Replace the generator by one at offset, after a capture that failed."""
        if self._state is None:
            return
        seed = self._state.initial_seed()
        self._state = torch.Generator(self.device).manual_seed(seed)
        self._state.set_offset(offset)
        self._generator().graphsafe_set_state(self._state)

    def __exit__(self, *error: object) -> None:
        self._entered.close()

    def follow(self, other: Lane) -> None:
        """Start further work of this lane after the present work of another."""
        if self.stream is not None and other.stream is not None:
            self.stream.wait_stream(other.stream)

    def wait(self) -> None:
        """Start further work outside the lane after the present work in it."""
        if self.stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.stream)


def run_in_lanes(
    lane: Lane, lanes: Sequence[Lane], work: Callable[[int], T]
) -> list[T]:
    """Return the results of work(0), work(1), ..., each done in one of the lanes.

    All of it is a part of the work of `lane`.
    """
    results = []
    for number, part in enumerate(lanes):
        part.follow(lane)
        with part:
            results.append(work(number))
    for part in lanes:
        lane.follow(part)
    return results


class GraphedFunction:
    """A function of one tensor, on a GPU as CUDA graphs, one for each length.

    Launching many small kernels one by one takes longer than running them. The first
    call of a length runs eagerly, as capture needs warm caches; what cannot be captured
    stays eager. The next call overwrites the result. Call it only within the lane.
    """

    def __init__(
        self, function: Callable[[Tensor], Tensor], lane: Lane, *, warm: bool = False
    ) -> None:
        """Capture nothing yet; `warm` says that no eager call is needed first."""
        self.function, self.lane, self.warm = function, lane, warm
        self.forget()

    def forget(self) -> None:
        """Drop the graphs, because the function computes something else now."""
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self.seen: set[int] = set()
        self.refused: set[int] = set()

    def __call__(self, index: Tensor) -> Tensor:
        """Return the function's result, from a graph if there is one."""
        if self.lane.stream is None or not self.lane.captures:
            return self.function(index)
        size = index.shape[-1]
        if size in self.graphs:
            graph, static_index, result = self.graphs[size]
            static_index.copy_(index)
            graph.replay()
            return result
        if (self.warm or size in self.seen) and size not in self.refused:
            if self._capture(index):
                return self(index)
            self.refused.add(size)
        self.seen.add(size)
        return self.function(index)

    def _capture(self, index: Tensor) -> bool:
        graph = torch.cuda.CUDAGraph()
        static_index, size = index.clone(), index.shape[-1]
        offset, collected = self.lane.offset, gc.isenabled()
        gc.disable()  # memory may not be freed during a capture
        torch.cuda.synchronize()
        try:
            pool = self.lane.pool_of(graph)
            graph.capture_begin(pool, capture_error_mode="thread_local")
            try:
                result = self.function(static_index)
            finally:
                graph.capture_end()
        except RuntimeError as error:
            torch.cuda.synchronize()
            self.lane.renew(offset)
            logger.info("calls of length %d stay eager: %s", size, error)
            return False
        finally:
            if collected:
                gc.enable()
        self.graphs[size] = graph, static_index, result
        return True

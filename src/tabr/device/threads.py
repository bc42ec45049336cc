"""Work split over threads, each of which takes whole pieces.

Torch splits each single operation over its threads, which then wait for one another:
for operations of a tenth of a millisecond the waiting costs more than the work, above
all on a busy machine. Here a thread takes its pieces through all operations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Barrier
from typing import TypeVar

import torch

T = TypeVar("T")

_pools: dict[int, ThreadPoolExecutor] = {}
_n_workers: ContextVar[int | None] = ContextVar("n_workers", default=None)


def _after_fork() -> None:
    """Let a forked process compute in one thread: others do not survive a fork.

    OpenMP would wait for those it had before; torch's own workers do the same.
    """
    _pools.clear()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def one_thread(when: bool) -> Iterator[None]:
    """A context in which torch uses one thread: little work is slower in several."""
    before = torch.get_num_threads()
    if not when or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def whole_pieces(when: bool) -> Iterator[None]:
    """A context in which `split_work` alone uses torch's number of threads.

    Torch's own operations use one: where the large ones are all split here, the small
    ones between them would only wait for one another.
    """
    before = torch.get_num_threads()
    if not when or before == 1:
        yield
        return
    token = _n_workers.set(before)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _n_workers.reset(token)


def split_work(work: Callable[[range], T], n: int) -> list[T]:
    """Return the results of work on consecutive ranges of 0..n, one per thread.

    They come in order. Gradients are not recorded.
    """
    n_threads = min(_n_workers.get() or torch.get_num_threads(), n)
    if n_threads <= 1:
        return [work(range(n))]
    bounds = [n * i // n_threads for i in range(n_threads + 1)]
    parts = [range(bounds[i], bounds[i + 1]) for i in range(n_threads)]

    def without_gradients(part: range) -> T:
        with torch.no_grad():  # a setting of each thread
            return work(part)

    return list(_pool(n_threads).map(without_gradients, parts))


def _pool(n_threads: int) -> ThreadPoolExecutor:
    if n_threads not in _pools:
        barrier = Barrier(n_threads)

        def start(_: int) -> None:
            torch.set_num_threads(1)
            barrier.wait()  # so that each thread takes one of these calls

        before = torch.get_num_threads()
        pool = ThreadPoolExecutor(n_threads, "tabr")
        list(pool.map(start, range(n_threads)))
        torch.set_num_threads(before)  # for threads that are not ours
        _pools[n_threads] = pool
    return _pools[n_threads]

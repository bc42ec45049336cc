"""Measure what a recall target saves in the search, and what it costs in the score.

    python -m benchmarks.recall --data FOLDER [--sizes 500000x50x64] [--repeat 9]

The search alone, for 96 neighbours among random points; where a target is met by the
exact search, that one's time stands. Then California is fitted with each target and
the same seed, for a few epochs and with 32 neighbours: with 96 that table is so small
that most targets are met by the exact search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks import timing
from benchmarks.timing import M, Size
from benchmarks.train import fit
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import SplitTable, data_folder, load
from tabr.search import Neighbors, best_of_bins, n_bins_for, top

SIZES = (Size(100_000, 50, 256), Size(500_000, 50, 64))
TARGETS = (None, 0.99, 0.95, 0.9)
CONTEXT_SIZE = 32


def measure(size: Size, device: torch.device, repeat: int) -> dict[str, Any]:
    """Return for each target the bins, the recall and the time of a search."""
    generator = torch.Generator(device).manual_seed(0)
    draw = partial(torch.randn, generator=generator, device=device)
    vectors, queries = draw(size.n, size.d_in), 2 * draw(size.b, size.d_in)
    data = queries, vectors, -vectors.square().sum(-1), M
    bins = {target: n_bins_for(target, size.n, M) for target in TARGETS}
    calls: dict[int | None, Callable[[], Neighbors]] = {
        n: partial(top, *data) if n is None else partial(best_of_bins, *data, n)
        for n in bins.values()
    }
    true = calls[None]().position[:, None]  # (b, 1, m)
    recall = {
        n: float((call().position[:, :, None] == true).any(2).float().mean())
        for n, call in calls.items()
    }
    ms = timing.medians(calls, device, repeat)
    return {
        "candidates": size.n,
        "d_in": size.d_in,
        "batch": size.b,
        "targets": [
            {"target": target, "bins": n, "recall": round(recall[n], 4), "ms": ms[n]}
            for target, n in bins.items()
        ],
    }


def effect(parts: SplitTable, **params: Any) -> dict[str, Any]:
    """Return what fits with each target reach; those with the same bins are one."""
    n = len(parts.train.y)
    bins = {target: n_bins_for(target, n, CONTEXT_SIZE) for target in TARGETS}
    fits: dict[int | None, dict[str, Any]] = {}
    for target, n_bins in bins.items():
        if n_bins not in fits:
            more = {"context_size": CONTEXT_SIZE, "recall_target": target}
            fits[n_bins] = fit("regression", parts, **more, **params)
    return {
        "rows": n,
        "context_size": CONTEXT_SIZE,
        "targets": [
            {"target": target, "bins": n_bins, **fits[n_bins]}
            for target, n_bins in bins.items()
        ],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = timing.parser(__doc__, repeat=9)
    parser.add_argument("--sizes", nargs="+", type=timing.size, default=SIZES)
    parser.add_argument("--data", help="folder of the tables (default: TABR_DATA)")
    parser.add_argument("--max-epochs", type=int, default=8)
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    folder = data_folder(options.data)
    sizes = []
    for size in options.sizes:
        result = measure(size, device, options.repeat)
        sizes.append(result)
        for fact in result["targets"]:
            print(size, *(f"{name} {value}" for name, value in fact.items()))
    (task,) = select(["california"])
    params = {"device": options.device, "max_epochs": options.max_epochs}
    california = effect(load(task, folder), **params)
    for fact in california["targets"]:
        print("california", *(f"{name} {value}" for name, value in fact.items()))
    result = {"m": M, "sizes": sizes, "california": california}
    timing.write("recall", options, arguments, result)


if __name__ == "__main__":
    main()

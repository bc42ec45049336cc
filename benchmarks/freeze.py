"""Time a training step after freezing, among few candidates and among many.

    python -m benchmarks.freeze [--device cuda] [--searched] [--repeat 15]

A frozen step does not search, so its cost must not depend on the number of candidates.
Neighbours are drawn by chance; `--searched` freezes true ones and tells how long that
search of all rows took.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from benchmarks import timing
from benchmarks.forms import (
    batches,
    freeze_by_chance,
    our_contexts,
    random_table,
    step_of,
)
from benchmarks.timing import Call, Size
from tabr.training.loop import Loss, seeded

SIZES = (Size(13_000, 8, 256), Size(3_000_000, 8, 256))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = timing.parser(__doc__, repeat=15)
    parser.add_argument("--sizes", nargs=2, type=timing.size, default=SIZES)
    parser.add_argument("--searched", action="store_true", help="freeze true ones")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    results: list[dict[str, Any]] = []
    calls: dict[int, Call] = {}
    with seeded(0, device), ExitStack() as stack:
        for place, size in enumerate(options.sizes):
            result = {"candidates": size.n, "d_in": size.d_in, "batch": size.b}
            table = random_table(size, device)
            stack.enter_context(table.lane)
            contexts = our_contexts(table)
            if options.searched:
                ms = timing.milliseconds(contexts.freeze, device)
                result["freeze_seconds"] = round(ms / 1e3, 3)
            else:
                freeze_by_chance(contexts)
            calls[place] = _call(step_of(contexts, table.lane), batches(size, device))
            timing.warm_up(calls[place], device)
            results.append(result)
        for place, ms in timing.medians(calls, device, options.repeat).items():
            results[place]["step_ms"] = ms
    ratio = round(results[1]["step_ms"] / results[0]["step_ms"], 3)
    for result in results:
        print(f"{result['candidates']:>10,} candidates   {result['step_ms']:.3f} ms")
    print(f"{ratio:.2f} times the cost")
    timing.write("freeze", options, arguments, {"sizes": results, "ratio": ratio})


def _call(step: Loss, rows: Iterator[Tensor]) -> Call:
    return lambda: step(next(rows))


if __name__ == "__main__":
    main()

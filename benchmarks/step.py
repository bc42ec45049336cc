"""Time a training step of TabR-S in its plain form and in ours, in one run.

    python -m benchmarks.step [--device cuda] [--sizes 13209x8x256 ...] [--repeat 9]

Each form is split into search and learning. Ours: the search is contexts alone, the
learning a step with frozen contexts. Plain: the search is the keys of all candidates,
distances and top-k, the learning is the rest of the step. Peak memory, on a GPU, is
what a form held at most, the table included, while it was built and warmed up alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch

from benchmarks import timing
from benchmarks.forms import FORMS, VISITED, Table, batches, random_table
from benchmarks.timing import Call, Size
from tabr.device.cuda_graphs import GraphedFunction
from tabr.training.loop import Loss, seeded

SIZES = (
    Size(13_209, 8, 256),
    Size(34_521, 26, 512),
    Size(62_751, 28, 512),
    Size(371_847, 98, 1024),
    Size(2_965_542, 119, 1024),
)
N_SIZES = {"cpu": 3, "cuda": 5}  # the first of them
FORMS_OF = {"cpu": ("plain", "tabr"), "cuda": ("plain", "plain-tf32", "tabr")}
HOW = {
    "plain": "search: keys, distances and top-k; learning: step minus search",
    "tabr": "search: contexts alone, of rows searched before; first search: of others;"
    " learning: step with frozen contexts",
}
OUT_OF_MEMORY = "out of memory"


def measure(
    size: Size, names: Iterable[str], device: torch.device, repeat: int
) -> dict[str, Any]:
    """Return the size and, for each form, times in milliseconds and peak memory."""
    forms: dict[str, dict[str, Any]] = {}
    calls: dict[tuple[str, str], Call] = {}
    with seeded(0, device), ExitStack() as stack:
        table = random_table(size, device)
        stack.enter_context(table.lane)
        for name in names:
            try:
                calls_of_form, forms[name] = _build(name, table, size)
            except torch.OutOfMemoryError:
                forms[name] = {"failed": OUT_OF_MEMORY}
                continue
            calls |= calls_of_form
        for (name, part), ms in timing.medians(calls, device, repeat).items():
            forms[name][f"{part}_ms"] = ms
    for form in forms.values():
        if "step_ms" in form and "learning_ms" not in form:
            form["learning_ms"] = round(form["step_ms"] - form["search_ms"], 4)
    result = {"candidates": size.n, "d_in": size.d_in, "batch": size.b, "forms": forms}
    del calls, table
    timing.free_memory(device)
    return result


def _build(
    name: str, table: Table, size: Size
) -> tuple[dict[tuple[str, str], Call], dict[str, Any]]:
    """Build all parts of a form and warm them up; the step tells the peak memory."""
    device = table.x.device
    calls: dict[tuple[str, str], Call] = {}
    facts: dict[str, Any] = {}

    def build(make: Any) -> tuple[Loss, Call]:
        of_batch = make(table)
        rows = batches(size, device)

        def call() -> object:
            return of_batch(next(rows))

        timing.warm_up(call, device, VISITED + 6 if name == "tabr" else 6)
        return of_batch, call

    for part, make in FORMS[name].items():
        (of_batch, call), peak = timing.with_peak(partial(build, make), device)
        calls[name, part] = call
        if part == "step" and peak is not None:
            facts["peak_bytes"] = table.n_bytes + peak
            facts["captured"] = isinstance(of_batch, GraphedFunction) and bool(
                of_batch.graphs
            )
    return calls, facts


def line(result: dict[str, Any]) -> str:
    """Return a result as a line for the terminal."""
    text = f"{result['candidates']:>10,} x {result['d_in']:<3} {result['batch']:>4}"
    for name, form in result["forms"].items():
        if "failed" in form:
            text += f"   {name} {form['failed']}"
            continue
        text += f"   {name} {form['step_ms']:.2f} ms"
        text += f" = {form['search_ms']:.2f} + {form['learning_ms']:.2f}"
        if "peak_bytes" in form:
            text += f", {form['peak_bytes'] / 1e9:.2f} GB"
    return text


def main(arguments: Sequence[str] | None = None) -> None:
    parser = timing.parser(__doc__, repeat=9)
    parser.add_argument("--sizes", nargs="+", type=timing.size, help="as 13209x8x256")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    sizes = options.sizes or SIZES[: N_SIZES[device.type]]
    print("form: step = search + learning, peak memory")
    results = []
    for size in sizes:
        results.append(measure(size, FORMS_OF[device.type], device, options.repeat))
        print(line(results[-1]), flush=True)
        timing.write("step", options, arguments, {"how": HOW, "sizes": results})


if __name__ == "__main__":
    main()

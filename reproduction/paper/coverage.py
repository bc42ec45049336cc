"""What was run: models, sets, seeds and hardware."""

from __future__ import annotations

from reproduction.paper.scores import Model, Results, RunKind
from reproduction.paper.text import DASH
from tabr.bench.methods import METHODS


def rows(results: Results) -> list[list[str]]:
    """Return a line for each model that has runs of ours, in the registry's order."""
    run = {model for model, _, _ in results.ours.parts}
    order = list(METHODS)
    found = sorted(run, key=lambda model: (order.index(model.method), model.config))
    lines = []
    for model in found:
        lines.append(
            [
                f"`{model.method}`, {model.config}",
                _hardware(results, model),
                _extent(results, model, "single", second=False),
                _extent(results, model, "single", second=True),
                _extent(results, model, "ensemble", second=False),
                _extent(results, model, "ensemble", second=True),
            ]
        )
    return lines


def _extent(results: Results, model: Model, kind: RunKind, *, second: bool) -> str:
    labels = results.ours.labels(model, kind)
    labels = [label for label in labels if label.startswith("why/") == second]
    cells = [results.ours.cell(model, kind, label) for label in labels]
    n_runs = sum(cell.n_runs for cell in cells if cell is not None)
    return f"{n_runs} on {len(labels)}" if labels else DASH


def _hardware(results: Results, model: Model) -> str:
    names = set[str]()
    for (found, _, _), parts in results.ours.parts.items():
        if found == model:
            names |= {name for cell in parts.values() for name in cell.hardware}
    return " and ".join(sorted(names))


def never_run(results: Results) -> list[str]:
    """Return the methods of the registry that have no runs of ours at all."""
    run = {model.method for model, _, _ in results.ours.parts}
    return [name for name in METHODS if name not in run]

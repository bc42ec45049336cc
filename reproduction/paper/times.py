"""How long a fit takes, ours and as published."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pandas as pd

from reproduction.paper.grid import SETS, Grid, Row, fill
from reproduction.paper.scores import Cell, Model, Results
from tabr.bench.methods import METHODS
from tabr.text import ABSENT

# Those of the paper's table; what else was run comes after them.
ROWS = (
    Row("XGBoost", ("xgboost",)),
    Row("LightGBM", ("lightgbm",)),
    Row("CatBoost", ("catboost",)),
    Row("MLP", ("mlp",)),
    Row("MLP-PLR", ("mlp-plr",)),
    Row("TabR-S", ("tabr-s",)),
    Row("TabR", ("tabr", "tabr-lr")),
    Row("DKL", ("dkl",)),
    Row("ANP", ("anp",)),
    Row("SAINT", ("saint",)),
    Row("NPT", ("npt",)),
)
_COLUMNS = (
    "model",
    "method",
    "config",
    "set",
    "ours_seconds",
    "ours_runs",
    "ours_hardware",
    "ours_most_at_a_time",
    "published_seconds",
    "published_gpu",
)
_SHORT = ("A100", "RTX 2080 Ti")  # the published hardware has many spellings


def timed(results: Results) -> Grid:
    """Return the cells of all models with a time."""
    named = {Model(method, row.config) for row in ROWS for method in row.methods}
    run = {m for m, kind, label in results.ours.parts if label in SETS}
    others = [
        Row(f"{method}, {config}", (method,), config)
        for method in METHODS
        for config in ("tuned", "default")
        if (method, config) in run - named
    ]
    return fill(results, [*ROWS, *others], SETS)


def rows(grid: Grid) -> list[list[str]]:
    """Return two lines for each model, ours and the published, with the hardware."""
    lines = []
    for row in grid.rows:
        ours = {s: c for s in grid.sets if (c := grid.ours[s].get(row.name))}
        published = {s: c for s in grid.sets if (c := grid.published[s].get(row.name))}
        seconds = [_seconds(ours.get(label)) for label in grid.sets]
        lines.append([row.name, "ours", _ours_hardware(ours.values()), *seconds])
        if any(not math.isnan(cell.seconds) for cell in published.values()):
            seconds = [_seconds(published.get(label)) for label in grid.sets]
            where = _published_hardware(published.values())
            lines.append(["", "published", where, *seconds])
    return lines


def _seconds(cell: Cell | None) -> str:
    if cell is None or math.isnan(cell.seconds):
        return ABSENT
    return f"{cell.seconds:,.{0 if cell.seconds >= 100 else 1}f}"


def _ours_hardware(cells: Iterable[Cell]) -> str:
    """Return where runs were made, and how many shared it."""
    cells = list(cells)
    if not cells:
        return ABSENT
    names = " and ".join(sorted({name for cell in cells for name in cell.hardware}))
    low = min(cell.workers[0] for cell in cells)
    high = max(cell.workers[1] for cell in cells)
    return f"{names}, {low if low == high else f'{low} to {high}'} at a time"


def _published_hardware(cells: Iterable[Cell]) -> str:
    cells = [cell for cell in cells if not math.isnan(cell.seconds)]
    names = {name for cell in cells for name in cell.hardware}
    short = [word for word in _SHORT if any(word in name for name in names)]
    if not all(cell.hardware for cell in cells):
        short.append("no GPU named")
    return ", ".join(short)


def to_frame(grid: Grid) -> pd.DataFrame:
    """Return a line for each model and set that has a time."""
    lines = []
    for row in grid.rows:
        for label in grid.sets:
            model = row.model(grid.results, grid.kind, label)
            ours = grid.ours[label].get(row.name)
            published = grid.published[label].get(row.name)
            if ours or (published and not math.isnan(published.seconds)):
                lines.append(
                    (
                        row.name,
                        *model,
                        label,
                        ours and ours.seconds,
                        ours and ours.n_runs,
                        ours and " and ".join(ours.hardware),
                        ours and ours.workers[1],
                        published and published.seconds,
                        published and " and ".join(published.hardware),
                    )
                )
    whole = dict.fromkeys(("ours_runs", "ours_most_at_a_time"), "Int64")
    return pd.DataFrame(lines, columns=list(_COLUMNS)).astype(whole)

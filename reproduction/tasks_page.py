"""The page of all tasks."""

from __future__ import annotations

from tabr.bench.tasks.catalog import TASKS
from tabr.bench.tasks.task import Task
from tabr.text import markdown_table

# Of these the published figures at hand have none.
WITHOUT_FIGURES = (
    "MagicTelescope",
    "credit",
    "phoneme",
    "KDDCup09_upselling",
    "MiamiHousing2016",
    "cpu_act",
    "pol",
    "sulfur",
    "Brazilian_houses",
    "house_sales",
    "visualizing_soil",
    "SGEMM_GPU_kernel_performance",
)
_TEXT = """# The tasks of the benchmark

Every set of the paper's two benchmarks: {n_default} of the first, {n_why} of the second
(Grinsztajn et al., 2022) and {n_parts} tables that hold a part of a set. Written by

    python -m reproduction tasks

from `src/tabr/bench/tasks/catalog.csv`.

`tabr bench run --benchmark all` runs what the folder of tables has, names
what it leaves out, and leaves out what cannot be compared with the published figures.
`tabr bench fetch why/wine` gets a table whose source is OpenML:

- It is written only if it has the paper's number of rows and features. Where the split
  is the paper's, the labels of its test rows must have the published spread too, which
  also tells whether the rows stand in the paper's order.
- OpenML has no splits. Those of the second benchmark, and of house and higgs-small,
  are made anew by the paper's recipe (`src/tabr/bench/tasks/splits.py`). It gives
  exactly the files of splits that were at hand: all 51 of 23 sets of the second
  benchmark, california and house.
- `NAME.json` beside the table tells its source, version and checksums.

The authors of the paper offer all their tables, with splits, as NumPy arrays:
https://huggingface.co/datasets/puhsu/tabular-benchmarks.

The published figures at hand leave out {n_without} sets of the second benchmark:
{without}.

In the tables below *split* is "paper" if it is the paper's own, else "ours": in the
first benchmark 64 / 16 / 20 by chance. *Seconds* are those of one fit of TabR-S with
default parameters as published, mostly on an A100. Where a label has a *scale*, an RMSE
is divided by it.
"""
_HEADER = (
    "name",
    "rows",
    "features",
    "predicted",
    "measure",
    "batch size",
    "splits",
    "split",
    "seconds",
    "source",
    "known to differ",
)
_ALIGN = "lrrllrrlrll"


def to_markdown() -> str:
    """Return the page."""
    sets: dict[str, list[Task]] = {}
    for task in TASKS:
        sets.setdefault(task.label, []).append(task)
    n_why = sum(label.startswith("why/") for label in sets)
    n_parts = sum(label.endswith("-part") for label in sets)
    text = _TEXT.format(
        n_default=len(sets) - n_why,
        n_why=n_why - n_parts,
        n_parts=n_parts,
        n_without=len(WITHOUT_FIGURES),
        without=", ".join(WITHOUT_FIGURES),
    )
    for title, benchmark in (("First", "default"), ("Second", "why")):
        rows = [_cells(s) for s in sets.values() if s[0].benchmark == benchmark]
        table = markdown_table(_HEADER, rows, _ALIGN)
        text += f"\n## {title} benchmark\n\n{table}\n"
    return text


def _cells(splits: list[Task]) -> list[str]:
    task = splits[0]
    origin = task.origin
    notes = [task.differs] if task.differs else []
    if task.scale != 1:
        notes.append(f"scale {task.scale:.2f}")
    if not task.comparable:
        notes.append("not comparable")
    return [
        task.label,
        f"{origin.n_rows:,}",
        f"{origin.n_features}",
        "number" if task.kind == "regression" else "class",
        "RMSE" if task.metric == "rmse" else "accuracy",
        f"{task.batch_size}",
        f"{len(splits)}",
        "paper" if task.official else "ours",
        f"{task.cost:,.0f}",
        f"OpenML {origin.openml}" if origin.openml else origin.place,
        "; ".join(notes),
    ]

"""Small made-up results folders, and the command line on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click.testing
import pandas as pd

from reproduction.__main__ import main
from reproduction.paper.scores import Results, read_results
from reproduction.results_folder import COLUMNS, PUBLISHED, ResultsFolder
from reproduction.runs import TABLES, Run, RunKind, read_table, write_table
from tabr.bench.results import DEFAULT_PLAN, Result

RESULT = Result(
    benchmark="default",
    task="california",
    method=DEFAULT_PLAN.name,
    split=0,
    seed=0,
    params={},
    test=0.4,
    val=0.4,
    seconds=2.0,
    best_epoch=10,
    n_parameters=100,
    hardware="a GPU",
    workers=4,
    versions={"tabr": "1", "torch": "2", "python": "3"},
)
# Set, model and kind; mean and deviation.
Figures = dict[tuple[str, str, str], tuple[float, float]]


def add_runs(
    folder: Path,
    label: str,
    plan: str,
    scores: Sequence[float],
    /,
    *,
    split: int = 0,
    kind: RunKind = "single",
    **more: Any,
) -> None:
    """Put a run for each score, by seed, into a table; those there are replaced."""
    benchmark, name = label.split("/") if "/" in label else ("default", label)
    path = folder / TABLES[benchmark]
    runs = {run.key: run for run in read_table(path)}
    about = {"benchmark": benchmark, "task": name, "method": plan, "split": split}
    for seed, score in enumerate(scores):
        run = Run(kind, replace(RESULT, **about, seed=seed, test=score, **more))
        runs[run.key] = run
    write_table(runs.values(), path)


def publish(folder: Path, figures: Figures, *, n_runs: int = 15) -> None:
    """Write the published figures."""
    accurate = ("adult", "churn", "otto", "covtype", "why/classif")
    rows = [
        [
            *key,
            "accuracy" if key[0].startswith(accurate) else "rmse",
            n_runs,
            *score,
            30.0,
            20.0,
            365,
            "A100",
        ]
        for key, score in figures.items()
    ]
    folder.mkdir(exist_ok=True)
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    frame.to_csv(folder / PUBLISHED, index=False)


def results_of(folder: Path) -> Results:
    """Return the runs and the published figures of a folder."""
    return read_results(ResultsFolder(folder))


def run(*arguments: object) -> click.testing.Result:
    """Run a command; the result has its exit code and what it printed."""
    return click.testing.CliRunner().invoke(main, list(map(str, arguments)))

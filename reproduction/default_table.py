"""TabR-S with default parameters: our figures beside the published ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from reproduction.results_folder import ResultsFolder
from reproduction.runs import VERSIONS, time_of_a_fit
from tabr.bench.results import DEFAULT_PLAN
from tabr.bench.tasks.catalog import TASKS
from tabr.bench.tasks.task import Task
from tabr.errors import DataError
from tabr.text import markdown_table

# How far from the published mean a mean may lie: in published standard deviations
# where the split is the paper's, in percent where it is not.
OFFICIAL_STDS = 1.5
WHY_STDS = 2.0
OWN_PERCENT = 2.0
_ROUNDING = 5e-7  # published figures have six decimals

_RUN_FIELDS = (
    "benchmark",
    "task",
    "split",
    "seed",
    "test",
    "seconds",
    "best_epoch",
    "n_parameters",
    "hardware",
    "workers",
)


def read_runs(results: ResultsFolder, plan: str = DEFAULT_PLAN.name) -> pd.DataFrame:
    """Return the single runs of a plan, a line for each; at least one must be there."""
    runs = results.singles.get(plan, [])
    if not runs:
        raise DataError(
            f"a table needs results, however {results.path} has none of {plan}: make"
            " them with `tabr bench run --out FOLDER`, then"
            " `python -m reproduction fold FOLDER`"
        )
    frame = pd.DataFrame([{f: getattr(r, f) for f in _RUN_FIELDS} for r in runs])
    for name in VERSIONS:
        frame[name] = [run.versions[name] for run in runs]
    return frame


def compare(runs: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each set: ours, the published figures and how they differ.

    Means and standard deviations (of the seeds, divided by n as the published ones)
    are taken for each split and then averaged over the splits that have runs.
    """
    figures = {row["dataset"]: row for row in published.to_dict("records")}
    splits: dict[str, list[Task]] = {}
    for task in TASKS:
        splits.setdefault(task.label, []).append(task)
    lines = []
    for tasks in splits.values():
        parts = []
        for task in tasks:
            ours = _runs_of(task, runs)
            if len(ours) and task.published in figures:
                parts.append(_split_line(ours, figures[task.published]))
        if parts:
            lines.append(_set_line(tasks, pd.DataFrame(parts)))
    return pd.DataFrame(lines)


def _runs_of(task: Task, runs: pd.DataFrame) -> pd.DataFrame:
    return runs[
        (runs["benchmark"] == task.benchmark)
        & (runs["task"] == task.name)
        & (runs["split"] == task.split)
    ]


def _split_line(ours: pd.DataFrame, published: Mapping[Any, Any]) -> dict[str, float]:
    seconds, _ = time_of_a_fit(zip(ours["seconds"], ours["workers"], strict=True))
    return {
        "runs": len(ours),
        "ours": ours["test"].mean(),
        "ours_std": ours["test"].std(ddof=0),
        "published": published["test_mean"],
        "published_std": published["test_std"],
        "seconds": seconds,
        "published_seconds": published["train_seconds"],
        "best_epoch": ours["best_epoch"].mean(),
        "published_best_epoch": published["best_epoch"],
        "n_parameters": ours["n_parameters"].mean(),
        "published_n_parameters": published["n_parameters"],
    }


def _set_line(tasks: list[Task], parts: pd.DataFrame) -> dict[str, object]:
    task = tasks[0]
    mean = {name: float(parts[name].mean()) for name in parts.columns.drop("runs")}
    gain = mean["ours"] - mean["published"]
    if task.metric == "rmse":
        gain = -gain
    std = mean["published_std"]
    return {
        "set": task.label,
        "metric": task.metric,
        "splits": len(parts),
        "all_splits": len(tasks),
        "runs": int(parts["runs"].sum()),
        **mean,
        "better_by_stds": gain / std if std > 0 else math.nan,
        "better_by_percent": 100 * gain / mean["published"],
        "bound": _bound_text(task),
        "verdict": _verdict(task, gain, mean["published"], std),
    }


def _bound_text(task: Task) -> str:
    if not task.comparable:
        return ""
    if not task.official:
        return f"{OWN_PERCENT:g} %"
    return f"{_stds(task):g} std"


def _stds(task: Task) -> float:
    return OFFICIAL_STDS if task.benchmark == "default" else WHY_STDS


def _verdict(task: Task, gain: float, published: float, std: float) -> str:
    """Return whether a gain, negative if ours is worse, keeps the bound."""
    if not task.comparable:
        return "not comparable"
    if task.official:
        bound = _stds(task) * (std + _ROUNDING) + _ROUNDING
    else:
        bound = OWN_PERCENT / 100 * published
    if abs(gain) <= bound:
        return "within"
    return "better" if gain > 0 else "worse"


# --- text -----------------------------------------------------------------------

_HEADER = (
    "set",
    "measure",
    "splits",
    "runs",
    "ours",
    "published",
    "better by",
    "bound",
    "verdict",
    "seconds",
    "best epoch",
    "parameters",
)
_ALIGN = "llrrrrrrlrrr"

_TEXT = """# TabR-S with default parameters: ours and the published figures

![how far each set lies from the published figure](reproduction.svg)

Made from the run tables in `reproduction/results` by

    python -m reproduction table --write docs/results/reproduction.md \\
        --plot docs/results/reproduction.svg

The runs were made by `tabr bench run --data FOLDER --benchmark all --seeds 15
--few-seeds 3 --why-seeds 5 --device cuda`.

- A figure is the mean ± standard deviation over seeds. Where a set has several splits,
  both are averaged over the splits that were run.
- *Better by* is positive if ours is better: a lower RMSE or a higher accuracy, in
  published standard deviations and in percent of the published mean.
- *Bound*: {official:g} published standard deviations on the paper's own splits of the
  first benchmark, {why:g} on those of the second. The other sets have a split of ours
  (64 / 16 / 20, seed 0), where {own:g} % is allowed.
- *Seconds*, *best epoch* (from 0) and *parameters* are ours / published. Ours has no
  bias of keys (265 parameters), which distances cancel, and drops columns that are
  constant in the training rows (265 each).
- Churn has EstimatedSalary once; in the paper's copy it stands twice.
- Ours ran on {hardware}, {workers} runs at a time, with {versions}. Runs that share the
  hardware slow one another down: seconds are of those that shared it with the fewest.
  The published ones are mostly of A100 GPUs.

Within the bound or better: {n_good} of {n_all} comparable sets. Not run yet: {not_run}.
"""


def to_markdown(table: pd.DataFrame, runs: pd.DataFrame) -> str:
    """Return the page of what `compare` returned."""
    comparable = table[table["verdict"] != "not comparable"]
    versions = ", ".join(f"{name} {_distinct(runs[name])}" for name in VERSIONS)
    wanted = dict.fromkeys(task.label for task in TASKS if task.comparable)
    not_run = [label for label in wanted if label not in set(table["set"])]
    text = _TEXT.format(
        official=OFFICIAL_STDS,
        why=WHY_STDS,
        own=OWN_PERCENT,
        hardware=_distinct(runs["hardware"]),
        workers=_range(runs["workers"]),
        not_run=", ".join(not_run) or "none",
        versions=versions,
        n_good=int(comparable["verdict"].isin(["within", "better"]).sum()),
        n_all=len(comparable),
    )
    second = table["set"].str.startswith("why/")
    for title, part in (
        ("First benchmark", table[~second]),
        ("Second benchmark", table[second]),
    ):
        if len(part):
            rows = [_cells(row) for row in part.to_dict("records")]
            text += f"\n## {title}\n\n{markdown_table(_HEADER, rows, _ALIGN)}\n"
    return text


def _distinct(values: pd.Series[Any]) -> str:
    return " and ".join(str(value) for value in sorted(values.unique()))


def _range(values: pd.Series[Any]) -> str:
    low, high = values.min(), values.max()
    return f"{low}" if low == high else f"{low} to {high}"


def _cells(row: dict[Any, Any]) -> list[str]:
    # two figures of the published standard deviation set the decimals
    std = max(row["published_std"], 1e-7)
    decimals = max(0, 1 - math.floor(math.log10(std)))
    ours, published = (
        f"{row[name]:.{decimals}f} ± {row[f'{name}_std']:.{decimals}f}"
        for name in ("ours", "published")
    )
    splits = f"{row['splits']}"
    if row["splits"] < row["all_splits"]:
        splits += f" of {row['all_splits']}"
    gain = f"{row['better_by_stds']:+.2f} std, {row['better_by_percent']:+.2f} %"
    return [
        row["set"],
        row["metric"],
        splits,
        str(row["runs"]),
        ours,
        published,
        gain,
        row["bound"],
        row["verdict"],
        f"{row['seconds']:.1f} / {row['published_seconds']:.1f}",
        f"{row['best_epoch']:.1f} / {row['published_best_epoch']:.1f}",
        f"{row['n_parameters']:.0f} / {row['published_n_parameters']:.0f}",
    ]

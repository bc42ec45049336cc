"""Tables of our figures beside the published ones, made from the results folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tabr.bench.results import DEFAULT_PLAN, read, time_of_a_fit
from tabr.bench.tasks.catalog import TASKS
from tabr.bench.tasks.task import Task
from tabr.errors import DataError

PUBLISHED = "published.csv"
MODEL = "TabR-S default"
COLUMNS = (
    "dataset",
    "model",
    "kind",
    "metric",
    "runs",
    "test_mean",
    "test_std",
    "train_seconds",
    "best_epoch",
    "n_parameters",
    "gpu",
)

# How far from the published mean a mean may lie: in published standard deviations
# where the split is the paper's, in percent where it is not.
OFFICIAL_STDS = 1.5
WHY_STDS = 2.0
OWN_PERCENT = 2.0
_ROUNDING = 5e-7  # published figures have six decimals

_RUN_FIELDS = ("test", "val", "seconds", "best_epoch", "n_parameters")


def extract(source: Path, target: Path) -> pd.DataFrame:
    """Keep the published figures, all sets and models, in one order."""
    rows = pd.read_csv(source)[list(COLUMNS)].astype({"n_parameters": "Int64"})
    rows = rows.sort_values(["dataset", "model", "kind"])
    target.parent.mkdir(parents=True, exist_ok=True)
    rows.to_csv(target, index=False, lineterminator="\n")
    return rows


def read_published(
    out: Path, model: str | None = MODEL, kind: str | None = "single"
) -> pd.DataFrame:
    """Return figures that `extract` put into the results folder.

    Args:
        out: The results folder.
        model: Whose figures; None is everyone's.
        kind: "single" or "ensemble of 5"; None is both.
    """
    path = out / PUBLISHED
    if not path.is_file():
        raise DataError(
            f"a table needs the published figures, however {path} is not there: make"
            " it with `python -m reproduction extract`"
        )
    rows = pd.read_csv(path)
    if model is not None:
        rows = rows[rows["model"] == model]
    return rows if kind is None else rows[rows["kind"] == kind]


def read_runs(out: Path, method: str = DEFAULT_PLAN.name) -> pd.DataFrame:
    """Return all results of a method, a line for each run."""
    paths = sorted(out.glob(f"*/*/{method}/split-*-seed-*.json"))
    results = [read(path) for path in paths]
    if not results:
        raise DataError(
            f"a table needs results, however {out} has none of {method}: make them"
            " with `python -m tabr.bench run`"
        )
    fields = ("benchmark", "task", "split", "seed", *_RUN_FIELDS, "hardware", "workers")
    runs = pd.DataFrame([{f: getattr(r, f) for f in fields} for r in results])
    for name in ("tabr", "torch", "python"):
        runs[name] = [result.versions[name] for result in results]
    return runs


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
            mine = _runs_of(task, runs)
            if len(mine) and task.published in figures:
                parts.append(_split_line(mine, figures[task.published]))
        if parts:
            lines.append(_set_line(tasks, pd.DataFrame(parts)))
    return pd.DataFrame(lines)


def _runs_of(task: Task, runs: pd.DataFrame) -> pd.DataFrame:
    return runs[
        (runs["benchmark"] == task.benchmark)
        & (runs["task"] == task.name)
        & (runs["split"] == task.split)
    ]


def _split_line(mine: pd.DataFrame, theirs: Mapping[Any, Any]) -> dict[str, float]:
    seconds, _ = time_of_a_fit(zip(mine["seconds"], mine["workers"], strict=True))
    return {
        "runs": len(mine),
        "ours": mine["test"].mean(),
        "ours_std": mine["test"].std(ddof=0),
        "published": theirs["test_mean"],
        "published_std": theirs["test_std"],
        "seconds": seconds,
        "published_seconds": theirs["train_seconds"],
        "best_epoch": mine["best_epoch"].mean(),
        "published_best_epoch": theirs["best_epoch"],
        "n_parameters": mine["n_parameters"].mean(),
        "published_n_parameters": theirs["n_parameters"],
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
    """Say whether a gain, negative if ours is worse, keeps the bound."""
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
    "| set | measure | splits | runs | ours | published | better by | bound | verdict "
    "| seconds | best epoch | parameters |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |"
)

_TEXT = """# TabR-S with default parameters: ours and the published figures

![how far each set lies from the published figure](reproduction.svg)

Made from the files in `results/`, one a run, by

    python -m reproduction table --write docs/reproduction.md \\
        --plot docs/reproduction.svg

and these by `python -m tabr.bench run --data FOLDER --benchmark all --seeds 15
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
    """Return the page with what `compare` found."""
    comparable = table[table["verdict"] != "not comparable"]
    versions = ", ".join(
        f"{n} {_distinct(runs[n])}" for n in ("tabr", "torch", "python")
    )
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
            rows = [_markdown_row(row) for row in part.to_dict("records")]
            text += "\n".join([f"\n## {title}\n", _HEADER, *rows]) + "\n"
    return text


def _distinct(values: pd.Series[Any]) -> str:
    return " and ".join(str(value) for value in sorted(values.unique()))


def _range(values: pd.Series[Any]) -> str:
    low, high = values.min(), values.max()
    return f"{low}" if low == high else f"{low} to {high}"


def _markdown_row(row: dict[Any, Any]) -> str:
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
    cells = [
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
    return "| " + " | ".join(cells) + " |"

"""All methods beside one another and beside the published figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reproduction.default_table import read_published, read_runs
from tabr.bench.methods import METHODS
from tabr.bench.results import Plan, time_of_a_fit
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import Task
from tabr.errors import DataError

SETS = ("california", "adult")
DEFAULT_SETS = ("california", "adult", "churn")
STDS = 2.0  # published standard deviations within which a mean may lie,
PERCENT = 2.0  # or percent of the published mean, whichever is larger
_ROUNDING = 5e-7  # published figures have six decimals
# In their published code a row's similarity to itself had the wrong sign.
NOT_COMPARABLE = ("l2-qk-v", "l2-qk-yv")


def compare_methods(out: Path, task: Task, config: str = "tuned") -> pd.DataFrame:
    """Return a line for each method that was run on a set, or has a figure there."""
    lines = []
    for name, entry in METHODS.items():
        if task.kind not in entry.method.outcomes:
            continue
        line: dict[str, Any] = {"method": name, "runs": 0}
        if entry.published is not None:
            theirs = read_published(out, _published_name(name, config))
            theirs = theirs[theirs["dataset"] == task.published]
            for row in theirs.to_dict("records"):
                line |= {
                    "published": row["test_mean"],
                    "published_std": row["test_std"],
                    "published_seconds": row["train_seconds"],
                    "published_n_parameters": row["n_parameters"],
                }
        try:
            runs = read_runs(out, Plan(name, config).name)  # type: ignore[arg-type]
        except DataError:
            runs = pd.DataFrame({"task": [], "benchmark": []})
        mine = runs[(runs["task"] == task.name) & (runs["benchmark"] == task.benchmark)]
        if len(mine):
            pairs = zip(mine["seconds"], mine["workers"], strict=True)
            seconds, _ = time_of_a_fit(pairs)
            line |= {
                "runs": len(mine),
                "ours": mine["test"].mean(),
                "ours_std": mine["test"].std(ddof=0),
                "seconds": seconds,
                "n_parameters": mine["n_parameters"].mean(),
                "hardware": " and ".join(sorted(mine["hardware"].unique())),
            }
        if len(line) > 2:
            lines.append({**line, "verdict": _verdict(line, task)})
    return pd.DataFrame(lines)


def _published_name(method: str, config: str) -> str:
    name = METHODS[method].published
    return f"{name} default" if config == "default" else f"{name}"


def _verdict(line: dict[str, Any], task: Task) -> str:
    if "ours" not in line:
        return "not run yet"
    if "published" not in line:
        return "no figure"
    if line["method"] in NOT_COMPARABLE:
        return "not comparable"
    gain = line["ours"] - line["published"]
    if task.metric == "rmse":
        gain = -gain
    bound = max(STDS * line["published_std"], PERCENT / 100 * line["published"])
    if abs(gain) <= bound + _ROUNDING:
        return "within"
    return "better" if gain > 0 else "worse"


# --- text -----------------------------------------------------------------------

_TEXT = f"""# Every method, ours and as published

The systems that the paper compares with, and some since, each on the paper's own split
with the parameters that the paper's authors tuned and published. Made from the files in
`results/` by

    python -m reproduction methods --write docs/methods.md

and these by `python -m tabr.bench run --data FOLDER --methods all --config tuned
--tasks california,adult --seeds 5`.

- A figure is the mean ± standard deviation over seeds, or that of one seed.
- *Verdict*: within {STDS:g} published standard deviations or {PERCENT:g} % of the
  published mean, whichever is larger; else better or worse.
- *Seconds* are those of one fit, ours / published; the published ones are of other
  hardware. Of ours those runs count that shared the hardware with the fewest others;
  how many they were is in [the paper's table of times](paper/times.md). {{hardware}}
- {" and ".join(f"`{name}`" for name in NOT_COMPARABLE)} carry a sign error in the
  published code and need not match.
"""


_DEFAULTS = """
## Without tuning

The default parameters of each method, best score first; also of methods since the
paper. Made by `python -m tabr.bench run --data FOLDER --methods NAMES --config default
--tasks california,adult,churn --seeds 1`, or more seeds.
"""


def to_markdown(out: Path, labels: Sequence[str] = SETS) -> str:
    """Return the page of all methods."""
    tables = {task.label: compare_methods(out, task) for task in select(labels)}
    text = _TEXT.format(hardware=_hardware(pd.concat(tables.values())))
    for task in select(labels):
        text += f"\n## {task.label}\n\n" + _table(tables[task.label], task)
    text += _DEFAULTS
    for task in select(DEFAULT_SETS):
        rows = _best_first(compare_methods(out, task, "default"), task)
        own = "" if task.official else ", a split of our own"
        text += f"\n### {task.label}{own}\n\n{_table(rows, task)}\n{_hardware(rows)}\n"
    return text


def _best_first(table: pd.DataFrame, task: Task) -> pd.DataFrame:
    """Return who was run, best first."""
    if "ours" not in table:
        return table.head(0)
    return table[table["runs"] > 0].sort_values("ours", ascending=task.metric == "rmse")


def _table(rows: pd.DataFrame, task: Task) -> str:
    measure = "RMSE" if task.metric == "rmse" else "accuracy"
    text = f"| method | seeds | {measure} | published | verdict | seconds |\n"
    text += "| --- | ---: | ---: | ---: | --- | ---: |\n"
    return text + "".join(_row(row) + "\n" for row in rows.to_dict("records"))


def _hardware(table: pd.DataFrame) -> str:
    """Say what ran where."""
    if "hardware" not in table:
        return ""
    parts = []
    for place, rows in table.dropna(subset=["hardware"]).groupby("hardware"):
        names = ", ".join(dict.fromkeys(rows["method"]))
        parts.append(f"On {place}: {names}.")
    return " ".join(parts)


def _row(row: dict[Any, Any]) -> str:
    def figure(name: str) -> str:
        mean, std = row.get(name, math.nan), row.get(f"{name}_std", math.nan)
        if math.isnan(mean):
            return ""
        alone = name == "ours" and row["runs"] == 1
        return f"{mean:.4f}" if alone else f"{mean:.4f} ± {std:.4f}"

    def seconds(name: str) -> str:
        value = row.get(name, math.nan)
        return "-" if math.isnan(value) else f"{value:.1f}"

    cells = [
        str(row["method"]),
        str(row["runs"] or ""),
        figure("ours"),
        figure("published"),
        str(row["verdict"]),
        f"{seconds('seconds')} / {seconds('published_seconds')}",
    ]
    return "| " + " | ".join(cells) + " |"

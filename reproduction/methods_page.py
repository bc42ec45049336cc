"""The page of all methods: our figures and the published ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from reproduction.results_folder import ResultsFolder
from reproduction.runs import time_of_a_fit
from tabr.bench.methods import METHODS
from tabr.bench.results import Result
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import Task
from tabr.text import ABSENT, markdown_table

SETS = ("california", "adult")
DEFAULT_SETS = ("california", "adult", "churn")
STDS = 2.0  # published standard deviations within which a mean may lie,
PERCENT = 2.0  # or percent of the published mean, whichever is larger
_ROUNDING = 5e-7  # published figures have six decimals
# In their published code a row's similarity to itself had the wrong sign.
NOT_COMPARABLE = ("l2-qk-v", "l2-qk-yv")


def compare_methods(
    results: ResultsFolder, task: Task, config: str = "tuned"
) -> pd.DataFrame:
    """Return a line for each method that was run on a set, or has a figure there."""
    lines = []
    for name, entry in METHODS.items():
        if task.kind not in entry.method.outcomes:
            continue
        line: dict[str, Any] = {"method": name, "runs": 0}
        if entry.published is not None:
            published = results.published(_published_name(name, config))
            published = published[published["dataset"] == task.published]
            for row in published.to_dict("records"):
                line |= {
                    "published": row["test_mean"],
                    "published_std": row["test_std"],
                    "published_seconds": row["train_seconds"],
                }
        line |= _ours(
            [
                run
                for run in results.singles.get(f"{name}-{config}", [])
                if (run.task, run.benchmark) == (task.name, task.benchmark)
            ]
        )
        if len(line) > 2:
            lines.append({**line, "verdict": _verdict(line, task)})
    return pd.DataFrame(lines)


def _ours(runs: list[Result]) -> dict[str, Any]:
    """Return the figures of runs; none if there are no runs."""
    if not runs:
        return {}
    scores = pd.Series([run.test for run in runs])
    seconds, _ = time_of_a_fit((run.seconds, run.workers) for run in runs)
    return {
        "runs": len(runs),
        "ours": scores.mean(),
        "ours_std": scores.std(ddof=0),
        "seconds": seconds,
        "hardware": " and ".join(sorted({run.hardware for run in runs})),
    }


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
with the parameters that the paper's authors tuned and published. Made from the run
tables in `reproduction/results` by

    python -m reproduction methods

The runs were made by `tabr bench run --data FOLDER --methods all --config tuned --tasks
california,adult --seeds 5`.

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
paper. The runs were made by `tabr bench run --data FOLDER --methods NAMES --config
default --tasks california,adult,churn --seeds 1`, or more seeds.
"""


def to_markdown(results: ResultsFolder, labels: Sequence[str] = SETS) -> str:
    """Return the page of all methods."""
    tables = {task.label: compare_methods(results, task) for task in select(labels)}
    text = _TEXT.format(hardware=_hardware(pd.concat(tables.values())))
    for task in select(labels):
        text += f"\n## {task.label}\n\n" + _table(tables[task.label], task)
    text += _DEFAULTS
    for task in select(DEFAULT_SETS):
        rows = _best_first(compare_methods(results, task, "default"), task)
        title = task.label + ("" if task.official else ", a split of our own")
        text += f"\n### {title}\n\n{_table(rows, task)}\n{_hardware(rows)}\n"
    return text


def _best_first(table: pd.DataFrame, task: Task) -> pd.DataFrame:
    """Return the methods that were run, best first."""
    if "ours" not in table:
        return table.head(0)
    return table[table["runs"] > 0].sort_values("ours", ascending=task.metric == "rmse")


def _table(rows: pd.DataFrame, task: Task) -> str:
    measure = "RMSE" if task.metric == "rmse" else "accuracy"
    header = ["method", "seeds", measure, "published", "verdict", "seconds"]
    cells = [_cells(row) for row in rows.to_dict("records")]
    return markdown_table(header, cells, "lrrrlr") + "\n"


def _hardware(table: pd.DataFrame) -> str:
    """Return a sentence for each hardware: the methods that ran there."""
    if "hardware" not in table:
        return ""
    parts = []
    for place, rows in table.dropna(subset=["hardware"]).groupby("hardware"):
        names = ", ".join(dict.fromkeys(rows["method"]))
        parts.append(f"On {place}: {names}.")
    return " ".join(parts)


def _cells(row: dict[Any, Any]) -> list[str]:
    def figure(name: str) -> str:
        mean, std = row.get(name, math.nan), row.get(f"{name}_std", math.nan)
        if math.isnan(mean):
            return ""
        alone = name == "ours" and row["runs"] == 1
        return f"{mean:.4f}" if alone else f"{mean:.4f} ± {std:.4f}"

    def seconds(name: str) -> str:
        value = row.get(name, math.nan)
        return ABSENT if math.isnan(value) else f"{value:.1f}"

    return [
        str(row["method"]),
        str(row["runs"] or ""),
        figure("ours"),
        figure("published"),
        str(row["verdict"]),
        f"{seconds('seconds')} / {seconds('published_seconds')}",
    ]

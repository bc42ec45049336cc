"""Tables and a picture of the studies, made from their files alone."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from tabr.bench.studies import STUDIES, TIMED, way_through_time
from tabr.optional import require

# What the paper says of California (its appendix on neighbours): the step, the share of
# attention within 10 km, and on the row itself.
PUBLISHED = {"step-1": (0.01, 0.0007), "step-2": (0.77, 0.07)}


def read_study(results: Path, name: str) -> tuple[str, pd.DataFrame] | None:
    """Return the command of a study and its records, or None if it was not run."""
    path = results / "studies" / f"{name}.json"
    if not path.is_file():
        return None
    content = json.loads(path.read_text("utf-8"))
    return content["command"], pd.DataFrame(content["records"])


def spread(values: pd.Series[Any], digits: int = 4) -> str:
    """Write the mean and the standard deviation over seeds.

    >>> spread(pd.Series([1.0, 2.0, 3.0]), 2)
    '2.00 ± 0.82'
    """
    mean, deviation = values.mean(), values.std(ddof=0)
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def _table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def attention_table(records: pd.DataFrame) -> str:
    """Compare where attention falls with what the paper says."""
    rows = []
    for name, part in records.groupby("model", sort=False):
        published = PUBLISHED.get(str(name))
        row = [str(name), f"{100 * part.within_10_km.mean():.1f} %"]
        row.append("" if published is None else f"{100 * published[0]:.0f} %")
        row.append(f"{100 * part.on_itself.mean():.2f} %")
        row.append("" if published is None else f"{100 * published[1]:.2f} %")
        rows.append([*row, spread(part.test)])
    header = ["model", "within 10 km", "published", "on the row itself", "published"]
    return _table([*header, "test RMSE"], rows)


def new_candidates_table(records: pd.DataFrame) -> str:
    """Show scores against the share of rows that are candidates."""
    rows = []
    for (name, share), part in records.groupby(["table", "share"], sort=False):
        count = f"{round(part.candidates.mean()):,}"
        seconds = f"{part.add_seconds.mean():.2f}"
        rows.append([str(name), f"{share:.0%}", count, spread(part.test), seconds])
    header = ["table", "of the rows", "candidates", "test score", "seconds to add"]
    return _table(header, rows)


def time_table(records: pd.DataFrame) -> str:
    """Compare ways to retrieve through time: a line for each way, a column a table."""
    tables = [(name, kind) for name, _, kind in TIMED if (records.table == name).any()]
    header = ["way"]
    for name, kind in tables:
        header.append(f"{name}, {'RMSE' if kind == 'regression' else 'accuracy'}")
    rows = []
    for ignored, past in itertools.product((False, True), (False, True)):
        for more in (None, "living" if past else "refreshed"):
            way = way_through_time(past, ignored, more)
            row = [way]
            for name, kind in tables:
                found = records[(records.table == name) & (records.way == way)].test
                digits = 2 if kind == "regression" else 3
                row.append(spread(found, digits) if len(found) else "")
            rows.append(row)
    return _table(header, rows)


def new_candidates_remark(records: pd.DataFrame) -> str:
    """Count the seeds whose score is better with all rows than with the fewest."""
    parts = []
    for name, part in records.groupby("table", sort=False):
        scores = part.pivot(index="seed", columns="share", values="test")
        gain = scores[scores.columns.max()] - scores[scores.columns.min()]
        n_better = int((gain > 0).sum() if name == "covtype" else (gain < 0).sum())
        parts.append(f"{name} for {n_better} of {len(gain)} seeds")
    return f"All rows are better than a tenth: on {', on '.join(parts)}."


def time_remark(records: pd.DataFrame) -> str:
    """Say on which tables the past alone, refreshed, beats the plain model."""
    better = []
    means = records.groupby(["table", "way"]).test.mean()
    for name, _, kind in TIMED:
        if (name, "plain") in means and (name, "past") in means:
            gain = float(means[name, "past"] - means[name, "plain"])
            if gain > 0 if kind == "classification" else gain < 0:
                better.append(name)
    n_tables = records.table.nunique()
    names = f": {', '.join(better)}" if better else ""
    n_seeds = records.groupby("table", sort=False).seed.nunique()
    few = [f"{name} has {n} seeds" for name, n in n_seeds.items() if n < n_seeds.max()]
    more = f" ({'; '.join(few)})" if few else ""
    return f"*past* beats *plain* on {len(better)} of {n_tables} tables{names}{more}."


_TABLES = {
    "attention": attention_table,
    "new-candidates": new_candidates_table,
    "time": time_table,
}
_REMARKS = {"new-candidates": new_candidates_remark, "time": time_remark}
_TITLES: Mapping[str, tuple[str, str]] = {
    "attention": (
        "Where attention falls",
        "California: the mean weight that test rows give to neighbours within 10 km,"
        " and to themselves where a step has them in their context.",
    ),
    "new-candidates": (
        "New candidates without training",
        "Trained on a tenth of the training rows; the rest is added afterwards, and"
        " nothing is trained again. covtype: accuracy; nycflights13, split in time:"
        " RMSE of the delay in minutes.",
    ),
    "time": (
        "Through time",
        "The first 64 % of the rows train, the next 16 % stop early, the last 20 % are"
        " predicted. *Refreshed*: validation rows are candidates too. *past*:"
        " `PastOnly`, in training too, and refreshed. *Living*: besides, test rows"
        " arrive in twenty parts and become candidates once they are predicted. *Time"
        " ignored*: the column of times rules, but is no feature.",
    ),
}


def to_markdown(results: Path) -> str:
    """Return the page of all studies."""
    text = ["# Studies", "", "Means ± standard deviations over seeds.", ""]
    for name in STUDIES:
        title, words = _TITLES[name]
        found = read_study(results, name)
        text += [f"## {title}", "", words, ""]
        if found is None:
            command = f"python -m tabr.bench study {name} --data FOLDER"
            text += [f"Not run yet: `{command}`.", ""]
            continue
        command, records = found
        text += [f"`{command}`", "", _TABLES[name](records), ""]
        if name in _REMARKS:
            text += [_REMARKS[name](records), ""]
        if name == "new-candidates":
            words = "scores against the share of candidates: each seed, and their mean"
            text += [f"![{words}](studies.svg)", ""]
    text += ["This page is made by `python -m tabr.bench studies`.", ""]
    return "\n".join(text)


def plot_new_candidates(results: Path, path: Path) -> None:
    """Draw scores against the share of rows that are candidates, if they are known."""
    found = read_study(results, "new-candidates")
    if found is None:
        return
    matplotlib: Any = require("matplotlib", extra="plots")
    from matplotlib.figure import Figure

    tables = list(found[1].groupby("table", sort=False))
    figure = Figure(figsize=(4.2 * len(tables), 3), layout="constrained")
    axes = figure.subplots(1, len(tables), squeeze=False)[0]
    for axis, (name, part) in zip(axes, tables, strict=True):
        for _, seed in part.groupby("seed"):  # a mean would hide who differs
            axis.plot(100 * seed.share, seed.test, color="#9db8d2", lw=1, zorder=1)
        mean = part.groupby("share").test.mean()
        axis.plot(100 * mean.index, mean, color="#1f5f99", marker="o", zorder=2)
        axis.set_xlabel("candidates, % of the training rows")
        axis.set_ylabel("accuracy" if name == "covtype" else "RMSE, smaller is better")
        axis.set_title(str(name), fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
    # Text as text, and the same file for the same records.
    settings = {"svg.fonttype": "none", "svg.hashsalt": "tabr"}
    with matplotlib.rc_context(settings):
        figure.savefig(path, metadata={"Date": None})

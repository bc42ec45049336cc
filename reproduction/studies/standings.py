"""Presets beside trees: mean scores, shares of draws, mean ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from reproduction.studies import rare, small, time_trees
from reproduction.studies.methods import PRESETS, STUDY_METHODS, TREES
from reproduction.studies.tables import spread
from tabr.metrics import MEASURES, Measure
from tabr.text import markdown_table, percent

RIVAL = "catboost"
COUNTED = ("log-loss", "accuracy")  # of classes; of numbers it is the RMSE


class Layout(NamedTuple):
    """What the lines of a study's table are.

    Attributes:
        tables: In the order of lines.
        measures: Likewise, those of numbers and of classes.
        split_by: A column of records that parts those of a table, and its title.
        has_spread: Whether deviations over draws are shown beside means.
    """

    tables: tuple[str, ...]
    measures: tuple[str, ...]
    split_by: tuple[str, str] | None = None
    has_spread: bool = True


LAYOUTS: Mapping[str, Layout] = {
    "small": Layout(small.TABLES, small.MEASURES, has_spread=False),
    "rare": Layout(rare.TABLES, rare.MEASURES),
    "time-trees": Layout(
        time_trees.TABLES, time_trees.MEASURES, ("time", "column of times")
    ),
}


class Line(NamedTuple):
    """Scores of a measure, a row a draw and a column a method, and what they are of."""

    about: tuple[str, ...]
    measure: Measure
    scores: pd.DataFrame

    def is_best(self, name: str, others: tuple[str, ...] | None = None) -> bool:
        """Whether no method, or none of the others, has a better mean."""
        means = self.measure.sign * self.scores.mean()
        return bool(means[name] >= means[list(others or means.index)].max())


def lines(records: pd.DataFrame, layout: Layout) -> Iterator[Line]:
    """Yield the scores of draws that all methods of a line have."""
    if "most_rows" in records:  # those of another limit are not compared
        records = records[records.most_rows == time_trees.MOST_ROWS]
    keys = ["table", *([layout.split_by[0]] if layout.split_by else [])]
    groups = {
        tuple(map(str, about)): part
        for about, part in records.groupby(keys, sort=False)
    }
    for about in sorted(groups, key=lambda about: layout.tables.index(about[0])):
        for name in layout.measures:
            if name in records:
                scores = _wide(groups[about], name).dropna(axis=1, how="all").dropna()
                if scores.size:
                    yield Line(about, MEASURES[name], scores)


def _wide(records: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a column of records, a row a draw and a column a method."""
    wide = records.pivot(index=["table", "seed"], columns="method", values=column)
    return wide[[name for name in STUDY_METHODS if name in wide]]


def scores_table(records: pd.DataFrame, layout: Layout) -> str:
    """Return mean scores, a line for each measure of a table; the best is bold."""
    shown = [name for name in STUDY_METHODS if (records.method == name).any()]
    rows = []
    for line in lines(records, layout):
        about = [*line.about, line.measure.label, str(len(line.scores))]
        rows.append([*about, *_cells(line, shown, layout.has_spread)])
    split_by = [layout.split_by[1]] if layout.split_by else []
    titles = [STUDY_METHODS[name].title for name in shown]
    return markdown_table(["table", *split_by, "measure", "draws", *titles], rows)


def _cells(line: Line, shown: Sequence[str], has_spread: bool) -> Iterator[str]:
    """Yield the scores of methods; those that are not of the line are blank."""
    digits = _decimals(line.scores.mean())
    for name in shown:
        if name not in line.scores:
            yield ""
            continue
        values = line.scores[name]
        text = spread(values, digits) if has_spread else f"{values.mean():.{digits}f}"
        is_bold = line.is_best(name) and line.scores.shape[1] > 1
        yield f"**{text}**" if is_bold else text


def _decimals(means: pd.Series[float]) -> int:
    """Return how many decimals show four digits of most means."""
    size = float(means.abs().median())
    return max(0, 3 - math.floor(math.log10(size))) if size > 0 else 4


def trees_remark(records: pd.DataFrame, layout: Layout) -> str:
    """Return a sentence on how often a preset's mean is ahead of all trees'."""
    parts = []
    for preset in PRESETS:
        ahead = [
            line.is_best(preset, TREES)
            for line in lines(records, layout)
            if {preset, *TREES} <= set(line.scores)
        ]
        if ahead:
            title = STUDY_METHODS[preset].title
            parts.append(f"*{title}* on {sum(ahead)} of {len(ahead)} lines")
    trees = " and ".join(STUDY_METHODS[name].title for name in TREES)
    if not parts:
        return f"No line has a preset beside {trees}."
    return f"No worse than {trees}: {', '.join(parts)}."


def ranks_table(records: pd.DataFrame) -> str:
    """Return shares of draws that are better than CatBoost's, and mean ranks.

    Draws count that all methods have, over all tables.
    """
    header, rows = ["method"], dict[str, list[str]]()
    for of_classes in COUNTED:
        errors = _errors(records, of_classes)
        if errors.empty:
            return "No draw has scores of all methods."
        label = f"{MEASURES['rmse'].label} or {MEASURES[of_classes].label}"
        header += [f"better than {STUDY_METHODS[RIVAL].title}, by {label}", "mean rank"]
        ranks = errors.rank(axis=1).mean()
        for name in map(str, errors):
            row = rows.setdefault(name, [STUDY_METHODS[name].title])
            row += [_share_better(errors, name), f"{ranks[name]:.2f}"]
    n_tables = errors.index.get_level_values("table").nunique()
    table = markdown_table(header, rows.values())
    return f"{table}\n\nOver {len(errors)} draws of {n_tables} tables."


def _errors(records: pd.DataFrame, of_classes: str) -> pd.DataFrame:
    """Return errors, smaller is better: numbers have RMSEs, classes what is named."""
    both = records.reindex(columns=["rmse", of_classes])
    error = both["rmse"].fillna(-MEASURES[of_classes].sign * both[of_classes])
    return _wide(records.assign(error=error), "error").dropna()


def _share_better(errors: pd.DataFrame, name: str) -> str:
    """Return the share of draws with a smaller error than CatBoost's; equal is half."""
    if name == RIVAL or RIVAL not in errors:
        return ""
    own, other = errors[name], errors[RIVAL]
    return percent(float(((own < other) + (own == other) / 2).mean()))


def rare_remark(records: pd.DataFrame) -> str:
    """Return how many rows of the rare class there are to learn from."""
    counts = records.drop_duplicates("table").to_dict("records")
    parts = [f"{c['rare_rows']:,} of {c['rows']:,} in {c['table']}" for c in counts]
    return f"Rare rows to learn from: {', '.join(parts)}."

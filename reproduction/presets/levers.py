"""What each lever of the default preset brings: it is taken out, the rest stays."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from reproduction.presets.standings import log_ratio
from tabr.errors import DataError
from tabr.metrics import MEASURES

FILE = "levers.csv"
COLUMNS = ("table", "lever", "score", "metric", "runs", "commit")
NONE = "none"  # the lever of lines where none was taken out


def read_levers(results: Path) -> pd.DataFrame | None:
    """Return the lines of the file; None if it is not there."""
    path = results / FILE
    if not path.is_file():
        return None
    lines = pd.read_csv(path, keep_default_na=False, dtype={"commit": str})
    absent = [name for name in COLUMNS if name not in lines]
    if absent:
        raise DataError(
            f"the columns of {FILE} are {', '.join(COLUMNS)}, however"
            f" {', '.join(absent)} did not come: add them"
        )
    unknown = sorted(set(lines["metric"]) - MEASURES.keys())
    if unknown:
        raise DataError(
            f"a metric of {FILE} is one of {', '.join(MEASURES)}, however"
            f" {', '.join(map(str, unknown))} came: rename it"
        )
    twice = lines[lines.duplicated(["table", "lever"])]
    if len(twice):
        raise DataError(
            f"{FILE} has a line for each table and lever, however {_pairs(twice)} came"
            " twice: keep one"
        )
    whole = lines[lines["lever"] == NONE].set_index("table")["metric"]
    alone = lines[lines["table"].map(whole) != lines["metric"]]
    if len(alone):
        raise DataError(
            f"a table of {FILE} has one metric, and a line whose lever is {NONE!r},"
            f" however {_pairs(alone)} did not: add or mend the line"
        )
    return lines


def _pairs(lines: pd.DataFrame) -> str:
    pairs = zip(lines["table"], lines["lever"], strict=True)
    return ", ".join(f"{lever} on {table}" for table, lever in pairs)


def changes(lines: pd.DataFrame) -> pd.DataFrame:
    """Return the change of the error in percent without a lever, a column a lever.

    Above zero the lever was of use. The levers of most use come first.
    """
    errors = {
        (line["table"], line["lever"]): _error(line["score"], line["metric"])
        for line in lines.to_dict("records")
    }
    table = pd.DataFrame(
        {
            lever: {
                label: 100 * math.expm1(log_ratio(errors[label, lever], whole))
                for (label, name), whole in errors.items()
                if name == NONE and (label, lever) in errors
            }
            for lever in dict.fromkeys(lines["lever"])
            if lever != NONE
        }
    )
    return table[list(means(table).sort_values(ascending=False, kind="stable").index)]


def means(table: pd.DataFrame) -> pd.Series[float]:
    """Return the mean change without each lever, by the ratios of errors."""
    ratios = (1 + table / 100).map(math.log)
    return 100 * ratios.mean().map(math.expm1)


def _error(score: float, metric: str) -> float:
    return score if MEASURES[metric].smaller_is_better else 1 - score

"""Mean scores, shares of draws and mean ranks, on made-up records."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

from reproduction.studies.standings import (
    LAYOUTS,
    lines,
    ranks_table,
    scores_table,
    trees_remark,
)
from reproduction.studies.time_trees import IGNORED, MOST_ROWS
from tabr.metrics import MEASURES
from tabr.text import percent

METHODS = ("tabr-d", "catboost", "lightgbm")


def records_of(
    seeds: int, *, table: str, measures: tuple[str, ...], methods: tuple[str, ...]
) -> pd.DataFrame:
    """Scores by chance; equal ones are common."""
    rng = np.random.default_rng(len(table))
    rows = []
    for seed in range(seeds):
        for method in methods:
            scores = {name: rng.integers(1, 4) / 4 for name in measures}
            rows.append({"table": table, "seed": seed, "method": method, **scores})
    return pd.DataFrame(rows)


@pytest.fixture
def records() -> pd.DataFrame:
    """Two tables of numbers and classes, the latter first."""
    tables = (("churn", ("log-loss", "accuracy")), ("california", ("rmse",)))
    parts = (
        records_of(9, table=table, measures=measures, methods=METHODS)
        for table, measures in tables
    )
    return pd.concat(parts, ignore_index=True)


def test_shares_and_ranks_are_those_of_a_count(records: pd.DataFrame) -> None:
    for of_classes, place in (("log-loss", 1), ("accuracy", 3)):
        errors: dict[tuple[str, int], dict[str, float]] = {}
        for line in records.to_dict("records"):
            name = of_classes if line["table"] == "churn" else "rmse"
            error = -MEASURES[name].sign * line[name]
            draw = errors.setdefault((line["table"], line["seed"]), {})
            draw[line["method"]] = error
        for title, method in (("preset default", "tabr-d"), ("LightGBM", "lightgbm")):
            wins = ranks = 0.0
            for draw in errors.values():
                own = draw[method]
                wins += (own < draw["catboost"]) + (own == draw["catboost"]) / 2
                others = [draw[other] for other in METHODS if other != method]
                ranks += 1 + sum((e < own) + (e == own) / 2 for e in others)
            text = ranks_table(records)
            (row,) = (r for r in text.splitlines() if r.startswith(f"| {title} |"))
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            assert cells[place] == percent(wins / len(errors))
            assert cells[place + 1] == f"{ranks / len(errors):.2f}"
    assert "Over 18 draws of 2 tables." in text


def test_draws_count_that_all_methods_have(records: pd.DataFrame) -> None:
    layout = LAYOUTS["small"]
    lost, of_catboost = records.seed == 4, records.method == "catboost"
    fewer = records[~(lost & of_catboost)]
    for write in (ranks_table, partial(scores_table, layout=layout)):
        assert write(fewer) == write(records[~lost]) != write(records)
    apart = records[lost == of_catboost]
    assert ranks_table(apart) == "No draw has scores of all methods."
    assert list(lines(apart, layout)) == []


def test_lines_follow_the_study_and_the_best_is_bold(records: pd.DataFrame) -> None:
    layout = LAYOUTS["small"]
    _, _, *rows = scores_table(records, layout).splitlines()
    starts = ["| california | RMSE", "| churn | log-loss", "| churn | accuracy"]
    assert [row.startswith(start) for row, start in zip(rows, starts, strict=True)]
    for row, name in zip(rows, ("rmse", "log-loss", "accuracy"), strict=True):
        means = records.groupby("method")[name].mean()
        best = means.max() if name == "accuracy" else means.min()
        assert f"**{best:.4f}**" in row
        assert row.count("**") == 2 * int((means == best).sum())


def test_a_preset_is_counted_where_no_trees_have_a_better_mean() -> None:
    means = {"tabr-d": 2, "tabr-best": 3, "catboost": 2, "lightgbm": 4}
    records = pd.DataFrame({"method": means.keys(), "rmse": means.values()})
    records = records.assign(table="california", seed=0)
    opposite = records.assign(table="house", rmse=-records.rmse)
    text = trees_remark(pd.concat([records, opposite]), LAYOUTS["small"])
    assert "*preset default* on 1 of 2 lines, *preset best* on 0 of 2 lines" in text
    alone = records[records.method != "lightgbm"]
    assert trees_remark(alone, LAYOUTS["small"]).startswith("No line has a preset")


def test_records_of_another_limit_are_not_compared() -> None:
    rows = [
        {"table": "elec2", "seed": 0, "time": IGNORED, "method": "catboost",
         "most_rows": most_rows, "accuracy": accuracy}
        for most_rows, accuracy in ((100, 0.6), (MOST_ROWS, 0.7))
    ]  # fmt: skip
    (line,) = lines(pd.DataFrame(rows), LAYOUTS["time-trees"])
    assert line.about == ("elec2", IGNORED)
    assert line.scores.to_numpy().tolist() == [[0.7]]

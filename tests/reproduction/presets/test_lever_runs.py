"""Runs of the default with one lever out at a time."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reproduction.presets.lever_runs import levers, run_levers
from reproduction.presets.levers import NONE, read_levers
from tabr import TabRRegressor
from tabr.config import PRESETS
from tabr.errors import DataError

TINY = {"n_members": 1, "width": 8, "context_size": 4, "max_epochs": 2}


def write_table(folder: Path, name: str, target: np.ndarray) -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(len(target), 3)), columns=list("abc"))
    frame["target"] = target
    path = folder / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(path)


def test_a_lever_is_what_the_default_has_and_the_paper_has_not():
    names = inspect.signature(TabRRegressor).parameters
    paper, default = (
        {
            **PRESETS[name].parameters,
            "column_dropout": PRESETS[name].column_dropout(500, of_classes=True),
        }
        for name in ("paper", "default")
    )
    for lever, params in levers().items():
        for name, value in params.items():
            assert lever == name and name in names
            assert (value or None) == (paper[name] or None) != default[name]
    assert {"normalization", "column_dropout", "betas", "mode"} < levers().keys()


def test_each_lever_is_run_once(tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(80, 3))
    write_table(tmp_path, "diamond", x[:, 0])
    write_table(tmp_path, "churn", (x[:, 0] > 0).astype(int))
    said: list[str] = []

    def run(*chosen: str, seeds: int = 2) -> int:
        n_before = len(said)
        tables = ["diamond", "churn"]
        run_levers(
            tmp_path, tmp_path, range(seeds), "cpu", tables, chosen, TINY, said.append
        )
        return len(said) - n_before

    # Numbers have no other score to stop by.
    assert run("scale_layer", "batch_size", "scoring") == 3 + 4
    assert run("scale_layer") == 0
    assert run("betas") == 2
    lines = read_levers(tmp_path)
    assert lines is not None
    assert set(lines["runs"]) == {2}
    assert dict(lines.groupby("table")["metric"].first()) == {
        "churn": "log-loss",
        "diamond": "rmse",
    }
    for _, of_table in lines.groupby("table"):
        assert of_table["lever"].iloc[0] == NONE
        assert of_table["score"].nunique() > 1
    with pytest.raises(DataError, match="however, these came: speed"):
        run("speed")

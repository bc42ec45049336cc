import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tabr.bench.protocol import run_one
from tabr.bench.results import (
    Plan,
    Predictions,
    read,
    read_predictions,
    result_path,
    write,
    write_predictions,
)
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import LabelledRows, SplitTable, load
from tabr.bench.workers import Resources
from tabr.metrics import rmse

from .tables import TINY, write_churn

TRIAL = Plan("tabr-s", "trial", TINY)
CPU = Resources("cpu")
CHURN, DIAMOND = select(["churn", "diamond"])


def test_score_is_in_the_unit_of_the_published_figure():
    y, guess = np.array([100.0, 300.0]), np.array([110.0, 280.0])
    part = LabelledRows(pd.DataFrame({"x": y}), y)
    parts = SplitTable(part, part, part)
    val, test = Predictions(y, guess, None).scores(DIAMOND, parts)
    assert val == 0 and test == pytest.approx(rmse(y, guess) / 3989.40)
    yes = np.array([0.1, 0.8, 0.9, 0.2])
    shares = np.stack([1 - yes, yes], axis=1)
    labels = np.array(["no", "yes", "no", "no"])
    part = LabelledRows(pd.DataFrame({"x": yes}), labels)
    predictions = Predictions(shares, shares[:, ::-1], np.array(["no", "yes"]))
    parts = SplitTable(part, part, part)
    assert predictions.scores(CHURN, parts) == (0.75, 0.25)


def test_changed_parameters_never_count_as_the_default_method(tmp_path: Path):
    task = select(["why/wine"])[1]
    assert result_path(tmp_path, task, 2) == (
        tmp_path / "why" / "wine" / "tabr-s-default" / "split-1-seed-2.json"
    )
    assert "default" not in str(result_path(tmp_path, task, 2, TRIAL))


def test_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_churn(tmp_path)
    result, _ = run_one(CHURN, load(CHURN, tmp_path), 0, CPU, plan=TRIAL)
    path = tmp_path / "out" / "result.json"
    write(result, path)
    assert read(path) == result

    def broken(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write(result, path.with_name("other.json"))
    assert list(path.parent.iterdir()) == [path]


def test_predictions_are_those_that_were_scored(tmp_path: Path):
    write_churn(tmp_path)
    parts = load(CHURN, tmp_path)
    result, predictions = run_one(CHURN, parts, 0, CPU, plan=TRIAL)
    path = tmp_path / "result.json"
    write_predictions(predictions, path)
    assert read_predictions(path).scores(CHURN, parts) == (result.val, result.test)

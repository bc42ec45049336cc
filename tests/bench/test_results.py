"""Files of runs."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tabr.bench import results
from tabr.bench.protocol import run_seeds
from tabr.bench.results import (
    Plan,
    Predictions,
    Result,
    all_scores,
    read,
    read_predictions,
    result_path,
    write,
)
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import LabelledRows, SplitTable, load
from tabr.bench.workers import Resources
from tabr.metrics import rmse

from .tables import TINY, write_churn

RESULT = Result(
    benchmark="default",
    task="california",
    method="knn-default",
    split=0,
    seed=0,
    params={"n_neighbors": 5},
    test=0.4,
    val=0.5,
    seconds=2.0,
    best_epoch=None,
    n_parameters=None,
    hardware="a machine",
    workers=1,
    versions={},
    commit="abc",
)
MODULE = Path(results.__file__)


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", *identity, *arguments]
    return subprocess.check_output(command, cwd=folder, text=True).strip()


def commit_of(path: Path) -> str | None:
    """Return what a copy of the module takes for its commit."""
    name = "copy_of_results"
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return module.current_commit()
    finally:
        del sys.modules[name]


def test_a_result_is_read_as_it_was_written(tmp_path: Path):
    write(RESULT, tmp_path / "split-0-seed-0.json")
    assert read(tmp_path / "split-0-seed-0.json") == RESULT


def test_a_result_names_the_predictions_that_are_kept(tmp_path: Path):
    path = tmp_path / "split-0-seed-0.json"
    write(RESULT, path, Predictions(np.zeros(2), np.ones(3), None))
    assert read(path) == replace(RESULT, predictions="split-0-seed-0.npz")


def test_predictions_of_classes_of_any_type_score_the_same_once_read(tmp_path: Path):
    (task,) = select(["churn"])
    y = np.array([True, False, True, True], object)  # as pandas has gaps in booleans
    values = np.array([[0.1, 0.9], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
    rows = LabelledRows(pd.DataFrame(), y)
    parts = SplitTable(rows, rows, rows)
    written = Predictions(values, values, np.array([False, True], object))
    write(RESULT, tmp_path / "run.json", written)
    kept = read_predictions(tmp_path / "run.json")
    assert kept.scores(task, parts) == written.scores(task, parts) == (0.75, 0.75)
    assert kept.all_scores(task, parts) == written.all_scores(task, parts)


def test_a_file_from_before_commits_were_kept_is_read(tmp_path: Path):
    path = tmp_path / "split-0-seed-0.json"
    write(RESULT, path)
    names = r'^ "(commit|predictions|scores|stopped_by)".*\n'
    text = re.sub(names, "", path.read_text("utf-8"), flags=re.MULTILINE)
    path.write_text(re.sub(r",\n}", "\n}", text), "utf-8")
    assert read(path) == replace(RESULT, commit=None)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_that_of_the_checkout_and_tells_of_changes(tmp_path: Path):
    module = tmp_path / "src" / "tabr" / "bench" / MODULE.name
    module.parent.mkdir(parents=True)
    shutil.copy(MODULE, module)
    assert commit_of(module) is None
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit_of(module) == head
    module.write_text(module.read_text("utf-8") + "\n# changed\n", "utf-8")
    assert commit_of(module) == f"{head}-dirty"
    # An installed copy in somebody's checkout is not of that checkout.
    elsewhere = tmp_path / "site-packages" / "tabr" / "bench" / MODULE.name
    elsewhere.parent.mkdir(parents=True)
    shutil.copy(MODULE, elsewhere)
    assert commit_of(elsewhere) is None


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


def test_all_scores_hold_that_of_the_metric_in_its_unit():
    y, guess = np.array([100.0, 300.0]), np.array([110.0, 280.0])
    part = LabelledRows(pd.DataFrame({"x": y}), y)
    parts, predictions = SplitTable(part, part, part), Predictions(y, guess, None)
    scores = predictions.all_scores(DIAMOND, parts)
    val, test = predictions.scores(DIAMOND, parts)
    assert (scores["val"]["rmse"], scores["test"]["rmse"]) == (val, test)
    assert scores["test"]["mae"] == pytest.approx(15 / 3989.40)
    assert scores["test"]["r2"] == pytest.approx(1 - 500 / 20000)
    assert list(scores["val"]) == ["rmse", "mae", "r2"]


def test_a_score_without_a_meaning_is_left_out_and_an_unknown_label_is_missed():
    shares, classes = np.array([[0.1, 0.9], [0.6, 0.4]]), np.array(["no", "yes"])
    found = all_scores(CHURN, np.array(["yes", "yes"]), shares, classes)
    assert list(found) == ["accuracy", "balanced-accuracy", "log-loss"]
    found = all_scores(CHURN, np.array(["yes", "maybe"], object), shares, classes)
    assert found["accuracy"] == found["balanced-accuracy"] == 0.5
    assert found["log-loss"] > 15


def test_changed_parameters_never_count_as_the_default_method(tmp_path: Path):
    task = select(["why/wine"])[1]
    assert result_path(tmp_path, task, 2) == (
        tmp_path / "why" / "wine" / "tabr-s-default" / "split-1-seed-2.json"
    )
    assert "default" not in str(result_path(tmp_path, task, 2, TRIAL))


def test_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_churn(tmp_path)
    ((result, _),) = run_seeds(CHURN, load(CHURN, tmp_path), [0], CPU, TRIAL)
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
    ((result, predictions),) = run_seeds(CHURN, parts, [0], CPU, TRIAL)
    path = tmp_path / "result.json"
    write(result, path, predictions)
    assert read_predictions(path).scores(CHURN, parts) == (result.val, result.test)
    assert read_predictions(path).all_scores(CHURN, parts) == result.scores
    assert result.scores["test"]["accuracy"] == result.test

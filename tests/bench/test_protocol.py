import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tabr.bench.protocol import run_one
from tabr.bench.results import Plan, Predictions, read, result_path, write
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import LabelledRows, SplitTable, load
from tabr.bench.workers import Place
from tabr.metrics import rmse

from .tables import TINY, write_churn, write_diamond, write_wine

TRIAL = Plan("tabr-s", "trial", TINY)
CPU = Place("cpu")
CHURN, DIAMOND = select(["churn", "diamond"])


def test_result_tells_what_was_run(tmp_path: Path):
    write_churn(tmp_path)
    result, _ = run_one(CHURN, load(CHURN, tmp_path), 3, CPU, plan=TRIAL)
    assert (result.benchmark, result.task, result.split) == ("default", "churn", 0)
    assert result.method == "tabr-s-trial"
    assert result.params == {"batch_size": 256, **TINY}
    assert result.seed == 3
    assert 0 <= result.test <= 1 and 0 <= result.val <= 1
    assert result.best_epoch == 0
    assert set(result.versions) == {"tabr", "torch", "python"}


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
    said = Predictions(shares, shares[:, ::-1], np.array(["no", "yes"]))
    assert said.scores(CHURN, SplitTable(part, part, part)) == (0.75, 0.25)


def test_test_rows_do_not_influence_the_fit(tmp_path: Path):
    write_diamond(tmp_path)
    parts = load(DIAMOND, tmp_path)
    other = SplitTable(
        parts.train, parts.val, LabelledRows(parts.test.X, parts.test.y[::-1])
    )
    results = [run_one(DIAMOND, p, 0, CPU, plan=TRIAL)[0] for p in (parts, other)]
    assert results[0].val == results[1].val
    assert results[0].test != results[1].test


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


def test_runs_without_narwhals_and_click(tmp_path: Path):
    write_wine(tmp_path)
    code = (
        "import sys, sklearn.utils.validation\n"  # may need narwhals for itself
        "sys.modules.update(narwhals=None, click=None)\n"
        "import tabr.bench.__main__\n"
        "from tabr.bench.protocol import run_one\n"
        "from tabr.bench.results import Plan\n"
        "from tabr.bench.tasks.catalog import select\n"
        "from tabr.bench.tasks.task import load\n"
        "from tabr.bench.workers import Place\n"
        "task = select(['why/wine'])[0]\n"
        f"parts, place = load(task, {str(tmp_path)!r}), Place('cpu')\n"
        f"run_one(task, parts, 0, place, plan={TRIAL!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

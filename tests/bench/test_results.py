"""Files of runs."""

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tabr.bench import results
from tabr.bench.results import (
    Predictions,
    Result,
    read,
    write,
    write_predictions,
)

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
    write_predictions(Predictions(np.zeros(2), np.ones(3), None), path)
    write(RESULT, path)
    assert read(path) == replace(RESULT, predictions="split-0-seed-0.npz")


def test_a_file_from_before_commits_were_kept_is_read(tmp_path: Path):
    path = tmp_path / "split-0-seed-0.json"
    write(RESULT, path)
    names = r'^ "(commit|predictions)".*\n'
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

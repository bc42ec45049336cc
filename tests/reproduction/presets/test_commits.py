"""The commits of the presets' runs."""

from __future__ import annotations

from pathlib import Path

from reproduction.presets.boards import DEFAULT
from reproduction.presets.commits import commits, other_sets
from reproduction.results_folder import ResultsFolder

from ..folders import add_runs


def test_sets_with_another_commit_than_most_runs_are_told(tmp_path: Path) -> None:
    add_runs(tmp_path, "house", "tabr-d-default", [3e4, 3e4], commit="a" * 40)
    add_runs(tmp_path, "adult", "tabr-d-default", [0.9], commit="b" * 40 + "-dirty")
    add_runs(tmp_path, "adult", "tabr-s-default", [0.9], commit="c" * 40)
    first, second = commits(ResultsFolder(tmp_path).runs, DEFAULT)
    assert (first.n_runs, first.sets) == (2, ("house",))
    assert str(first) == "`aaaaaaaaaa`"
    assert str(second) == "`bbbbbbbbbb`, with changed files"
    assert other_sets([first, second]) == {"adult"}


def test_a_commit_that_no_run_states_is_not_known(tmp_path: Path) -> None:
    add_runs(tmp_path, "house", "tabr-d-default", [3e4])
    (commit,) = commits(ResultsFolder(tmp_path).runs, DEFAULT)
    assert str(commit) == "not known"
    assert other_sets([commit]) == set()

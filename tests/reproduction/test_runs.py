"""Run files become lines of tables, and nothing is lost."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproduction.results_folder import RESULTS
from reproduction.runs import (
    TABLES,
    VERSIONS,
    Run,
    fold,
    from_line,
    read_table,
    to_csv,
    to_line,
    write_table,
)
from tabr.bench.results import Plan, Result, result_path, write
from tabr.bench.tasks.catalog import select
from tabr.errors import DataError

from .folders import RESULT, run

(CALIFORNIA,) = select(["california"])
(WINE, *_) = select(["why/wine"])
MOST_BYTES = 450 * 1024  # of a table

CONFIGS = ["default", "tuned", "default@log-loss", "retuned-ensemble"]

letters = st.characters(codec="utf-8", exclude_characters="\r\x00")
texts = st.text(letters, min_size=1, max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(min_value=0)
values = st.none() | st.booleans() | counts | numbers | st.text()
results = st.builds(
    Result,
    benchmark=st.sampled_from(sorted(TABLES)),
    task=texts,
    method=st.builds("{}-{}".format, texts, st.sampled_from(CONFIGS)),
    split=counts,
    seed=counts,
    params=st.dictionaries(st.text(), values | st.lists(values), max_size=3),
    test=numbers,
    val=numbers,
    seconds=numbers,
    best_epoch=st.none() | counts,
    n_parameters=st.none() | counts,
    hardware=texts,
    workers=counts,
    versions=st.tuples(texts, texts, texts).map(
        lambda v: dict(zip(VERSIONS, v, strict=True))
    ),
    threads=st.none() | counts,
    commit=st.none() | texts,
    predictions=st.none() | texts,
    stopped_by=st.none() | texts,
    scores=st.none()
    | st.fixed_dictionaries(
        {
            part: st.dictionaries(st.sampled_from(["rmse", "r2"]), numbers)
            for part in ("val", "test")
        }
    ),
)


def test_scorings_and_ensembles_of_trials_belong_to_the_config() -> None:
    for config in CONFIGS:
        result = replace(RESULT, method=f"tabr-s-{config}")
        line = to_line(Run("single", result))
        assert (line["method"], line["config"]) == ("tabr-s", config)


def write_runs(out: Path, scores: list[float], **more: Any) -> None:
    """Write a file for each score, by seed, as `tabr bench` does."""
    for seed, score in enumerate(scores):
        result = replace(RESULT, seed=seed, test=score, **more)
        write(result, result_path(out, CALIFORNIA, seed))


@settings(max_examples=50)
@given(results, st.sampled_from(["single", "ensemble"]))
def test_a_line_gives_the_run_back(result: Result, kind: Any) -> None:
    line = to_line(Run(kind, result))
    kind_back, back = from_line(line)
    assert kind_back == kind
    # By their text, as 1, 1.0 and True are equal and the order of a dict matters.
    assert repr(dataclasses.asdict(back)) == repr(dataclasses.asdict(result))


@settings(max_examples=25)
@given(st.lists(results, max_size=4, unique_by=lambda r: Run("single", r).key))
def test_a_table_gives_its_runs_back(tmp_path_factory: Any, rows: list[Result]) -> None:
    path = tmp_path_factory.mktemp("table") / "default.csv"
    runs = [Run("single", result) for result in rows]
    write_table(runs, path)
    assert read_table(path) == sorted(runs, key=lambda run: run.key)


def test_to_fold_twice_is_to_fold_once(tmp_path: Path) -> None:
    out, tables = tmp_path / "out", tmp_path / "tables"
    write_runs(out, [0.4, 0.5, 0.6], commit="abc", params={"width": 96})
    ensemble = replace(RESULT, test=0.3)
    write(
        ensemble, result_path(out, CALIFORNIA, 0).with_name("split-0-ensemble-0.json")
    )
    wine = replace(RESULT, benchmark="why", task="wine")
    write(wine, result_path(out, WINE, 0))
    first = run("fold", out, "--results", tables)
    assert first.exit_code == 0
    assert "default.csv: 4 lines new, 0 as before" in first.output
    assert "why.csv: 1 lines new, 0 as before" in first.output
    before = {path.name: path.read_bytes() for path in tables.iterdir()}
    second = run("fold", out, "--results", tables)
    assert "default.csv: 0 lines new, 4 as before" in second.output
    assert {path.name: path.read_bytes() for path in tables.iterdir()} == before
    kinds = [run.kind for run in read_table(tables / "default.csv")]
    assert kinds == ["ensemble", "single", "single", "single"]


def test_lines_without_scores_stay_as_they_were_when_others_have_them(
    tmp_path: Path,
) -> None:
    write_runs(tmp_path / "a", [0.4, 0.5])
    fold(tmp_path / "a", tmp_path)
    header, *before = (tmp_path / "default.csv").read_text().splitlines()
    scores = {"val": {"rmse": 0.4, "r2": 0.5}, "test": {"rmse": 0.3}}
    other = replace(RESULT, task="house", scores=scores)
    write(other, result_path(tmp_path / "b", CALIFORNIA, 0))
    fold(tmp_path / "b", tmp_path)
    longer, *lines = (tmp_path / "default.csv").read_text().splitlines()
    assert longer == f"{header},scores"
    assert lines[: len(before)] == before and len(lines) == 3
    runs = read_table(tmp_path / "default.csv")
    assert [run.result.scores for run in runs] == [None, None, scores]


def test_new_runs_come_to_those_of_the_table(tmp_path: Path) -> None:
    for name, scores in (("a", [0.4]), ("b", [0.4, 0.5])):
        write_runs(tmp_path / name, scores)
        (count,) = fold(tmp_path / name, tmp_path)
    assert (count.n_new, count.n_same) == (1, 1)
    runs = read_table(tmp_path / "default.csv")
    assert [run.result.test for run in runs] == [0.4, 0.5]


def test_another_content_of_a_run_is_refused_unless_it_shall_replace(
    tmp_path: Path,
) -> None:
    write_runs(tmp_path / "a", [0.4, 0.5])
    fold(tmp_path / "a", tmp_path)
    before = (tmp_path / "default.csv").read_bytes()
    write_runs(tmp_path / "b", [0.4, 0.7, 0.6])
    with pytest.raises(DataError, match=r"single run of tabr-s-default .* seed 1"):
        fold(tmp_path / "b", tmp_path)
    assert (tmp_path / "default.csv").read_bytes() == before
    (count,) = fold(tmp_path / "b", tmp_path, replace=True)
    assert (count.n_new, count.n_replaced, count.n_same) == (1, 1, 1)
    runs = read_table(tmp_path / "default.csv")
    assert [run.result.test for run in runs] == [0.4, 0.7, 0.6]


def test_a_run_of_a_trial_is_another_run(tmp_path: Path) -> None:
    write_runs(tmp_path, [0.4])
    plan = Plan("tabr-s", "trial", {"width": 8})
    trial = replace(RESULT, method=plan.name, params={"width": 8}, test=0.2)
    write(trial, result_path(tmp_path, CALIFORNIA, 0, plan))
    fold(tmp_path, tmp_path)
    assert len(read_table(tmp_path / "default.csv")) == 2


def test_drafts_and_other_files_are_not_read(tmp_path: Path) -> None:
    write_runs(tmp_path, [0.4])
    path = result_path(tmp_path, CALIFORNIA, 0)
    path.with_suffix(".77.tmp").write_text("{")
    path.with_name("split-0.json").write_text("{")
    (count,) = fold(tmp_path, tmp_path)
    assert count.n_new == 1


def test_predictions_are_named_where_they_are_kept(tmp_path: Path) -> None:
    path = result_path(tmp_path, CALIFORNIA, 0)
    write_runs(tmp_path, [0.4])
    path.with_suffix(".npz").write_bytes(b"")
    write(RESULT, path)
    fold(tmp_path, tmp_path)
    (line,) = read_table(tmp_path / "default.csv")
    assert line.result.predictions == "split-0-seed-0.npz"


def test_what_a_line_cannot_hold_is_refused() -> None:
    for result in (
        replace(RESULT, versions={**RESULT.versions, "numpy": "2"}),
        replace(RESULT, method="tabr"),
        replace(RESULT, val=math.nan),
        replace(RESULT, hardware="a\rb"),
    ):
        with pytest.raises(DataError, match="a line of a table holds"):
            to_csv([Run("single", result)])


def test_a_folder_without_runs_or_with_broken_ones_is_refused(tmp_path: Path) -> None:
    refused = run("fold", tmp_path, "--results", tmp_path)
    assert refused.exit_code == 2
    assert "tabr bench run --out" in refused.output
    path = tmp_path / "split-0-seed-0.json"
    path.write_text('{"benchmark": "default"}')
    with pytest.raises(DataError, match="is not the file of a run"):
        fold(tmp_path, tmp_path)
    write(replace(RESULT, benchmark="other"), path)
    with pytest.raises(DataError, match=r"however .* has runs of other"):
        fold(tmp_path, tmp_path)
    (tmp_path / "default.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="is not a table of runs"):
        read_table(tmp_path / "default.csv")


@pytest.mark.parametrize("name", TABLES.values())
def test_the_tables_are_sorted_small_and_of_distinct_runs(name: str) -> None:
    path = RESULTS / name
    runs = read_table(path)
    assert len({run.key for run in runs}) == len(runs) > 0
    assert to_csv(runs) == path.read_text("utf-8")
    assert path.stat().st_size < MOST_BYTES

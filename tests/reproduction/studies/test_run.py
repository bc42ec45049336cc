"""Running studies: what is done stays done, and mistakes are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from reproduction.results_folder import ResultsFolder
from reproduction.studies import STUDIES, TIMED, run_study
from tabr.errors import DataError
from tests.bench.tables import TINY, timed, write_california

from ..folders import run

HERE = {**TINY, "device": "cpu"}


def content_of(out: Path, name: str) -> dict[str, Any]:
    return json.loads((out / "studies" / f"{name}.json").read_text("utf-8"))


def test_a_study_writes_its_records_and_goes_on_where_it_ended(
    tmp_path: Path,
) -> None:
    for name, column, kind in TIMED:
        frame = timed(column, classes=kind == "classification")
        frame.to_parquet(tmp_path / f"{name}.parquet")
    command = ["study", "time", "--data", tmp_path, "--results", tmp_path]
    command += ["--seeds", 1]
    same = [*command, "--params", json.dumps(HERE)]
    assert run(*same).exit_code == 0
    content = content_of(tmp_path, "time")
    ways = {(record["table"], record["way"]) for record in content["records"]}
    assert len(ways) == len(content["records"]) == 32
    assert content["command"] == (
        "python -m reproduction study time --data FOLDER --seeds 1"
    )
    before = content["records"]
    half = {**content, "records": before[:14]}
    (tmp_path / "studies" / "time.json").write_text(json.dumps(half), "utf-8")
    few = "--tables", "beijing-pm25"
    assert run(*same, *few).exit_code == 0
    assert content_of(tmp_path, "time")["records"] == before[:16]
    # A later call with fewer seeds does not hide the seeds of an earlier one.
    half["records"] = [{**record, "seed": 2} for record in before[:2]]
    (tmp_path / "studies" / "time.json").write_text(json.dumps(half), "utf-8")
    assert run(*same, *few).exit_code == 0
    assert content_of(tmp_path, "time")["command"].endswith("--seeds 3")
    (tmp_path / "studies" / "time.json").write_text(
        json.dumps({**content, "records": before[:16]}), "utf-8"
    )
    refused = run(*command)
    assert refused.exit_code == 2
    assert "a study has one set of parameters, however" in refused.output
    assert content_of(tmp_path, "time")["records"] == before[:16]


@pytest.mark.parametrize("name", STUDIES)
def test_what_is_done_needs_no_tables(name: str, tmp_path: Path) -> None:
    seeds, nowhere = (0, 1), tmp_path / "nowhere"
    study = STUDIES[name]
    tables = [*study.tables, *study.others]
    units = list(study.units(tables, nowhere, seeds, {}))  # reads nothing
    assert len(units) >= len(tables) * len(seeds)
    records = [unit.about for unit in units]
    # A unit is done if a record has all that it is about: no other unit's may.
    others = ((a, b) for a in records for b in records if a is not b)
    assert not any(a.items() <= b.items() for a, b in others)
    path = tmp_path / "studies" / f"{name}.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"command": "", "params": {}, "records": records}))
    results = ResultsFolder(tmp_path)
    assert run_study(name, nowhere, results, seeds, {}, tables) == path
    assert content_of(tmp_path, name)["records"] == records


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_looks_at_the_tables_that_were_chosen(
    name: str, tmp_path: Path
) -> None:
    study = STUDIES[name]
    for table in (*study.tables, *study.others):
        units = list(study.units([table], tmp_path, [0], {}))
        assert units
        assert {unit.about.get("table", "california") for unit in units} == {table}


def test_attention_can_be_asked_for_by_its_table(tmp_path: Path) -> None:
    write_california(tmp_path)
    results = ResultsFolder(tmp_path)
    run_study("attention", tmp_path, results, [0], HERE, ["california"])
    records = content_of(tmp_path, "attention")["records"]
    assert [r["model"] for r in records] == ["step-1", "step-2", "TabR-S", "TabR"]
    assert all(0 <= r["within_10_km"] + r["on_itself"] <= 1.001 for r in records)


def test_a_table_that_a_study_does_not_know_is_refused(tmp_path: Path) -> None:
    results, tables = ResultsFolder(tmp_path), ["california", "adult"]
    with pytest.raises(DataError, match=r"looks at california; however, .*: adult"):
        run_study("attention", tmp_path, results, [0], {}, tables)


def small_study(out: Path, methods: str | None, *more: object) -> Result:
    command = ["study", "small", "--data", out.parent, "--results", out, *more]
    command += ["--tables", "california", "--params", json.dumps(HERE)]
    return run(*command, *(["--methods", methods] if methods else []))


def test_methods_that_ran_apart_come_into_one_file(tmp_path: Path) -> None:
    write_california(tmp_path, 330)
    one, other, whole = (tmp_path / name for name in ("one", "other", "whole"))
    seeds = "--seeds", 2
    assert small_study(one, "knn,lightgbm", *seeds).exit_code == 0
    assert small_study(other, "tabr-d,knn", "--seeds", 1).exit_code == 0
    assert small_study(whole, "tabr-d,lightgbm,knn", *seeds).exit_code == 0
    methods = [r["method"] for r in content_of(one, "small")["records"]]
    assert methods == ["lightgbm", "knn"] * 2
    # What is done stays as it is.
    before = content_of(one, "small")["records"]
    fold = "fold-study", "small", other / "studies" / "small.json", "--results", one
    assert "1 new records" in run(*fold).output
    content = content_of(one, "small")
    assert content["records"][:-1] == before
    assert content["command"].endswith("--seeds 2")
    assert "0 new records" in run(*fold).output
    assert content_of(one, "small") == content
    # Nothing is left to do but what neither had.
    done = small_study(one, "tabr-d,lightgbm,knn", *seeds)
    assert done.output.count("method=") == 1

    def scores(out: Path) -> set[tuple[Any, ...]]:
        records = content_of(out, "small")["records"]
        return {(r["method"], r["seed"], r["rmse"]) for r in records}

    assert scores(one) == scores(whole)


def test_a_file_of_other_parameters_is_not_folded(tmp_path: Path) -> None:
    write_california(tmp_path, 330)
    one, other = tmp_path / "one", tmp_path / "other"
    assert small_study(one, "knn", "--seeds", 1).exit_code == 0
    file = other / "studies" / "small.json"
    file.parent.mkdir(parents=True)
    content = {**content_of(one, "small"), "params": {"device": None}}
    file.write_text(json.dumps(content), "utf-8")
    refused = run("fold-study", "small", file, "--results", one)
    assert refused.exit_code == 2
    assert "a study has one set of parameters, however" in refused.output


def test_records_of_another_device_are_folded(tmp_path: Path) -> None:
    write_california(tmp_path, 330)
    one, other = tmp_path / "one", tmp_path / "other"
    assert small_study(one, "knn", "--seeds", 1).exit_code == 0
    assert small_study(other, "lightgbm", "--seeds", 1).exit_code == 0
    file = other / "studies" / "small.json"
    content = content_of(other, "small")
    content["params"]["device"] = "cuda"
    file.write_text(json.dumps(content), "utf-8")
    assert "1 new records" in run("fold-study", "small", file, "--results", one).output


def test_a_study_has_as_many_seeds_as_it_is_meant_to(tmp_path: Path) -> None:
    write_california(tmp_path, 330)
    assert small_study(tmp_path / "out", "knn").exit_code == 0
    seeds = [r["seed"] for r in content_of(tmp_path / "out", "small")["records"]]
    assert seeds == list(range(STUDIES["small"].n_seeds)) == list(range(20))


def test_methods_that_a_study_does_not_know_are_refused(tmp_path: Path) -> None:
    results = ResultsFolder(tmp_path)
    with pytest.raises(DataError, match=r"looks at tabr-d, .*; however, .*: saint"):
        run_study("rare", tmp_path, results, [0], {}, methods=["saint", "catboost"])
    with pytest.raises(
        DataError, match=r"looks at no methods; .*: leave --methods out"
    ):
        run_study("time", tmp_path, results, [0], {}, methods=["catboost"])

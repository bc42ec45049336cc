"""Searches run for real: tiny tables, real trials, real databases."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tabr.bench.benchmark import Benchmark, run_benchmark
from tabr.bench.ranks import read_results
from tabr.bench.results import read_predictions
from tabr.bench.runs import SeedCounts
from tabr.bench.searches import (
    Search,
    best_params_path,
    read_best,
    searches_of,
)
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.selection import TaskSelection
from tabr.bench.tasks.task import load
from tabr.bench.trial_ensembles import ensemble_path, read_ensemble
from tabr.bench.tuning import tune
from tabr.bench.workers import Resources
from tabr.errors import DataError, ParameterError

from .tables import write_churn

optuna = pytest.importorskip("optuna", reason="pip install 'tabr[tune]'")

CPU = Resources("cpu")
FEW = (("max_epochs", 2),)


def address(folder: Path) -> str:
    return f"sqlite:///{folder / 'trials.db'}"


def drawn(search: Search) -> list[dict[str, object]]:
    """What the finished trials drew, in their order."""
    return [t.params for t in search.study().trials if t.state.name == "COMPLETE"]


def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    parts = load(task, tmp_path)
    draws = []
    for name, stops in (("whole", 0), ("stopped", 1)):
        (tmp_path / name).mkdir()
        search = Search(task, "mlp", address(tmp_path / name), 14, fixed=FEW)
        for k in range(14):
            if stops and k == 6:  # a trial that was killed stays behind for ever
                search.study().ask()
            assert search.run(parts, CPU) is not None
        assert search.n_done() == 14
        draws.append(drawn(search))
    assert draws[0] == draws[1]
    assert len({json.dumps(params) for params in draws[0]}) == 14


def test_the_best_trial_by_validation_is_kept_and_can_be_run(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    out = tmp_path / "out"
    search = Search(task, "mlp", address(tmp_path), 4, fixed=FEW)
    for _ in range(2):  # the second time nothing is left to do
        assert tune([search], tmp_path, out, Resources("cpu", workers=2)) == 0
    assert search.n_done() == 4
    values = [trial.user_attrs["val"] for trial in search.study().trials]
    kept = json.loads(best_params_path(out, task, "mlp").read_text())
    assert kept["val"] == max(values) and kept["trials"] == 4
    assert "test" not in kept  # test rows are not looked at
    assert read_best(out, task, "mlp") == kept
    benchmark = Benchmark(
        TaskSelection(labels=["churn"], data=tmp_path),
        ["mlp"],
        "retuned",
        seeds=SeedCounts(1),
    )
    assert run_benchmark(benchmark, out, CPU)[0].n_done == 1
    (path,) = (out / "default" / "churn" / "mlp-retuned").glob("split-0-seed-0.json")
    assert json.loads(path.read_text())["params"] == kept["params"]
    with pytest.raises(DataError, match="run `tabr tune` for tabr-s first"):
        read_best(out, task, "tabr-s")


def test_each_scoring_has_a_search_of_its_own_that_makes_it_best(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    out, bests = tmp_path / "out", {}
    for scoring in (None, "accuracy", "log-loss", "roc-auc"):
        search = Search(task, "mlp", address(tmp_path), 3, fixed=FEW, scoring=scoring)
        assert search.n_done() == 0  # trials of another scoring do not count
        assert tune([search], tmp_path, out, CPU) == 0
        best = read_best(out, task, "mlp", scoring)
        values = [trial.value for trial in search.study().trials]
        sign = -1 if scoring == "log-loss" else 1
        assert best["val"] == sign * max(values)
        assert best["scoring"] == scoring
        assert best["metric"] == (scoring or "accuracy")
        bests[scoring] = best["val"]
    assert bests["accuracy"] != bests["log-loss"]
    benchmark = Benchmark(
        TaskSelection(labels=["churn"], data=tmp_path),
        ["mlp"],
        "retuned",
        seeds=SeedCounts(1),
        scoring="log-loss",
    )
    assert run_benchmark(benchmark, out, CPU)[0].n_done == 1
    folder = out / "default" / "churn" / "mlp-retuned@log-loss"
    result = json.loads((folder / "split-0-seed-0.json").read_text())
    assert result["scores"]["val"]["log-loss"] == pytest.approx(bests["log-loss"])
    with pytest.raises(DataError, match="`tabr tune --scoring r2` for mlp first"):
        read_best(out, task, "mlp", "r2")


def test_pruning_sees_the_score_of_the_search(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    search = Search(
        task, "mlp", address(tmp_path), 2, prunes=True, fixed=FEW, scoring="log-loss"
    )
    assert search.run(load(task, tmp_path), CPU) is not None
    (trial,) = search.study().trials
    assert max(trial.intermediate_values.values()) == pytest.approx(trial.value)


def test_what_a_library_cannot_be_stopped_by_is_told_once(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    fixed = (("n_trees", 3),)
    search = Search(
        task, "xgboost", address(tmp_path), 3, fixed=fixed, scoring="balanced-accuracy"
    )
    lines: list[str] = []
    assert tune([search], tmp_path, tmp_path / "out", CPU, log=lines.append) == 0
    note = "xgboost has no balanced-accuracy to stop by on churn: it stops by error"
    assert lines.count(note) == 1


def test_predictions_of_all_trials_are_kept_for_an_ensemble(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    out, parts = tmp_path / "out", load(task, tmp_path)
    about = (task, "mlp", address(tmp_path), 3)
    plain = Search(*about, fixed=FEW, scoring="log-loss")
    assert tune([plain], tmp_path, out, CPU) == 0
    keeping = replace(plain, n_trials=5, keeps_predictions=True)
    paths = keeping.predictions_paths(out)
    assert len(paths) == 3 and not any(path.exists() for path in paths)

    # Trials of before are run again; the database has no more of them for that.
    lines: list[str] = []
    assert tune([keeping], tmp_path, out, CPU, log=lines.append) == 0
    assert "mlp@log-loss churn split 0: 3 trials to run again" in "\n".join(lines)
    assert keeping.counts() == {"COMPLETE": 5}
    paths = keeping.predictions_paths(out)
    assert len(paths) == 5
    values = []
    for path in paths:
        predictions = read_predictions(path)
        values.append(predictions.all_scores(task, parts)["val"]["log-loss"])
        assert len(predictions.test) == len(parts.test.y)
    trials = keeping.study().trials
    assert values == pytest.approx([trial.user_attrs["val"] for trial in trials])

    # What was lost comes back as it was, and nothing else is done.
    (path, *others) = paths
    before = {other: other.stat().st_mtime_ns for other in others}
    lost = path.read_bytes()
    path.unlink()
    assert tune([keeping], tmp_path, out, CPU) == 0
    assert path.read_bytes() == lost
    assert {other: other.stat().st_mtime_ns for other in others} == before
    assert keeping.counts() == {"COMPLETE": 5}
    # They are no runs of the benchmark.
    with pytest.raises(DataError, match="standings need results"):
        read_results(out, task)


def test_the_same_search_gives_the_same_ensemble_to_the_byte(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    out, parts = tmp_path / "out", load(task, tmp_path)
    search = Search(
        task,
        "mlp",
        address(tmp_path),
        4,
        fixed=FEW,
        scoring="log-loss",
        keeps_predictions=True,
    )
    path = ensemble_path(out, task, "mlp", "log-loss")
    assert path.parent == best_params_path(out, task, "mlp", "log-loss").parent
    assert tune([search], tmp_path, out, CPU) == 0
    content = path.read_bytes()
    path.unlink()
    for _ in range(2):
        assert tune([search], tmp_path, out, CPU) == 0
        assert path.read_bytes() == content
    more = replace(search, n_trials=6)
    assert tune([more], tmp_path, out, CPU) == 0
    assert path.read_bytes() != content
    ensemble = read_ensemble(out, task, "mlp", "log-loss")
    assert ensemble.trials == 6

    # It is scored as a run, and again where the search has gone on.
    benchmark = Benchmark(
        TaskSelection(labels=["churn"], data=tmp_path),
        ["mlp"],
        "retuned-ensemble",
        scoring="log-loss",
    )
    for stored in (content, json.dumps(ensemble.to_json()).encode()):
        path.write_bytes(stored)
        summary, ((_, table),) = run_benchmark(benchmark, out, CPU)
        assert summary.n_done == 1 and list(table["runs"]) == [1]
        chosen = read_ensemble(out, task, "mlp", "log-loss")
        mean = sum(
            member.weight * read_predictions(path.parents[1] / member.predictions).test
            for member in chosen.members
        )
        powers = mean ** (1 / chosen.temperature)
        codes = parts.test.y.astype(int)
        of_truth = powers[np.arange(len(codes)), codes] / powers.sum(1)
        (result,) = read_results(out, task)
        assert result.method == "mlp-retuned-ensemble@log-loss"
        assert result.scores["test"]["log-loss"] == pytest.approx(
            -np.log(of_truth).mean()
        )
        assert result.scores["val"]["log-loss"] == pytest.approx(chosen.val)
        seconds = sum(member.seconds for member in chosen.members)
        assert result.seconds == round(seconds, 3) > 0


def test_the_trials_of_an_ensemble_are_the_best_by_the_scoring(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    out = tmp_path / "out"
    for scoring in (None, "log-loss", "roc-auc"):
        search = Search(
            task,
            "mlp",
            address(tmp_path),
            4,
            fixed=FEW,
            scoring=scoring,
            keeps_predictions=True,
        )
        assert tune([search], tmp_path, out, CPU) == 0
        members = search.members(out)
        sign = -1 if scoring == "log-loss" else 1
        values = [sign * member.val for member in members]
        assert values == sorted(values, reverse=True) and len(values) == 4
        assert all(member.hardware for member in members)
        ensemble = read_ensemble(out, task, "mlp", scoring)
        assert ensemble.metric == (scoring or "accuracy")
        assert ensemble.best_val == members[0].val == search.best()["val"]


def test_equal_trials_are_one_member(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    search = Search(
        task, "mlp", address(tmp_path), 1, fixed=FEW, keeps_predictions=True
    )
    assert tune([search], tmp_path, tmp_path / "out", CPU) == 0
    study = search.study()
    (trial,) = study.trials
    study.add_trial(trial)
    (member,) = search.members(tmp_path / "out")
    assert member.trial == 0 and search.counts() == {"COMPLETE": 2}


def test_a_search_whose_predictions_lack_is_not_done(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    out = tmp_path / "out"
    search = Search(task, "mlp", address(tmp_path), 1, fixed=FEW)
    assert tune([search], tmp_path, out, CPU) == 0
    search, lines = replace(search, keeps_predictions=True), list[str]()
    late = {"budget_seconds": 0, "log": lines.append}
    assert tune([search], tmp_path, out, CPU, **late) == 1
    assert "1 of 1 trials, 1 without predictions; run it again to go on" in lines[-1]
    assert not ensemble_path(out, task, "mlp").exists()


def test_trials_that_fall_behind_are_ended(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    parts = load(task, tmp_path)
    search = Search(
        task, "mlp", address(tmp_path), 30, prunes=True, fixed=(("max_epochs", 12),)
    )
    study = search.study()
    for _ in range(6):  # a history in which all were perfect from the start
        trial = study.ask()
        for epoch in range(12):
            trial.report(2.0, epoch)
        study.tell(trial, 2.0)
    assert search.run(parts, CPU) is None
    assert study.trials[-1].state.name == "PRUNED"
    assert len(study.trials[-1].intermediate_values) == 9  # eight epochs of grace


def test_a_failing_method_ends_the_search_and_keeps_the_rest(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    broken = (("batch_size", -1),)
    search = Search(task, "mlp", address(tmp_path), 20, fixed=broken)
    lines: list[str] = []
    assert tune([search], tmp_path, tmp_path / "out", CPU, log=lines.append) == 1
    text = "\n".join(lines)
    assert text.count("FAILED, ParameterError: `batch_size > 0` must hold") == 5
    assert text.endswith("0 of 20 trials; run it again to go on")
    assert not (tmp_path / "out").exists()


def test_a_search_needs_a_method_that_can_be_tuned_and_predicts_the_task():
    churn, diamond = select(["churn", "diamond"])
    searches = searches_of([churn, diamond], ["mlp", "dkl", "mlp"], "sqlite://", seed=3)
    names = [(search.task.name, search.method) for search in searches]
    assert names == [("churn", "mlp"), ("diamond", "mlp"), ("diamond", "dkl")]
    assert {search.seed for search in searches} == {3}
    with pytest.raises(ParameterError, match="of numbers, as diamond has, must be"):
        searches_of([churn, diamond], ["mlp"], "sqlite://", scoring="roc-auc")
    with pytest.raises(DataError, match="however knn has none or chooses them"):
        searches_of([churn], ["knn"], "sqlite://")

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tabr.bench.__main__ import main
from tabr.bench.results import Plan, read, result_path
from tabr.bench.runs import Item, batches_of, items_of, run_all
from tabr.bench.tasks.catalog import select
from tabr.bench.workers import Place

from .tables import TINY, write_churn, write_diamond, write_wine

TRIAL = Plan("tabr-s", "trial", TINY)
CPU = Place("cpu")


def files(out: Path) -> list[Path]:
    return sorted(path for path in out.rglob("*") if path.is_file())


def test_the_long_tasks_may_have_fewer_seeds():
    tasks = select(["churn", "covtype"])
    items = items_of(tasks, 15, 3)
    n_items = {t.name: sum(i.task is t for i in items) for t in tasks}
    assert n_items == {"churn": 15, "covtype": 3}
    assert len(items_of(tasks, 2, 3)) == len(items_of(tasks, 2)) == 4


def test_successive_seeds_of_a_method_that_can_are_done_as_one(tmp_path: Path):
    write_churn(tmp_path)
    churn, diamond = select(["churn", "diamond"])
    trees = Plan("xgboost")
    items = [
        *(Item(churn, seed, TRIAL) for seed in (0, 1, 2, 4, 5)),
        *(Item(diamond, seed, TRIAL) for seed in (6, 7)),
        *(Item(diamond, seed, trees) for seed in (8, 9)),
    ]
    sizes = [len(batch.items) for batch in batches_of(items, 2)]
    assert sizes == [2, 1, 2, 2, 1, 1]
    assert [b.items for b in batches_of(items, 1)] == [(item,) for item in items]
    joined = [item for batch in batches_of(items, 9) for item in batch.items]
    assert joined == items

    alone, together = tmp_path / "alone", tmp_path / "together"
    run_all(items[:3], tmp_path, alone, place=CPU)
    run_all(items[:3], tmp_path, together, place=CPU, together=3)
    for item in items[:3]:
        one, other = read(item.path(alone)), read(item.path(together))
        # On a CPU members are fitted one by one: bit by bit the same.
        assert (one.val, one.test, one.best_epoch) == (
            other.val,
            other.test,
            other.best_epoch,
        )
        assert (one.workers, other.workers) == (1, 3)


class Crash(int):
    """A seed that ends the process that reads it."""

    def __reduce__(self):
        return os._exit, (7,)


def test_work_is_done_once_and_failures_do_not_stop_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_churn(tmp_path)
    table = write_diamond(tmp_path)
    table.assign(target=float("inf")).to_parquet(tmp_path / "diamond.parquet")
    out = tmp_path / "out"
    churn, diamond = select(["churn", "diamond"])
    items = [
        Item(churn, Crash(9), TRIAL),
        Item(churn, 0, TRIAL),
        Item(churn, 1, TRIAL),
        Item(diamond, 0, TRIAL),
    ]

    summary = run_all(items, tmp_path, out, place=CPU)
    assert (summary.n_done, summary.n_failed, summary.n_left) == (2, 2, 0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 to do, 0 done before"
    assert lines[1].startswith(
        "tabr-s-trial diamond split 0 seed 0: FAILED, "
    )  # the longer first
    assert lines[1].endswith("; 3 left")  # nothing to tell the time by
    assert "seed 9: FAILED, the process ended with status 7; 2 left" in lines[2]
    assert lines[3].startswith("tabr-s-trial churn split 0 seed 0: accuracy 0.")
    assert lines[4].endswith("; 0 left")
    assert lines[5].startswith("2 done, 2 failed, 0 left, 0 done before, in ")
    assert len(lines) == 6
    paths = files(out)
    assert paths == [result_path(out, churn, seed, TRIAL) for seed in (0, 1)]

    times = [path.stat().st_mtime_ns for path in paths]
    summary = run_all(items[1:3], tmp_path, out, place=CPU)
    assert (summary.n_before, summary.n_done) == (2, 0)
    assert [path.stat().st_mtime_ns for path in paths] == times


def test_budget_ends_what_runs_and_leaves_nothing_half_written(tmp_path: Path):
    write_churn(tmp_path)
    slow = {**TINY, "max_epochs": 10**9, "patience": 10**9}
    plans = [Plan("tabr-s", "trial", slow)]
    items = items_of(select(["churn"]), 3, plans=plans)
    start = time.monotonic()
    summary = run_all(
        items,
        tmp_path,
        tmp_path / "out",
        place=CPU,
        budget_seconds=4,
    )
    assert time.monotonic() - start < 15
    assert (summary.n_done, summary.n_failed, summary.n_left) == (0, 0, 3)
    assert not (tmp_path / "out").exists()


def test_kill_half_way_leaves_only_whole_files_and_the_rest_can_follow(tmp_path: Path):
    write_wine(tmp_path)
    out = tmp_path / "out"
    command = ["run", "--data", str(tmp_path), "--out", str(out), "--device", "cpu"]
    command += ["--tasks", "why/wine", "--seeds", "200", "--params", json.dumps(TINY)]
    command += ["--workers", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tabr.bench", *command],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "seed 3:" in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    done = files(out)
    assert 4 <= len(done) < 1000
    assert all(read(path).task == "wine" for path in done)

    n_seeds = sum(read(path).split == 0 for path in done)
    command[command.index("200")] = str(n_seeds)
    assert main([*command, "--budget", "0"]) == 0
    assert files(out) == done


def test_a_benchmark_is_run_as_far_as_its_tables_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_churn(tmp_path)
    out = tmp_path / "out"
    command = ["run", "--data", str(tmp_path), "--out", str(out), "--seeds", "1"]
    assert main([*command, "--params", json.dumps(TINY), "--device", "cpu"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    absent = [t.label for t in select(benchmark="default") if t.name != "churn"]
    assert first == f"left out, as their tables are not there: {', '.join(absent)}"
    assert [read(path).task for path in files(out)] == ["churn"]
    assert main([*command, "--tasks", "churn,otto"]) == 2
    message = capsys.readouterr().err
    assert "lacks otto.parquet: " in message and "take otto from https" in message
    assert main([*command, "--benchmark", "why"]) == 2
    assert "fetch why/bank-marketing why/kdd" in capsys.readouterr().err


def test_mistakes_end_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folders = ["--data", str(tmp_path), "--out", str(tmp_path)]
    assert main(["run", *folders, "--tasks", "churn"]) == 2
    assert "lacks churn.parquet" in capsys.readouterr().err
    for method, more in (("modern-nca", ["--config", "tuned"]), ("dkl", [])):
        command = ["run", *folders, "--tasks", "churn", "--methods", method, *more]
        assert main(command) == 2
        assert f"however {method} cannot predict" in capsys.readouterr().err
    assert main(["run", *folders, "--methods", "nothing"]) == 2
    assert "a method must be one of knn" in capsys.readouterr().err
    assert main(["run", "--tasks", "nothing"]) == 2
    assert capsys.readouterr().err.count("\n") == 1

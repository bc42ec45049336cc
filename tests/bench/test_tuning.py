"""Searches run for real: tiny tables, real trials, real databases."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tabr.bench.__main__ import main
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import UserTable, load
from tabr.bench.tasks.user_table import tasks_of_table
from tabr.bench.tuning import Search, choice_path, read_choice, tune
from tabr.bench.workers import Place, ProcessPool
from tabr.errors import DataError

from .tables import write_churn, write_user_table

optuna = pytest.importorskip("optuna", reason="pip install 'tabr[tune]'")

CPU = Place("cpu")
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
    found = []
    for name, stops in (("whole", 0), ("stopped", 1)):
        (tmp_path / name).mkdir()
        search = Search(task, "mlp", address(tmp_path / name), 14, fixed=FEW)
        for k in range(14):
            if stops and k == 6:  # a trial that was killed stays behind for ever
                search.study().ask()
            assert search.do(parts, CPU) is not None
        assert search.n_done() == 14
        found.append(drawn(search))
    assert found[0] == found[1]
    assert len({json.dumps(params) for params in found[0]}) == 14


def test_the_choice_is_the_best_by_validation_and_can_be_run(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    out = tmp_path / "out"
    search = Search(task, "mlp", address(tmp_path), 4, fixed=FEW)
    place = Place("cpu", workers=2)
    with ProcessPool(2, tmp_path, place) as team:
        assert tune([search], team, out) == 0
        assert tune([search], team, out) == 0  # nothing is left to do
    assert search.n_done() == 4
    values = [trial.user_attrs["val"] for trial in search.study().trials]
    kept = json.loads(choice_path(out, task, "mlp").read_text())
    assert kept["val"] == max(values) and kept["trials"] == 4
    assert "test" not in kept  # test rows are not looked at
    assert read_choice(out, task, "mlp") == kept["params"]
    folders = ["--data", str(tmp_path), "--out", str(out), "--device", "cpu"]
    command = ["run", *folders, "--tasks", "churn", "--methods", "mlp", "--seeds", "1"]
    assert main([*command, "--config", "retuned"]) == 0
    (path,) = (out / "default" / "churn" / "mlp-retuned").glob("split-0-seed-0.json")
    assert json.loads(path.read_text())["params"] == kept["params"]
    with pytest.raises(DataError, match="run `tabr tune` for tabr-s first"):
        read_choice(out, task, "tabr-s")


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
    assert search.do(parts, CPU) is None
    assert study.trials[-1].state.name == "PRUNED"
    assert len(study.trials[-1].intermediate_values) == 9  # eight epochs of grace


def test_a_failing_method_ends_the_search_and_keeps_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    broken = (("batch_size", -1),)
    search = Search(task, "mlp", address(tmp_path), 20, fixed=broken)
    with ProcessPool(1, tmp_path, CPU) as team:
        assert tune([search], team, tmp_path / "out") == 1
    text = capsys.readouterr().out
    assert text.count("FAILED, ParameterError: `batch_size > 0` must hold") == 5
    assert text.endswith("0 of 20 trials; run it again to go on\n")
    assert not (tmp_path / "out").exists()


def test_the_command_goes_on_after_a_kill(tmp_path: Path):
    write_user_table(tmp_path / "mine.csv")
    command = ["tune", str(tmp_path / "mine.csv"), "--target", "price", "--out"]
    command += [str(tmp_path / "out"), "--methods", "mlp", "--device", "cpu"]
    command += ["--params", '{"max_epochs": 2}', "--workers", "1", "--trials"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tabr.bench", *command, "500"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "trial 3 of 500" in line:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=20)
    (task,) = tasks_of_table(UserTable(tmp_path / "mine.csv", "price"))
    search = Search(task, "mlp", f"sqlite:///{tmp_path / 'out' / 'tuning.db'}", 1)
    n_before = search.n_done()
    assert n_before >= 3
    assert main([*command, str(n_before + 1)]) == 0
    assert search.n_done() == n_before + 1


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_user_table(tmp_path / "mine.csv")
    command = ["tune", str(tmp_path / "mine.csv"), "--out", str(tmp_path / "out")]
    cases = [
        ([], "a table needs a column to predict, however none was named: add --target"),
        (["--target", "price", "--methods", "knn"], "however knn has none"),
        (["--target", "price", "--tasks", "churn"], "however both came"),
        (
            ["--target", "price", "--storage", "nonsense://user:secret@host/x"],
            "trials need a database that can be opened, however host/x cannot",
        ),
    ]
    for more, message in cases:
        assert main([*command, *more]) == 2
        said = capsys.readouterr()
        assert message in said.err and said.err.count("\n") == 1
        assert "secret" not in said.err


def test_a_command_without_tables_says_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TABR_DATA", raising=False)
    for command in ("tune", "run"):
        assert main([command]) == 2
        said = capsys.readouterr().err
        assert "or name a table of yours and its --target" in said
        assert said.count("\n") == 1


# --- PostgreSQL -------------------------------------------------------------------


def test_two_commands_share_a_search_in_postgresql(postgres: str, tmp_path: Path):
    write_user_table(tmp_path / "mine.csv")
    command = ["tune", str(tmp_path / "mine.csv"), "--target", "price", "--workers"]
    command += ["1", "--methods", "mlp", "--device", "cpu", "--trials", "8"]
    command += ["--params", '{"max_epochs": 2}', "--storage", postgres, "--out"]
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "tabr.bench", *command, str(tmp_path / name)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    (task,) = tasks_of_table(UserTable(tmp_path / "mine.csv", "price"))
    search = Search(task, "mlp", postgres)
    assert 8 <= search.n_done() <= 9
    assert sum(text.count(" s\n") for text in said) == search.n_done()

"""The command `tune`, in processes where it is killed."""

import json
import os
import signal
from pathlib import Path

import pytest

from tabr.bench.searches import Search, sqlite_storage
from tabr.bench.tasks.selection import tasks_of_table
from tabr.bench.tasks.task import UserTable

from ..bench.tables import write_user_table
from .test_bench import start, wait_for
from .test_cli import refuse, succeed

pytest.importorskip("optuna", reason="pip install 'tabr[tune]'")

OPTIONS = ("--methods", "mlp", "--device", "cpu", "--params", '{"max_epochs": 2}')


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A user's table."""
    write_user_table(tmp_path / "mine.csv")
    return tmp_path / "mine.csv"


def search_of(table: Path, storage: str) -> Search:
    (task,) = tasks_of_table(UserTable(table, "price"))
    return Search(task, "mlp", storage)


def test_it_goes_on_after_a_kill(mine: Path, tmp_path: Path):
    out = tmp_path / "out"
    command = ("tune", mine, "--target", "price", "--out", out, *OPTIONS)
    command += ("--workers", 1, "--trials")
    process = start(*command, 500)
    wait_for("trial 3 of 500", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=20)
    search = search_of(mine, sqlite_storage(out))
    n_before = search.n_done()
    assert n_before >= 3
    result = succeed(*command, n_before + 1)
    assert search.n_done() == n_before + 1
    assert f"1 trials to do, {n_before} done" in result.stderr
    assert f"the best of {n_before + 1} trials, with\n" in result.stdout
    (best,) = json.loads(succeed(*command, n_before + 1, "--json").stdout)["best"]
    assert best["val"] == search.best()["val"]
    assert json.loads(Path(best["path"]).read_text())["params"] == best["params"]


def test_the_best_says_which_score_it_is_of(mine: Path, tmp_path: Path):
    command = ("tune", mine, "--target", "price", "--out", tmp_path / "out", *OPTIONS)
    command += ("--workers", 1, "--trials", 1)
    succeed(*command)
    result = succeed(*command, "--scoring", "neg_mean_absolute_error")
    assert "mlp@mae own/mine-" in result.stderr and "1 trials to do" in result.stderr
    assert ": validation mae " in result.stdout
    assert "retuned --scoring mae" in result.stdout
    assert "-retuned@mae" in result.stdout


def test_predictions_are_kept_if_they_are_asked_for(mine: Path, tmp_path: Path):
    out = tmp_path / "out"
    command = ("tune", mine, "--target", "price", "--out", out, *OPTIONS)
    command += ("--workers", 1, "--trials", 1)
    succeed(*command)
    assert not list(out.rglob("*.npz"))
    result = succeed(*command, "--ensemble")
    assert "predictions of 1 trials are in" in result.stderr
    assert len(list(out.rglob("mlp-trials/*.npz"))) == 1


def test_an_ensemble_is_shown_as_constructors_with_weights(mine: Path, tmp_path: Path):
    about = (mine, "--target", "price", "--device", "cpu", "--out", tmp_path / "out")
    tiny = '{"max_epochs": 1, "width": 8, "context_size": 4}'
    command = ("tune", *about, "--methods", "tabr-s", "--params", tiny, "--trials", 2)
    command += ("--workers", 1, "--scoring", "mae", "--ensemble")
    (best,) = json.loads(succeed(*command, "--json").stdout)["best"]
    ensemble = best["ensemble"]
    members = ensemble["members"]
    assert sum(member["weight"] for member in members) == pytest.approx(1)
    assert all(member["params"]["width"] == 8 for member in members)
    text = succeed(*command).stdout
    for member in members:
        assert f"  {member['weight']:.4f}  TabRRegressor(preset='paper'" in text
        assert f"dropout={member['params']['dropout']!r}" in text
    assert f"validation mae {ensemble['val']:.6g} of an ensemble of" in text
    assert "--config retuned-ensemble --scoring mae" in text and "flatter" in text
    assert f"kept in {ensemble['path']}" in text

    run = ("bench", "run", *about, "--methods", "tabr-s", "--config")
    run += ("retuned-ensemble", "--scoring")
    result = succeed(*run, "mae")
    assert "tabr-s-retuned-ensemble@mae" in result.stdout
    assert f"{len(members)} members" in result.stderr
    assert "`tabr tune --ensemble --scoring r2` for tabr-s first" in refuse(*run, "r2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--methods", "knn"), "however knn has none"),
        (("--methods", "nothing"), "a method must be one of knn"),
        (("--scoring", "roc_auc"), "a score of numbers, as own/mine-"),
        (("--scoring", "best"), "a score must be one of rmse, mae"),
        (
            ("--storage", "nonsense://user:secret@host/x"),
            "trials need a database that can be opened, however host/x cannot",
        ),
    ],
)
def test_mistakes_are_one_sentence(options, message: str, mine: Path, tmp_path: Path):
    about = (mine, "--target", "price", "--out", tmp_path / "out")
    sentence = refuse("tune", *about, *options)
    assert message in sentence and "secret" not in sentence
    assert not (tmp_path / "out").exists()


def test_two_commands_share_a_search_in_postgresql(
    postgres: str, mine: Path, tmp_path: Path
):
    command = ("tune", mine, "--target", "price", *OPTIONS, "--workers", 1)
    command += ("--trials", 8, "--storage", postgres, "--out")
    processes = [start(*command, tmp_path / name) for name in ("first", "second")]
    messages = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], messages
    search = search_of(mine, postgres)
    assert 8 <= search.n_done() <= 9
    assert sum(text.count(" s\n") for text in messages) == search.n_done()

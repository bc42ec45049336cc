"""The commands of the benchmark, in processes where they are killed."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

import click
import pytest

from tabr import cli
from tabr.bench.benchmark import FIRST_METHODS
from tabr.bench.parameters import Config
from tabr.bench.results import read
from tabr.bench.tasks import openml
from tabr.bench.tasks.catalog import BENCHMARKS, select
from tabr.metrics import MEASURES
from tabr.tables.cells import ColumnKind

from ..bench.tables import TINY, files, write_churn, write_user_table, write_wine
from .test_cli import refuse, run, succeed

PARAMS = ("--params", json.dumps(TINY), "--device", "cpu")


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start a command in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tabr", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(words: str, process: subprocess.Popen[str]) -> None:
    """Read the messages of a process until one has the words."""
    assert process.stderr is not None
    assert any(words in line for line in process.stderr)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A user's table."""
    write_user_table(tmp_path / "mine.csv")
    return tmp_path / "mine.csv"


# --- run and table ------------------------------------------------------------------


def test_standings_go_to_stdout_and_progress_to_stderr(mine: Path, tmp_path: Path):
    about = (mine, "--target", "price", "--out", tmp_path / "out")
    command = ("bench", "run", *about, "--seeds", 1, "--device", "cpu", "--methods")
    result = succeed(*command, "knn,mlp", "--workers", 2)
    assert result.stdout.startswith("own/mine-")
    assert "RMSE of the test rows, lower is better" in result.stdout
    assert "tabr: 2 runs to do, 0 done before" in result.stderr
    shown = succeed("bench", "table", *about)
    assert shown.stdout == result.stdout
    again = succeed(*command, "knn")
    assert "0 runs to do, 1 done before" in again.stderr
    assert "mlp" not in again.stdout  # it was not asked for


def test_the_scoring_is_that_of_standings_and_of_runs(mine: Path, tmp_path: Path):
    about = (mine, "--target", "price", "--out", tmp_path / "out")
    command = ("bench", "run", *about, "--seeds", 1, "--methods", "knn")
    scored = succeed(*command, "--scoring", "neg_mean_absolute_error").stdout
    assert ": MAE of the test rows, lower is better" in scored
    assert "  knn@mae  " in scored
    plain = succeed(*command).stdout
    assert ": RMSE of the test rows, lower is better" in plain and "@" not in plain
    both = succeed("bench", "table", *about, "--scoring", "r2").stdout
    assert ": R2 of the test rows, higher is better" in both
    assert "knn@mae" in both and "  knn  " in both
    csv = tmp_path / "all.csv"
    succeed("bench", "table", *about, "--csv", csv)
    assert csv.read_text().splitlines()[0].endswith(",n_parameters,mae,r2,task")


def test_json_has_the_standings_and_the_counts_of_runs(mine: Path, tmp_path: Path):
    about = (mine, "--target", "price", "--out", tmp_path / "out", "--json")
    command = ("bench", "run", *about, "--seeds", 1, "--methods", "knn")
    content = json.loads(succeed(*command).stdout)
    assert content["runs"] == {"before": 0, "done": 1, "failed": 0, "left": 0}
    ((record,), (line,)) = content["tables"], content["tables"][0]["standings"]
    assert record["task"].startswith("own/mine-") and record["metric"] == "rmse"
    assert (line["rank"], line["method"], line["runs"]) == (1, "knn-default", 1)
    shown = json.loads(succeed("bench", "table", *about).stdout)
    assert shown == {"tables": content["tables"]}


def test_options_of_columns_mean_what_they_mean_in_fit(mine: Path, tmp_path: Path):
    about = ("bench", "run", mine, "--target", "price", "--out", tmp_path / "out")
    command = (*about, "--seeds", 1, "--methods", "knn", "--json")
    labels = {
        json.loads(succeed(*command, *options).stdout)["tables"][0]["task"]
        for options in (
            (),
            ("--task", "regression"),  # as its values suggest
            ("--ignore", "town"),
            ("--kind", "size=categorical"),
        )
    }
    assert len(labels) == 3
    for name in ("--target", "--task", "--ignore", "--kind"):
        assert name in succeed("bench", "run", "--help").stdout
    assert "'--task'" in refuse(*about, "--task", "numeric")
    assert "--kind must be like COL=KIND" in refuse(*about, "--kind", "regression")
    assert "No such option '--drop'" in refuse(*about, "--drop", "town").replace(
        ":", ""
    )
    assert "no column 'twon'" in refuse(*about, "--ignore", "twon")


def test_table_averages_ranks_and_writes_csv(tmp_path: Path):
    write_churn(tmp_path)
    write_wine(tmp_path)
    folders = ("--data", tmp_path, "--out", tmp_path / "out")
    tasks = ("--tasks", "churn,why/wine")
    methods = ("--methods", "knn", "--seeds", 1)
    succeed("bench", "run", *folders, *tasks, *methods)
    csv = tmp_path / "new" / "all.csv"
    result = succeed("bench", "table", *folders, *tasks, "--csv", csv)
    assert "Average rank over 2 tables:\n  1.00 ± 0.00  knn" in result.stdout
    assert [line.split(",")[-1] for line in csv.read_text().splitlines()] == [
        "task",
        "churn",
        "why/wine",
    ]


def test_a_benchmark_is_run_as_far_as_its_tables_are_there(tmp_path: Path):
    write_churn(tmp_path)
    out = tmp_path / "out"
    command = ("bench", "run", "--data", tmp_path, "--out", out, "--seeds", 1)
    result = succeed(*command, *PARAMS)
    absent = [t.label for t in select(benchmark="default") if t.name != "churn"]
    first = f"left out, as their tables are not there: {', '.join(absent)}"
    assert result.stderr.splitlines()[0] == f"tabr: {first}"
    assert result.stdout == ""
    assert [read(path).task for path in files(out)] == ["churn"]
    message = refuse(*command, "--tasks", "churn,otto")
    assert "lacks otto.parquet: " in message and "take otto from https" in message
    assert "fetch why/bank-marketing why/kdd" in refuse(*command, "--benchmark", "why")


def test_a_failed_run_makes_the_command_fail(mine: Path, tmp_path: Path):
    command = ("bench", "run", mine, "--target", "price", "--out", tmp_path / "out")
    broken = ("--methods", "mlp", "--params", '{"batch_size": -1}', "--seeds", 1)
    result = run(*command, *broken, "--json")
    assert result.exit_code == 1
    assert "FAILED, ParameterError" in result.stderr
    content = json.loads(result.stdout)
    assert content["runs"]["failed"] == 1 and content["tables"] == []


def test_sigterm_leaves_only_whole_files_and_the_rest_can_follow(tmp_path: Path):
    write_wine(tmp_path)
    out = tmp_path / "out"
    command = ("bench", "run", "--data", tmp_path, "--out", out, "--tasks", "why/wine")
    command += (*PARAMS, "--workers", 1, "--seeds")
    process = start(*command, 200)
    wait_for("seed 3:", process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    done = files(out)
    assert 4 <= len(done) < 1000
    assert all(read(path).task == "wine" for path in done)

    n_seeds = sum(read(path).split == 0 for path in done)
    succeed(*command, n_seeds, "--budget", 0)
    assert files(out) == done


def test_an_interrupt_keeps_what_is_done(mine: Path, tmp_path: Path):
    about = (mine, "--target", "price", "--out", tmp_path / "out")
    methods = ("--methods", "tabr-s", *PARAMS, "--workers", 1, "--seeds", 500)
    process = start("bench", "run", *about, *methods)
    wait_for("seed 1:", process)
    os.killpg(process.pid, signal.SIGINT)
    output, messages = process.communicate(timeout=20)
    assert (process.returncode, output) == (130, "")
    last = "tabr: interrupted; what is done is kept, and the same command goes on"
    assert messages.splitlines()[-1] == last
    assert len(files(tmp_path / "out")) >= 2


# --- mistakes and help --------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tasks", "churn"), "lacks churn.parquet"),
        (("--tasks", "churn", "--methods", "dkl"), "however dkl cannot predict"),
        (("--methods", "nothing"), "a method must be one of knn"),
        (("--tasks", "nothing"), "these came: nothing; the closest are"),
        (("--tasks", "churn", "--benchmark", "why"), "both name tasks; leave one out"),
        (("--ignore", "town"), "are about a table of yours, however none was named"),
        (("--tasks", "churn", "--params", "[1]"), "'[1]' is no JSON object"),
        (("--seeds", "0"), "--seeds"),
        (("--scoring", "auc"), "a score must be one of rmse, mae, r2, accuracy"),
        (("--tasks", "churn", "--scoring", "r2"), "of classes, as churn has, must be"),
    ],
)
def test_mistakes_are_one_sentence(options, message: str, tmp_path: Path):
    folders = ("--data", tmp_path, "--out", tmp_path)
    assert message in refuse("bench", "run", *folders, *options)


@pytest.mark.parametrize("command", [("bench", "run"), ("bench", "table"), ("tune",)])
def test_a_table_needs_a_target_and_no_tasks(command, mine: Path):
    assert "however none was named: add --target" in refuse(*command, mine)
    both = (mine, "--target", "price", "--tasks", "churn")
    assert "a table or tasks by name, however both came" in refuse(*command, *both)


@pytest.mark.parametrize("command", [("bench", "run"), ("tune",)])
def test_without_tables_it_says_what_it_takes(command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TABR_DATA", raising=False)
    assert "or name a table of yours and its --target" in refuse(*command)


def test_choices_are_those_of_the_benchmark():
    options = {option.name: option for option in cli.bench.bench.commands["run"].params}
    benchmark, config = options["benchmark"].type, options["config"].type
    assert isinstance(benchmark, click.Choice) and isinstance(config, click.Choice)
    assert list(benchmark.choices) == [*BENCHMARKS, "all"]
    assert [*config.choices, "trial"] == list(get_args(Config))
    texts = {name: getattr(o, "help", "") for name, o in options.items()}
    assert ", ".join(FIRST_METHODS) in texts["methods"]
    words = set(re.findall(r"[a-z0-9-]+", texts["scoring"]))
    assert words >= MEASURES.keys()
    guide = (Path(__file__).parents[2] / "docs" / "lab.md").read_text("utf-8")
    for measure in MEASURES.values():
        assert f"`{measure.name}`" in guide and f"`{measure.scorer}`" in guide
    assert ", ".join(get_args(ColumnKind)) in texts["kinds"]


def test_the_group_alone_shows_its_commands():
    text = succeed("bench").stdout
    assert all(f"\n  {name} " in text for name in ("run", "table", "fetch"))


def test_the_other_commands_do_without_the_benchmark(mine: Path, tmp_path: Path):
    code = (
        "import sys; sys.modules['tabr.bench'] = None; import tabr.cli; tabr.cli.main()"
    )
    fit = ("fit", mine, "--target", "price", "-o", tmp_path / "m.tabr", "--quiet")
    command = [sys.executable, "-c", code, *map(str, (*fit, "--max-epochs", 1))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- fetch --------------------------------------------------------------------------


def test_without_a_network_one_sentence_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")  # nobody listens there
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between tries
    folders = ("--data", tmp_path, "--cache", tmp_path / "cache")
    message = refuse("bench", "fetch", "why/wine", *folders)
    assert "why/wine must come from OpenML, however it cannot be reached" in message


def test_what_is_not_on_openml_is_refused_and_its_place_told(tmp_path: Path):
    message = refuse("bench", "fetch", "churn", "--data", tmp_path)
    assert "however churn is not: take churn from https" in message


def test_what_is_there_is_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_wine(tmp_path)
    monkeypatch.setattr(openml, "fetch", None)
    command = ("bench", "fetch", "why/wine", "--data", tmp_path)
    assert succeed(*command).stdout == "why/wine: there already\n"

"""The commands `bench run`, `bench table` and `bench fetch`.

`tabr.bench` is imported by the command that runs, so that the others do without it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from tabr.cli import options
from tabr.cli.messages import Mistake, Result, common, debug, say, show

if TYPE_CHECKING:
    from tabr.bench.tasks.selection import TaskSelection

# --- options that commands share ----------------------------------------------------


def read_json(context: click.Context, option: click.Parameter, text: str | None) -> Any:
    """Return the object of an option that is JSON; nothing is an empty one."""
    try:
        content = json.loads(text or "{}")
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise click.BadParameter(f'{text!r} is no JSON object, such as {{"width": 96}}')
    return content


names_option = functools.partial(
    click.option,
    metavar="NAME,NAME",
    callback=lambda context, option, text: text and text.split(","),
)
params_option = functools.partial(
    click.option, "--params", metavar="JSON", callback=read_json
)
data_option = click.option(
    "--data",
    type=options.output_type,
    help="Folder of the paper's tables.  [default: TABR_DATA]",
)
out_option = click.option(
    "--out",
    type=options.output_type,
    default=Path("results"),
    help="Folder of the results.",
)


def _selection(
    table: Path | None,
    target: str | None,
    task: Literal["auto", "regression", "classification"],
    kinds: dict[str, Any],
    splits: int,
    tasks: list[str] | None,
    benchmark: str | None,
    data: Path | None,
    ignore: tuple[str, ...],
) -> TaskSelection:
    from tabr.bench.tasks.selection import TaskSelection
    from tabr.bench.tasks.task import UserTable

    if tasks is not None and benchmark is not None:
        raise Mistake("--tasks and --benchmark both name tasks; leave one out")
    if table is None:
        if target or ignore or kinds or task != "auto" or splits > 1:
            raise Mistake(
                "--target, --task, --ignore, --kind and --splits are about a table of"
                " yours, however none was named: name its file"
            )
        return TaskSelection(labels=tasks, benchmark=benchmark or "default", data=data)
    if tasks is not None or benchmark is not None:
        raise Mistake(
            "a command takes a table or tasks by name, however both came: leave out one"
            " of them"
        )
    if target is None:
        raise Mistake(
            "a table needs a column to predict, however none was named: add --target"
        )
    user_table = UserTable(table, target, ignore, tuple(kinds.items()))
    return TaskSelection(user_table, None if task == "auto" else task, splits)


task_options = options.grouped(
    "selection",
    _selection,
    click.argument("table", type=options.input_type, required=False),
    options.column("--target", help="The column of TABLE to predict."),
    options.task,
    options.ignore,
    options.kind,
    options.count("--splits", default=1, help="Random splits of TABLE."),
    names_option("--tasks", help="Tables of the paper, as in california,why/wine."),
    click.option(
        "--benchmark",
        type=click.Choice(["default", "why", "all"]),
        help="Tables of the paper by benchmark.  [default: default]",
    ),
    data_option,
)


def _resources(
    workers: int | None, threads: int, device: str | None, ray: str | None, gpus: float
) -> Any:
    from tabr.bench.workers import Resources, default_workers

    workers = workers or default_workers(device, threads)
    return Resources(device, workers, threads, ray, gpus)


worker_options = options.grouped(
    "resources",
    _resources,
    options.count(
        "--workers", help="Runs at a time.  [default: one for each core, on a GPU one]"
    ),
    options.count(
        "--threads", default=1, help="Threads of a run; results depend on them."
    ),
    options.device,
    click.option(
        "--ray",
        is_flag=False,
        flag_value="local",
        metavar="[ADDRESS]",
        help="Workers on a Ray cluster, or on a new local one.",
    ),
    click.option(
        "--gpus",
        type=click.FloatRange(0),
        default=0.0,
        help="GPUs that Ray gives to a worker.",
    ),
    click.option(
        "--budget", type=float, metavar="S", help="Seconds; then all runs are ended."
    ),
)


@contextmanager
def resumable() -> Iterator[None]:
    """End the workers and exit in order when the command is interrupted or ended."""
    from tabr.bench.workers import exit_on_sigterm

    exit_on_sigterm()
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted; what is done is kept, and the same command goes on")
        sys.exit(130)


# --- commands -----------------------------------------------------------------------


@click.group(invoke_without_command=True)
@click.pass_context
def bench(context: click.Context) -> None:
    """Compare methods on your table, or run the paper's experiments again."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@bench.command()
@task_options
@names_option(
    "--methods",
    help="Methods to fit, or all.  [default: for TABLE"
    " tabr-d, tabr-s, lightgbm, catboost, xgboost, mlp, knn; else tabr-s]",
)
@options.count("--seeds", default=15, help="Runs of each method, with seeds 0, 1, ...")
@options.count("--few-seeds", help="Seeds of the paper's longest tables.")
@options.count("--why-seeds", help="Seeds of the benchmark why.")
@click.option(
    "--config",
    type=click.Choice(["default", "tuned", "retuned", "retuned-ensemble"]),
    default="default",
    help="Parameters: a method's own, the paper's tuned ones, or those of `tabr tune`;"
    " retuned-ensemble scores its weighted trials, without a fit.",
)
@params_option(help="Parameters; they make the run a trial.")
@options.scoring(
    help="The score that methods stop early by, where they can, and are ranked by:"
    f" {options.MEASURES}; or scikit-learn's name of it. Runs with another score are"
    " other runs.  [default: RMSE or accuracy; tabr-d stops by log-loss]"
)
@click.option(
    "--ensembles", is_flag=True, help="Keep predictions, and score means of five seeds."
)
@options.count(
    "--seeds-per-fit",
    default=1,
    help="Seeds that are fitted as one where a method can: faster on a GPU, equal up to"
    " rounding, and their time is that of all.",
)
@out_option
@worker_options
@common
def run(
    selection: TaskSelection,
    methods: list[str] | None,
    seeds: int,
    few_seeds: int | None,
    why_seeds: int | None,
    seeds_per_fit: int,
    out: Path,
    resources: Any,
    budget: float | None,
    **parameters: Any,
) -> Result:
    """Fit and score methods on TABLE, or on tables of the paper.

    What is done is not repeated: the same command goes on where it was stopped.
    """
    from tabr.bench.benchmark import Benchmark, run_benchmark
    from tabr.bench.ranks import to_record, to_text
    from tabr.bench.runs import SeedCounts

    seed_counts = SeedCounts(seeds, few_seeds, why_seeds)
    benchmark = Benchmark(selection, methods, seeds=seed_counts, **parameters)
    with resumable():
        summary, tables = run_benchmark(
            benchmark,
            out,
            resources,
            budget_seconds=budget,
            seeds_per_fit=seeds_per_fit,
            log=say,
        )
    counts = dataclasses.asdict(summary).items()
    runs = {name.removeprefix("n_"): count for name, count in counts}
    scoring = benchmark.scoring
    records = [to_record(table, task, scoring) for task, table in tables]
    text = ""
    if selection.table is not None and tables:
        (task, table), *_ = tables
        text = to_text(table, task, scoring)
    code = 1 if summary.n_failed else 0
    return Result({"runs": runs, "tables": records}, text, code=code)


@bench.command()
@task_options
@options.scoring(
    help="The score that methods are ranked by, whatever they were stopped by:"
    f" {options.MEASURES}; or scikit-learn's name of it.  [default: RMSE or accuracy]"
)
@out_option
@click.option(
    "--csv", type=options.output_type, help="A file for the same as CSV, all digits."
)
@common
def table(
    selection: TaskSelection, scoring: str | None, out: Path, csv: Path | None
) -> Result:
    """Show how methods stand on TABLE, or on tables of the paper.

    A method with @NAME was stopped by that score.
    """
    from tabr.bench import ranks

    tasks = {task.label: task for task in selection.tasks()}
    tables = [
        (task, ranks.standings(ranks.read_results(out, task), task, scoring))
        for task in tasks.values()
    ]
    if csv is not None:
        import pandas as pd

        csv.parent.mkdir(parents=True, exist_ok=True)
        all_lines = pd.concat([frame.assign(task=t.label) for t, frame in tables])
        all_lines["task"] = all_lines.pop("task")  # the last column
        all_lines.to_csv(csv, index=False, lineterminator="\n")
    texts = [ranks.to_text(frame, task, scoring) for task, frame in tables]
    if len(tables) > 1:
        texts.append(ranks.average_ranks_text(tables, scoring))
    records = [ranks.to_record(frame, task, scoring) for task, frame in tables]
    return Result({"tables": records}, "\n\n".join(texts))


@bench.command()
@click.argument("labels", metavar="TASK...", nargs=-1, required=True)
@data_option
@click.option(
    "--cache", type=options.output_type, help="Folder where downloads are kept."
)
@debug
def fetch(labels: tuple[str, ...], data: Path | None, cache: Path | None) -> None:
    """Get tables of the paper from OpenML, as in why/wine why/rl."""
    from tabr.bench.tasks.openml import fetch_missing
    from tabr.bench.tasks.task import data_folder

    for task, path in fetch_missing(labels, data_folder(data), cache):
        show(f"{task.label}: " + (f"wrote {path}" if path else "there already"))

"""Command line of the benchmark; it needs nothing beyond what a fit needs."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tabr.bench import comparison, study_report
from tabr.bench.baselines import METHODS
from tabr.bench.catalog import BENCHMARKS, select
from tabr.bench.configs import Config, check_method, extract_configs
from tabr.bench.openml import fetch
from tabr.bench.plot import plot
from tabr.bench.pool import items_of, run_all
from tabr.bench.protocol import Plan
from tabr.bench.report import (
    PUBLISHED,
    compare,
    extract,
    read_published,
    read_runs,
    to_markdown,
)
from tabr.bench.studies import STUDIES, run_study
from tabr.bench.tasks import Task, check_files, data_folder, present
from tabr.frames import DataError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status: 1 if runs failed, 2 for a mistake."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tabr.bench", description="Run the paper's experiments again."
    )
    commands = parser.add_subparsers(required=True)

    run = commands.add_parser("run", help="fit and score; what is done is not repeated")
    run.set_defaults(command=_run)
    run.add_argument("--data", help="folder of the tables (default: TABR_DATA)")
    run.add_argument("--out", type=Path, default=Path("results"))
    which = run.add_mutually_exclusive_group()
    which.add_argument("--tasks", help="as in california,why/wine")
    which.add_argument("--benchmark", choices=[*BENCHMARKS, "all"], default="default")
    run.add_argument("--seeds", type=_positive, default=15, help="seeds 0, 1, ...")
    run.add_argument("--few-seeds", type=_positive, help="seeds of the longest tasks")
    run.add_argument(
        "--why-seeds", type=_positive, help="seeds of the second benchmark's splits"
    )
    run.add_argument("--workers", type=_positive, default=1, help="processes")
    run.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    run.add_argument("--budget", type=float, help="seconds, then unfinished runs end")
    run.add_argument(
        "--methods",
        default="tabr-s",
        help="separated by commas, or all (default: %(default)s)",
    )
    run.add_argument(
        "--config",
        choices=("default", "tuned"),
        default="default",
        help="a method's own parameters, or those that the paper's authors tuned",
    )
    run.add_argument(
        "--params", type=json.loads, help="JSON of parameters; makes the run a trial"
    )

    study = commands.add_parser("study", help="look beyond one score for each table")
    study.set_defaults(command=_study)
    study.add_argument("name", choices=list(STUDIES))
    study.add_argument("--data", help="folder of the tables (default: TABR_DATA)")
    study.add_argument("--out", type=Path, default=Path("results"))
    study.add_argument("--seeds", type=_positive, default=3, help="seeds 0, 1, ...")
    study.add_argument("--tables", help="some of the tables, separated by commas")
    study.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    study.add_argument("--params", type=json.loads, help="JSON of parameters: a trial")

    studies = commands.add_parser("studies", help="write the page of the studies")
    studies.set_defaults(command=_studies)
    studies.add_argument("--out", type=Path, default=Path("results"))
    studies.add_argument("--write", type=Path, default=Path("docs/studies.md"))

    table = commands.add_parser("table", help="compare with the published figures")
    table.set_defaults(command=_table)
    table.add_argument("--out", type=Path, default=Path("results"))
    table.add_argument("--write", type=Path, help="Markdown file (default: print it)")
    table.add_argument("--csv", type=Path, help="the same as CSV, all digits")
    table.add_argument("--plot", type=Path, help="the same as a picture: .svg or .png")

    methods = commands.add_parser("methods", help="write the page of all methods")
    methods.set_defaults(command=_methods)
    methods.add_argument("--out", type=Path, default=Path("results"))
    methods.add_argument("--write", type=Path, default=Path("docs/methods.md"))

    tables = commands.add_parser("fetch", help="get tables from OpenML")
    tables.set_defaults(command=_fetch)
    tables.add_argument("tasks", nargs="+", help="as in why/wine why/rl")
    tables.add_argument("--data", help="folder of the tables (default: TABR_DATA)")
    tables.add_argument("--cache", help="where downloads are kept")

    published = commands.add_parser(
        "extract", help="keep the published figures we need"
    )
    published.set_defaults(command=_extract)
    published.add_argument("published", type=Path, help="CSV of all published results")
    published.add_argument("--configs", type=Path, help="JSON of tuned configurations")
    published.add_argument("--out", type=Path, default=Path("results"))
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, however: {value}")
    return value


def _run(options: argparse.Namespace) -> int:
    labels = options.tasks.split(",") if options.tasks else None
    tasks = select(labels, options.benchmark)
    folder = data_folder(options.data)
    names = list(METHODS) if options.methods == "all" else options.methods.split(",")
    config: Config = "trial" if options.params else options.config
    plans = [Plan(name, config, options.params) for name in names]
    for plan in plans:
        check_method(plan.method)
    if labels is None:
        tasks = _present(tasks, folder)
    items = items_of(tasks, options.seeds, options.few_seeds, options.why_seeds, plans)
    idle = [p.method for p in plans if all(item.plan != p for item in items)]
    if idle and options.methods != "all":
        raise DataError(
            f"a method must have something to run, however {', '.join(idle)} cannot"
            f" predict these tasks, or has no {config} parameters for them: choose"
            " other --tasks or --config default"
        )
    signal.signal(signal.SIGTERM, _leave)  # so that the workers are ended too
    summary = run_all(
        items,
        folder,
        options.out,
        workers=options.workers,
        device=options.device,
        budget_seconds=options.budget,
    )
    return 1 if summary.n_failed else 0


def _present(tasks: list[Task], folder: Path) -> list[Task]:
    """Leave out, and say so, what a folder has no table of."""
    there, absent = present(tasks, folder)
    if not there:
        check_files(absent, folder)
    if absent:
        labels = dict.fromkeys(task.label for task in absent)
        print(f"left out, as their tables are not there: {', '.join(labels)}")
    return there


def _fetch(options: argparse.Namespace) -> int:
    folder = data_folder(options.data)
    for label, task in {task.label: task for task in select(options.tasks)}.items():
        if present([task], folder)[0]:
            print(f"{label}: there already")
        else:
            print(f"{label}: wrote {fetch(task, folder, options.cache)}", flush=True)
    return 0


def _study(options: argparse.Namespace) -> int:
    params = {"device": options.device, **(options.params or {})}
    folder, seeds = data_folder(options.data), range(options.seeds)
    tables = options.tables.split(",") if options.tables else None
    path = run_study(options.name, folder, options.out, seeds, params, tables)
    print(f"wrote {path}")
    return 0


def _studies(options: argparse.Namespace) -> int:
    options.write.parent.mkdir(parents=True, exist_ok=True)
    options.write.write_text(study_report.to_markdown(options.out), "utf-8")
    picture = options.write.with_suffix(".svg")
    study_report.plot_new_candidates(options.out, picture)
    return 0


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _table(options: argparse.Namespace) -> int:
    runs = read_runs(options.out)
    table = compare(runs, read_published(options.out))
    text = to_markdown(table, runs)
    if options.csv:
        options.csv.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(options.csv, index=False, lineterminator="\n")
    if options.plot:
        plot(table, options.plot)
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(text, "utf-8")
    else:
        print(text, end="")
    return 0


def _extract(options: argparse.Namespace) -> int:
    target = options.out / PUBLISHED
    rows = extract(options.published, target)
    print(f"{len(rows)} rows in {target}")
    if options.configs:
        print(f"{extract_configs(options.configs)} configurations")
    return 0


def _methods(options: argparse.Namespace) -> int:
    options.write.parent.mkdir(parents=True, exist_ok=True)
    options.write.write_text(comparison.to_markdown(options.out), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

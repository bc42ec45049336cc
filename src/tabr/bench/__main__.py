"""Command line of the benchmark; it needs nothing beyond what a fit needs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tabr.bench import comparison, study_report
from tabr.bench.catalog import select
from tabr.bench.configs import extract_configs
from tabr.bench.openml import fetch
from tabr.bench.paper.pages import write as write_paper
from tabr.bench.plot import plot
from tabr.bench.report import (
    PUBLISHED,
    compare,
    extract,
    read_published,
    read_runs,
    to_markdown,
)
from tabr.bench.running import add_run, add_table, positive, tasks_of
from tabr.bench.standings import average_ranks_text, standings, to_text
from tabr.bench.studies import STUDIES, run_study
from tabr.bench.tasks import data_folder, present
from tabr.bench.tune_command import add_tune
from tabr.frames import DataError
from tabr.optional import MissingLibrary


def main(
    arguments: Sequence[str] | None = None, prog: str = "python -m tabr.bench"
) -> int:
    """Run a command; return the exit status: 1 if runs failed, 2 for a mistake."""
    options = _parser(prog).parse_args(arguments)
    try:
        status: int = options.command(options)
    except (DataError, MissingLibrary) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Compare methods on your table, or run the paper's experiments"
        " again.",
    )
    commands = parser.add_subparsers(required=True)

    add_run(commands)
    add_tune(commands)

    study = commands.add_parser("study", help="look beyond one score for each table")
    study.set_defaults(command=_study)
    study.add_argument("name", choices=list(STUDIES))
    study.add_argument("--data", help="folder of the tables (default: TABR_DATA)")
    study.add_argument("--out", type=Path, default=Path("results"))
    study.add_argument("--seeds", type=positive, default=3, help="seeds 0, 1, ...")
    study.add_argument("--tables", help="some of the tables, separated by commas")
    study.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    study.add_argument("--params", type=json.loads, help="JSON of parameters: a trial")

    studies = commands.add_parser("studies", help="write the page of the studies")
    studies.set_defaults(command=_studies)
    studies.add_argument("--out", type=Path, default=Path("results"))
    studies.add_argument("--write", type=Path, default=Path("docs/studies.md"))

    table = commands.add_parser(
        "table", help="show how methods stand, or compare with the published figures"
    )
    table.set_defaults(command=_table)
    add_table(table)
    table.add_argument("--out", type=Path, default=Path("results"))
    table.add_argument("--write", type=Path, help="Markdown file (default: print it)")
    table.add_argument("--csv", type=Path, help="the same as CSV, all digits")
    table.add_argument("--plot", type=Path, help="the same as a picture: .svg or .png")

    methods = commands.add_parser("methods", help="write the page of all methods")
    methods.set_defaults(command=_methods)
    methods.add_argument("--out", type=Path, default=Path("results"))
    methods.add_argument("--write", type=Path, default=Path("docs/methods.md"))

    paper = commands.add_parser("paper", help="write the paper's tables and figures")
    paper.set_defaults(command=_paper)
    paper.add_argument("--out", type=Path, default=Path("results"))
    paper.add_argument("--write", type=Path, default=Path("docs/paper"))

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
    study_report.write_page(options.out, options.write)
    return 0


def _table(options: argparse.Namespace) -> int:
    if options.tasks or options.table is not None:
        return _standings(options)
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


def _standings(options: argparse.Namespace) -> int:
    first_splits = {task.label: task for task in reversed(tasks_of(options))}
    tables = []
    for task in reversed(first_splits.values()):
        tables.append((task, standings(options.out, task)))
        print(to_text(tables[-1][1], task) + "\n")
    if len(tables) > 1:
        print(average_ranks_text(tables))
    if options.csv:
        options.csv.parent.mkdir(parents=True, exist_ok=True)
        parts = [table.assign(task=task.label) for task, table in tables]
        pd.concat(parts).to_csv(options.csv, index=False, lineterminator="\n")
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


def _paper(options: argparse.Namespace) -> int:
    write_paper(options.out, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())

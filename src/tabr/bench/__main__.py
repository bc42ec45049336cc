"""Command line of the benchmark; it needs nothing beyond what a fit needs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tabr.bench.ranks import average_ranks_text, standings, to_text
from tabr.bench.running import add_run, add_table, tasks_of
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.openml import fetch
from tabr.bench.tasks.task import data_folder, present
from tabr.bench.tune_command import add_tune
from tabr.errors import DataError, MissingLibrary


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
        description="Compare methods on your table, or on those of the paper.",
    )
    commands = parser.add_subparsers(required=True)

    add_run(commands)
    add_tune(commands)

    table = commands.add_parser("table", help="show how methods stand")
    table.set_defaults(command=_standings)
    add_table(table)
    table.add_argument("--out", type=Path, default=Path("results"))
    table.add_argument("--csv", type=Path, help="the same as CSV, all digits")

    tables = commands.add_parser("fetch", help="get tables from OpenML")
    tables.set_defaults(command=_fetch)
    tables.add_argument("tasks", nargs="+", help="as in why/wine why/rl")
    tables.add_argument("--data", help="folder of the tables (default: TABR_DATA)")
    tables.add_argument("--cache", help="where downloads are kept")

    return parser


def _fetch(options: argparse.Namespace) -> int:
    folder = data_folder(options.data)
    for label, task in {task.label: task for task in select(options.tasks)}.items():
        if present([task], folder)[0]:
            print(f"{label}: there already")
        else:
            print(f"{label}: wrote {fetch(task, folder, options.cache)}", flush=True)
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


if __name__ == "__main__":
    sys.exit(main())

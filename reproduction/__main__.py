"""Command line of the reproduction: results in, pages and studies out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from reproduction import methods_page
from reproduction.default_picture import plot
from reproduction.default_table import (
    PUBLISHED,
    compare,
    extract,
    read_published,
    read_runs,
    to_markdown,
)
from reproduction.paper.pages import write as write_paper
from reproduction.studies import STUDIES, run_study
from reproduction.studies import page as studies_page
from tabr.bench.parameters import extract_configs
from tabr.bench.tasks.task import data_folder
from tabr.errors import DataError, MissingLibrary


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status: 1 if runs failed, 2 for a mistake."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except (DataError, MissingLibrary) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reproduction", description="Run the paper's experiments again."
    )
    commands = parser.add_subparsers(required=True)

    table = commands.add_parser("table", help="compare with the published figures")
    table.set_defaults(command=_table)
    table.add_argument("--out", type=Path, default=Path("results"))
    table.add_argument("--write", type=Path, help="Markdown file (default: print it)")
    table.add_argument("--csv", type=Path, help="the same as CSV, all digits")
    table.add_argument("--plot", type=Path, help="the same as a picture: .svg or .png")

    study = commands.add_parser("study", help="look beyond one score for each table")
    study.set_defaults(command=_study)
    study.add_argument("name", choices=list(STUDIES))
    study.add_argument("--data", help="folder of the tables (default: TABR_DATA)")
    study.add_argument("--out", type=Path, default=Path("results"))
    study.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ...")
    study.add_argument("--tables", help="some of the tables, separated by commas")
    study.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    study.add_argument("--params", type=json.loads, help="JSON of parameters: a trial")

    studies = commands.add_parser("studies", help="write the page of the studies")
    studies.set_defaults(command=_studies)
    studies.add_argument("--out", type=Path, default=Path("results"))
    studies.add_argument("--write", type=Path, default=Path("docs/studies.md"))

    methods = commands.add_parser("methods", help="write the page of all methods")
    methods.set_defaults(command=_methods)
    methods.add_argument("--out", type=Path, default=Path("results"))
    methods.add_argument("--write", type=Path, default=Path("docs/methods.md"))

    paper = commands.add_parser("paper", help="write the paper's tables and figures")
    paper.set_defaults(command=_paper)
    paper.add_argument("--out", type=Path, default=Path("results"))
    paper.add_argument("--write", type=Path, default=Path("docs/paper"))

    published = commands.add_parser(
        "extract", help="keep the published figures we need"
    )
    published.set_defaults(command=_extract)
    published.add_argument("published", type=Path, help="CSV of all published results")
    published.add_argument("--configs", type=Path, help="JSON of tuned configurations")
    published.add_argument("--out", type=Path, default=Path("results"))
    return parser


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


def _study(options: argparse.Namespace) -> int:
    params = {"device": options.device, **(options.params or {})}
    folder, seeds = data_folder(options.data), range(options.seeds)
    tables = options.tables.split(",") if options.tables else None
    path = run_study(options.name, folder, options.out, seeds, params, tables)
    print(f"wrote {path}")
    return 0


def _studies(options: argparse.Namespace) -> int:
    studies_page.write_page(options.out, options.write)
    return 0


def _methods(options: argparse.Namespace) -> int:
    options.write.parent.mkdir(parents=True, exist_ok=True)
    options.write.write_text(methods_page.to_markdown(options.out), "utf-8")
    return 0


def _paper(options: argparse.Namespace) -> int:
    write_paper(options.out, options.write)
    return 0


def _extract(options: argparse.Namespace) -> int:
    target = options.out / PUBLISHED
    rows = extract(options.published, target)
    print(f"{len(rows)} rows in {target}")
    if options.configs:
        print(f"{extract_configs(options.configs)} configurations")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""All generated pages: what each is, the command that makes it, and their index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from reproduction import methods_page, tasks_page
from reproduction.default_picture import plot
from reproduction.default_table import compare, read_runs, to_markdown
from reproduction.paper.pages import write as write_paper
from reproduction.presets.page import write as write_presets
from reproduction.results_folder import ResultsFolder, to_csv
from reproduction.studies import page as studies_page
from tabr.tables.files import write_bytes
from tabr.text import markdown_table


class Page(NamedTuple):
    """A generated page.

    Attributes:
        title: As the index shows it.
        words: What it holds.
        path: Where it lies in `docs/results`; a folder of pages has an `index.md`.
        write: Writes it, and its pictures, to a path.
    """

    title: str
    words: str
    path: str
    write: Callable[[ResultsFolder, Path], None]


def write_reproduction(results: ResultsFolder, path: Path) -> None:
    """Write the page of TabR-S, its picture, and the same figures as CSV."""
    runs = read_runs(results)
    table = compare(runs, results.published())
    write_text(path, to_markdown(table, runs))
    plot(table, path.with_suffix(".svg"))
    write_text(results.path / "reproduction.csv", to_csv(table))


def write_methods(results: ResultsFolder, path: Path) -> None:
    """Write the page of all methods."""
    write_text(path, methods_page.to_markdown(results))


def write_tasks(results: ResultsFolder, path: Path) -> None:
    """Write the page of all tasks, which needs no results."""
    write_text(path, tasks_page.to_markdown())


def write_text(path: Path, text: str) -> None:
    """Write a page, whole or not at all."""
    write_bytes(path, text.encode())


# By the command that makes each.
PAGES: Mapping[str, Page] = {
    "table": Page(
        "Reproduction",
        "TabR-S with default parameters on every set that was run, beside the"
        " published figures",
        "reproduction.md",
        write_reproduction,
    ),
    "methods": Page(
        "Methods",
        "every method on three sets, tuned and with defaults",
        "methods.md",
        write_methods,
    ),
    "presets": Page(
        "Presets",
        "the library's own presets beside boosted trees and the paper's TabR-S",
        "presets.md",
        write_presets,
    ),
    "paper": Page(
        "The paper's tables",
        "the paper's tables and figures, ours beside the published",
        "paper",
        write_paper,
    ),
    "studies": Page(
        "Studies",
        "where attention falls, context freeze, new candidates, tables in time; beside"
        " trees: small tables, rare classes, tables in time",
        "studies.md",
        studies_page.write_page,
    ),
    "tasks": Page(
        "Tasks",
        "the sets of both benchmarks, with their splits and sources",
        "tasks.md",
        write_tasks,
    ),
}

_INDEX = """# Results

The pages of this folder are generated: change the code in `reproduction/`, or the files
in `reproduction/results`, and write them anew. All of them, and the figures of the
README, come from

    python -m reproduction pages

{table}

`python -m reproduction fold FOLDER` puts new runs of `tabr bench run --out FOLDER` into
the run tables: `default.csv` and `why.csv` hold the paper's two benchmarks,
`example.csv` the table of [the lab's guide](../lab.md), a line a run.
"""


def index_page() -> str:
    """Return the index of the generated pages."""
    rows = []
    for command, page in PAGES.items():
        target = page.path if page.path.endswith(".md") else f"{page.path}/index.md"
        link = f"[{page.title}]({target})"
        rows.append([link, page.words, f"`python -m reproduction {command}`"])
    header = ["page", "what it holds", "command"]
    return _INDEX.format(table=markdown_table(header, rows))


def write_all(results: ResultsFolder, docs: Path) -> None:
    """Write all pages and their index into a folder."""
    for page in PAGES.values():
        page.write(results, docs / page.path)
    write_text(docs / "index.md", index_page())

"""Command line of the reproduction: runs and results in, pages and studies out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from reproduction import oracle, readme
from reproduction.default_picture import plot
from reproduction.default_table import compare, read_runs, to_markdown
from reproduction.pages import PAGES, Page, write_all, write_text
from reproduction.presets.lever_runs import run_levers
from reproduction.results_folder import (
    DOCS,
    PUBLISHED,
    RESULTS,
    ROOT,
    ResultsFolder,
    extract,
    extract_configs,
    to_csv,
)
from reproduction.runs import fold
from reproduction.studies import STUDIES, fold_study, run_study
from tabr.bench.tasks.task import data_folder
from tabr.cli.bench import read_json
from tabr.errors import DataError, TabrError

FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)

results_option = click.option(
    "--results",
    type=FOLDER,
    default=RESULTS,
    help="Folder of the results.  [default: reproduction/results]",
)


class Mistake(click.ClickException):
    """What the user can mend, in one sentence."""

    exit_code = 2


class Commands(click.Group):
    """Commands that end in one sentence when the library refuses something."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except TabrError as error:
            raise Mistake(str(error)) from error


@click.group(cls=Commands, context_settings={"max_content_width": 88})
def main() -> None:
    """Run the paper's experiments again, and write their pages."""


# --- pages ------------------------------------------------------------------------


@main.command("pages")
@results_option
@click.option("--docs", type=FOLDER, default=DOCS, help="[default: docs/results]")
@click.option(
    "--readme",
    "readme_path",
    type=FILE,
    default=ROOT / "README.md",
    help="[default: README.md]",
)
def write_pages(results: Path, docs: Path, readme_path: Path) -> None:
    """Write all pages, their index and the figures of the README."""
    folder = ResultsFolder(results)
    write_all(folder, docs)
    readme.write(folder, readme_path)


@main.command("table")
@results_option
@click.option("--write", type=FILE, help="Markdown file.  [default: print it]")
@click.option("--csv", type=FILE, help="The same as CSV, ten digits.")
@click.option("--plot", "picture", type=FILE, help="The same as .svg or .png.")
def write_table(
    results: Path, write: Path | None, csv: Path | None, picture: Path | None
) -> None:
    """Compare TabR-S with the published figures."""
    folder = ResultsFolder(results)
    runs = read_runs(folder)
    table = compare(runs, folder.published())
    text = to_markdown(table, runs)
    if csv:
        write_text(csv, to_csv(table))
    if picture:
        plot(table, picture)
    if write:
        write_text(write, text)
    else:
        click.echo(text, nl=False)


def _page_command(name: str, page: Page) -> Callable[..., None]:
    path = f"docs/results/{page.path}"

    @main.command(
        name, help=f"Write {path}: {page.words}.", short_help=f"Write {path}."
    )
    @results_option
    @click.option(
        "--write",
        type=click.Path(path_type=Path),
        default=DOCS / page.path,
        help=f"[default: {path}]",
    )
    def command(results: Path, write: Path) -> None:
        page.write(ResultsFolder(results), write)

    return command


for _name, _page in PAGES.items():
    if _name != "table":  # which is rather printed
        _page_command(_name, _page)


@main.command("readme")
@results_option
@click.option("--write", type=FILE, default=ROOT / "README.md", help="The README.")
def write_readme(results: Path, write: Path) -> None:
    """Write the figures of the README."""
    readme.write(ResultsFolder(results), write)


# --- results ----------------------------------------------------------------------


@main.command("fold")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@results_option
@click.option("--replace", is_flag=True, help="Let a run take the place of another.")
def fold_runs(folder: Path, results: Path, replace: bool) -> None:
    """Put the run files of `tabr bench` into the tables.

    FOLDER is that of `tabr bench run --out FOLDER`, or one inside it. Lines of other
    runs stay; a run that is there already must have the same content.
    """
    for count in fold(folder, results, replace=replace):
        click.echo(str(count))


@main.command("study")
@click.argument("name", type=click.Choice(list(STUDIES)))
@click.option("--data", help="Folder of the tables.  [default: TABR_DATA]")
@results_option
@click.option(
    "--seeds",
    type=click.IntRange(1),
    help="Seeds 0, 1, ...  [default: 3; of small 20, its draws]",
)
@click.option("--tables", help="Some of the tables, separated by commas.")
@click.option("--methods", help="Some of the methods, where a study has any.")
@click.option("--device", help="cpu or cuda.  [default: cuda if there is one]")
@click.option("--params", callback=read_json, help="JSON of parameters: a trial.")
def study(
    name: str,
    data: str | None,
    results: Path,
    seeds: int | None,
    tables: str | None,
    methods: str | None,
    device: str | None,
    params: dict[str, Any],
) -> None:
    """Run a study: a look beyond one score for each table."""
    path = run_study(
        name,
        data_folder(data),
        ResultsFolder(results),
        range(seeds) if seeds else None,
        {"device": device, **params},
        tables.split(",") if tables else None,
        methods.split(",") if methods else None,
    )
    click.echo(f"wrote {path}")


@main.command("levers")
@click.option("--data", help="Folder of the tables.  [default: TABR_DATA]")
@results_option
@click.option("--seeds", type=click.IntRange(1), default=3, help="[default: 3]")
@click.option("--tables", help="Names of sets.  [default: the half to choose on]")
@click.option("--levers", "chosen", help="Names of levers.  [default: all]")
@click.option("--device", help="cpu or cuda.  [default: cuda if there is one]")
@click.option("--params", callback=read_json, help="JSON of parameters: a trial.")
def run_all_levers(
    data: str | None,
    results: Path,
    seeds: int,
    tables: str | None,
    chosen: str | None,
    device: str | None,
    params: dict[str, Any],
) -> None:
    """Run the default preset with one lever out at a time.

    Lines that are there already are not run again.
    """
    path = run_levers(
        data_folder(data),
        results,
        range(seeds),
        device,
        tables.split(",") if tables else None,
        chosen.split(",") if chosen else None,
        params,
        say=click.echo,
    )
    click.echo(f"wrote {path}")


@main.command("fold-study")
@click.argument("name", type=click.Choice(list(STUDIES)))
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@results_option
def fold_study_file(name: str, file: Path, results: Path) -> None:
    """Put the records of a study that was run elsewhere into its file.

    FILE is `studies/NAME.json` of another folder of results. A unit that is done
    already stays as it is.
    """
    n_records = fold_study(name, file, ResultsFolder(results))
    click.echo(f"{n_records} new records")


@main.command("extract")
@click.argument("published", type=click.Path(exists=True, path_type=Path))
@click.option("--configs", type=FILE, help="JSON of tuned configurations.")
@results_option
def extract_published(published: Path, configs: Path | None, results: Path) -> None:
    """Keep the published figures of a CSV file.

    PUBLISHED is a CSV of all published results.
    """
    target = results / PUBLISHED
    click.echo(f"{len(extract(published, target))} rows in {target}")
    if configs:
        click.echo(f"{extract_configs(configs)} configurations")


@main.command("oracle")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.pass_context
def compare_oracle(context: click.Context, folder: Path) -> None:
    """Compare the network with the authors' own.

    FOLDER holds its outputs and gradients, an .npz file a case.
    """
    n_agreeing, n_cases = oracle.compare_folder(folder)
    if n_cases == 0:
        raise DataError(f"the cases are .npz files, however {folder} has none")
    context.exit(0 if n_agreeing == n_cases else 1)


if __name__ == "__main__":
    main(prog_name="python -m reproduction")

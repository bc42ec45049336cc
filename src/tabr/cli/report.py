"""The command `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tabr.cli import options
from tabr.cli.messages import Mistake, Result, common


@click.command()
@options.model
@options.table
@options.output(metavar="PAGE", required=True, help="The page to write, as .html.")
@options.target
@click.option("--title", metavar="TEXT", help="The title of the page.")
@click.option("--audit", is_flag=True, help="Look for leaks and copies too.")
@common
def report(
    model_file: Path, table: Path, output: Path, target: str | None, **about: Any
) -> Result:
    """Write a page about MODEL and the labelled rows of TABLE.

    The rows should be new to the model. The page opens in any browser, without a
    network.
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise Mistake(f"a page's name must end in .html, however: {output}")
    options.check_output(output, table, model_file)
    from tabr.report import save_report
    from tabr.text import size_of

    model, rows, labels = options.read_labelled(model_file, table, target)
    save_report(model, rows, labels, output, model_file=model_file, **about)
    n, size = len(rows), output.stat().st_size
    return Result(
        {"output": str(output), "target": labels.name, "rows": n, "bytes": size},
        message=f"wrote a page about {n} rows to {output}, {size_of(size)}",
    )

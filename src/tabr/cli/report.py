"""The command `report`."""

from __future__ import annotations

from pathlib import Path

import click

from tabr.cli.files import (
    check_output,
    model_argument,
    output_type,
    read_inputs,
    table_argument,
    target_of,
    target_option,
)
from tabr.cli.messages import Mistake, Result, common


@click.command()
@model_argument
@table_argument
@click.option(
    "-o",
    "--output",
    metavar="PAGE",
    type=output_type,
    required=True,
    help="The page to write, as .html.",
)
@target_option
@click.option("--title", metavar="TEXT", help="The title of the page.")
@click.option("--audit", is_flag=True, help="Look for leaks and copies too.")
@common
def report(
    model_file: Path,
    table: Path,
    output: Path,
    target: str | None,
    title: str | None,
    audit: bool,
) -> Result:
    """Write a page about MODEL and the labelled rows of TABLE.

    The rows should be new to the model. The page opens in any browser, without a
    network.
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise Mistake(f"a page's name must end in .html, however: {output}")
    check_output(output, table, model_file)
    from tabr.report import save_report
    from tabr.text import size_of

    model, frame = read_inputs(model_file, table)
    target = target_of(model, frame, target, table)
    save_report(
        model,
        frame.drop(columns=target),
        frame[target],
        output,
        title=title,
        audit=audit,
        model_file=model_file,
    )
    size = output.stat().st_size
    return Result(
        {"output": str(output), "target": target, "rows": len(frame), "bytes": size},
        message=f"wrote a page about {len(frame)} rows to {output}, {size_of(size)}",
    )

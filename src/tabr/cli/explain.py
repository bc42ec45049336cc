"""The commands `neighbors` and `explain`: where predictions come from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from tabr.cli.files import (
    check_table_output,
    count_option,
    feature_columns,
    model_argument,
    read_inputs,
    read_integers,
    table_argument,
    table_output_option,
)
from tabr.cli.messages import Mistake, Result, common, terminal_width

rows_option = click.option(
    "--rows", metavar="0,5,7", help="Which rows, from 0.  [default: all]"
)
m_option = count_option("-m", default=5, text="Neighbours of each row that are shown.")


@click.command()
@model_argument
@table_argument
@rows_option
@m_option
@common
def neighbors(model_file: Path, table: Path, rows: str | None, m: int) -> Result:
    """Show which rows the predictions for TABLE came from."""
    model, frame = read_inputs(model_file, table)
    positions = _positions(rows, len(frame))
    return _cases(model, feature_columns(model, frame), positions, m)


@click.command()
@model_argument
@table_argument
@rows_option
@m_option
@table_output_option("A table of all neighbours.")
@common
def explain(
    model_file: Path,
    table: Path,
    rows: str | None,
    m: int,
    output: Path | None,
) -> Result:
    """Show which rows predictions came from, and what each one did."""
    check_table_output(output, table, model_file)
    model, frame = read_inputs(model_file, table)
    positions = _positions(rows, len(frame))
    features = feature_columns(model, frame)
    if output is None:
        return _cases(model, features, positions, m, effects=True)
    from tabr.tables.files import write_table

    explained = model.explain(features.iloc[positions]).to_frame()
    explained["row"] = [positions[row] for row in explained["row"]]
    write_table(explained, output)
    return Result(
        {"output": str(output), "lines": len(explained)},
        message=f"wrote {len(explained)} neighbours of {len(positions)} rows"
        f" to {output}",
    )


def _positions(text: str | None, n: int) -> list[int]:
    """Return the rows that the option names, or all n."""
    if text is None:
        return list(range(n))
    rows = read_integers("--rows", text)
    if not all(0 <= row < n for row in rows):
        raise Mistake(f"--rows must be from 0 to {n - 1}, however: {text!r}")
    return rows


def _cases(
    model: Any, frame: Any, rows: list[int], m: int, *, effects: bool = False
) -> Result:
    """Return rows with their neighbours."""
    from tabr.cli.neighbor_view import case_lines, differing_columns, make_cases

    cases = make_cases(model, frame, rows, m, effects=effects)
    records = [dataclasses.asdict(case) for case in cases]
    for record in records:
        del record["truth"]  # which these commands do not read
    columns = differing_columns(model, cases)
    lines = case_lines(cases, columns, terminal_width(), distances=True)
    return Result({"rows": records}, "\n".join(lines).lstrip("\n"))

"""The commands `add` and `remove`: the candidates of a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tabr.cli.files import (
    check_output,
    file_type,
    model_argument,
    output_type,
    read_inputs,
    read_integers,
    table_argument,
    target_of,
    target_option,
)
from tabr.cli.messages import Mistake, Result, common

output_option = click.option(
    "-o",
    "--output",
    metavar="MODEL",
    type=output_type,
    help="Another file to write.  [default: MODEL itself, whole or not at all]",
)


@click.command()
@model_argument
@table_argument
@target_option
@output_option
@common
def add(
    model_file: Path,
    table: Path,
    target: str | None,
    output: Path | None,
) -> Result:
    """Add the labelled rows of TABLE to the candidates of MODEL.

    Nothing is trained again; predictions use the new rows from now on.
    """
    check_output(output, table)
    model, frame = read_inputs(model_file, table)
    target = target_of(model, frame, target, table)
    ids = model.add_candidates(frame.drop(columns=target), frame[target])
    destination = output or model_file
    model.save(destination)
    n = len(model.candidates_)
    ends = {"first_id": ids[0], "last_id": ids[-1]}
    return Result(
        {"model": str(destination), "added": len(ids), "candidates": n, **ends},
        message=f"added {len(ids)} rows with ids {ids[0]} to {ids[-1]} to {destination}"
        f", which now has {n} candidates",
    )


@click.command()
@model_argument
@click.option("--ids", metavar="3,17,18", help="Ids of candidates.")
@click.option(
    "--from", "table", metavar="TABLE", type=file_type, help="A table with a column id."
)
@output_option
@common
def remove(
    model_file: Path,
    ids: str | None,
    table: Path | None,
    output: Path | None,
) -> Result:
    """Remove candidates from MODEL for good.

    Nothing is trained again; their ids are not given to other rows.
    """
    if (ids is None) == (table is None):
        raise Mistake("give either --ids or --from, to say which candidates go")
    check_output(output, table)
    from tabr.errors import UnknownIdError
    from tabr.estimators import load_model

    ids_to_remove = _ids(ids, table)
    model = load_model(model_file)
    before = len(model.candidates_)
    try:
        model.remove_candidates(ids_to_remove)
    except UnknownIdError as error:
        raise Mistake(f"{error}; nothing was removed") from error
    destination = output or model_file
    model.save(destination)
    n = len(model.candidates_)
    return Result(
        {"model": str(destination), "removed": before - n, "candidates": n},
        message=f"removed {before - n} rows from {destination}, which now has {n}"
        " candidates",
    )


def _ids(text: str | None, table: Path | None) -> Any:
    """Return the ids of either option."""
    if text is not None:
        return read_integers("--ids", text)
    assert table is not None
    from tabr.tables.files import check_column, read_table

    frame = read_table(table)
    check_column(frame, "id", table)
    return frame["id"].to_numpy()

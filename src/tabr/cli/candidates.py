"""The commands `add` and `remove`: the candidates of a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tabr.cli import options
from tabr.cli.messages import Mistake, Result, common

output_option = options.output(
    metavar="MODEL",
    help="Another file to write.  [default: MODEL itself, whole or not at all]",
)


@click.command()
@options.model
@options.table
@options.target
@output_option
@common
def add(
    model_file: Path, table: Path, target: str | None, output: Path | None
) -> Result:
    """Add the labelled rows of TABLE to the candidates of MODEL.

    Nothing is trained again; predictions use the new rows from now on.
    """
    options.check_output(output, table)
    model, rows, labels = options.read_labelled(model_file, table, target)
    ids = model.add_candidates(rows, labels)
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
@options.model
@options.integers("--ids", metavar="3,17,18", help="Ids of candidates.")
@click.option(
    "--from",
    "table",
    metavar="TABLE",
    type=options.input_type,
    help="A table with a column id.",
)
@output_option
@common
def remove(
    model_file: Path, ids: Any, table: Path | None, output: Path | None
) -> Result:
    """Remove candidates from MODEL for good.

    Nothing is trained again; their ids are not given to other rows.
    """
    if (ids is None) == (table is None):
        raise Mistake("give either --ids or --from, to say which candidates go")
    options.check_output(output, table)
    from tabr.errors import UnknownIdError
    from tabr.estimators import load_model

    if table is not None:
        ids = options.read_columns(table, "id")["id"].to_numpy()
    model = load_model(model_file)
    before = len(model.candidates_)
    try:
        model.remove_candidates(ids)
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

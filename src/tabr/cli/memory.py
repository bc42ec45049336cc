"""The commands `add` and `remove`: the memory of a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tabr.cli.files import (
    check_column,
    check_output,
    file_type,
    load_model_file,
    model_argument,
    output_type,
    read_table,
    table_argument,
    target_of,
)
from tabr.cli.messages import Mistake, common, say, show_json

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
@click.option("--target", metavar="COL", help="The column with the labels.")
@output_option
@common
def add(
    model_file: Path,
    table: Path,
    target: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Add the labelled rows of TABLE to the candidates of MODEL; no retraining."""
    if output is not None:
        check_output(output, [table])
    frame, model = read_table(table), load_model_file(model_file)
    target = target_of(model, frame, target, table)
    ids = model.add_candidates(frame.drop(columns=target), frame[target])
    place = output or model_file
    model.save(place)
    n = len(model.candidates_)
    if as_json:
        ends = {"first_id": ids[0], "last_id": ids[-1]}
        show_json({"model": str(place), "added": len(ids), "candidates": n, **ends})
    else:
        say(
            f"added {len(ids)} rows with ids {ids[0]} to {ids[-1]} to {place}, which"
            f" now has {n} candidates"
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
    as_json: bool,
) -> None:
    """Remove candidates from MODEL for good; no retraining."""
    if (ids is None) == (table is None):
        raise Mistake("give either --ids or --from, to say which candidates go")
    if output is not None:
        check_output(output, [table])
    chosen = _ids(ids, table)
    model = load_model_file(model_file)
    before = len(model.candidates_)
    try:
        model.remove_candidates(chosen)
    except KeyError as error:
        raise Mistake(f"{error.args[0]}; nothing was removed") from error
    place = output or model_file
    model.save(place)
    n = len(model.candidates_)
    if as_json:
        show_json({"model": str(place), "removed": before - n, "candidates": n})
    else:
        say(f"removed {before - n} rows from {place}, which now has {n} candidates")


def _ids(text: str | None, table: Path | None) -> Any:
    if table is not None:
        frame = read_table(table)
        check_column(frame, "id", table)
        return frame["id"].to_numpy()
    assert text is not None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise Mistake(f"--ids must be like 3,17,18, however: {text!r}") from None

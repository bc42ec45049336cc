"""The commands `add` and `remove`: the candidates of a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tabr.cli import options
from tabr.cli.messages import Mistake, Result, common, watch

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
    watch(output or model_file)
    model, rows, labels = options.read_labelled(model_file, table, target)
    ids = model.add_candidates(rows, labels)
    first, last, n = ids[0], ids[-1], len(ids)
    counts = {"added": n, "first_id": first, "last_id": last}
    text = f"added {n} rows with ids {first} to {last} to"
    return _save(model, output or model_file, counts, text)


@click.command()
@options.model
@options.ids
@options.ids_table
@output_option
@common
def remove(
    model_file: Path, ids: Any, table: Path | None, output: Path | None
) -> Result:
    """Remove candidates from MODEL for good.

    Nothing is trained again; their ids are not given to other rows.
    """
    ids = options.read_ids(ids, table)
    options.check_output(output, table)
    watch(output or model_file)
    from tabr.errors import UnknownIdError
    from tabr.estimators import load_model

    model = load_model(model_file)
    before = len(model.candidates_)
    try:
        model.remove_candidates(ids)
    except UnknownIdError as error:
        raise Mistake(f"{error}; nothing was removed") from error
    n = before - len(model.candidates_)
    text = f"removed {n} rows from"
    return _save(model, output or model_file, {"removed": n}, text)


def _save(model: Any, path: Path, counts: dict[str, int], text: str) -> Result:
    """Write a model whose candidates changed; `text` says how, before the path."""
    model.save(path)
    n = len(model.candidates_)
    return Result(
        {"model": str(path), **counts, "candidates": n},
        message=f"{text} {path}, which now has {n} candidates",
    )

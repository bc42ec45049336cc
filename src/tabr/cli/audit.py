"""The command `audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tabr.cli.files import (
    check_column,
    check_output,
    file_type,
    load_model_file,
    output_type,
    read_table,
    suffix_of,
    table_argument,
    write_table,
)
from tabr.cli.messages import Mistake, common, say, show, show_json

TRAINING = ("train", "training")  # values of a split column; all others are tested


@click.command()
@table_argument
@click.option("--target", metavar="COL", help="The column with the labels.")
@click.option("--test", type=file_type, help="The other part, as a table.")
@click.option(
    "--split",
    metavar="COL",
    help="The column that says which rows are for training: 'train' or true.",
)
@click.option("--model", type=file_type, help="A fitted model to ask for neighbours.")
@click.option(
    "--drop", metavar="COL", multiple=True, help="A column to ignore; repeatable."
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="For samples."
)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    type=output_type,
    help="A table of all rows that are named.",
)
@common
def audit(
    table: Path,
    target: str | None,
    test: Path | None,
    split: str | None,
    model: Path | None,
    drop: tuple[str, ...],
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Find leaks, copies, contradictions and drift in TABLE.

    Without --test and --split a random fifth of the rows is held out.
    """
    if output is not None:
        check_output(output, [table, test, model])
        suffix_of(output)
    if target is None:
        raise Mistake("--target must name the column with the labels")
    if test is not None and split is not None:
        raise Mistake("--test and --split both name the test part; leave one out")
    frame = read_table(table)
    for name in [target, *([split] if split else []), *drop]:
        check_column(frame, name, table)
    left_out = [target, *([split] if split else []), *drop]
    parts: dict[str, Any] = {}
    if test is not None:
        other = read_table(test)
        check_column(other, target, test)
        parts["X_test"] = other.drop(columns=left_out, errors="ignore")
        parts["y_test"] = other[target]
    if split is not None:
        parts["test_rows"] = _test_rows(frame[split], split)
    if model is not None:
        parts["model"] = load_model_file(model)
    from tabr.audit import audit as run

    rows = frame.drop(columns=left_out)
    if rows.shape[1] == 0:
        raise Mistake(f"{table} must have a column besides {', '.join(left_out)}")
    report = run(rows, frame[target], random_state=seed, **parts)
    if output is not None:
        write_table(report.to_frame(), output)
    if as_json:
        show_json(report.to_dict())
        return
    show(str(report))
    if output is not None:
        say(f"wrote the rows of {len(report.findings)} findings to {output}")


def _test_rows(column: Any, name: str) -> Any:
    """Return a mask of the rows that are not for training."""
    from pandas.api.types import is_bool_dtype

    if is_bool_dtype(column.dtype):
        mask = ~column.to_numpy(bool)
    else:
        mask = ~column.astype(str).str.lower().isin(TRAINING).to_numpy()
    if mask.all() or not mask.any():
        found = ", ".join(repr(str(v)) for v in column.unique()[:5])
        raise Mistake(
            f"--split must name a column with 'train' and another value, however"
            f" {name!r} holds {found}"
        )
    return mask

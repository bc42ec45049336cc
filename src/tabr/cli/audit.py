"""The command `audit`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tabr.cli import options
from tabr.cli.messages import Mistake, Result, common

TRAINING = ("train", "training")  # values of a split column; all others are tested


@click.command()
@options.table
@options.target
@click.option("--test", type=options.input_type, help="The other part, as a table.")
@options.column(
    "--split", help="The column that says which rows are for training: 'train' or true."
)
@click.option(
    "--model", type=options.input_type, help="A fitted model to ask for neighbours."
)
@options.ignore
@options.seed
@options.output(metavar="OUT", help="A table of all rows that are named.")
@common
def audit(
    table: Path,
    target: str | None,
    test: Path | None,
    split: str | None,
    model: Path | None,
    ignore: tuple[str, ...],
    random_state: int,
    output: Path | None,
) -> Result:
    """Find leaks, copies, contradictions and drift in TABLE.

    Without --test and --split a random fifth of the rows is held out.
    """
    options.check_table_output(output, table, test, model)
    if target is None:
        raise Mistake("--target must name the column with the labels")
    if test is not None and split is not None:
        raise Mistake("--test and --split both name the test part; leave one out")
    from tabr.audit import audit as run
    from tabr.estimators import load_model
    from tabr.tables.csv import types_of
    from tabr.tables.files import write_table

    left_out = [target, *([split] if split else []), *ignore]
    fitted = None if model is None else load_model(model)
    types = None
    if fitted is not None:
        types = fitted.column_types()
        if target == fitted.target_name_:  # though it may be of another task
            types[target] = replace(fitted.target_type(), needed=False)
    frame = options.read_columns(table, *left_out, types=types)
    rows = frame.drop(columns=left_out)
    if rows.shape[1] == 0:
        raise Mistake(f"{table} must have a column besides {', '.join(left_out)}")
    parts: dict[str, Any] = {}
    if test is not None:
        other = options.read_columns(test, target, types=types_of(frame))
        parts["X_test"] = other.drop(columns=left_out, errors="ignore")
        parts["y_test"] = other[target]
    if split is not None:
        parts["test_rows"] = _test_rows(frame[split], split)
    report = run(rows, frame[target], model=fitted, random_state=random_state, **parts)
    message = ""
    if output is not None:
        write_table(report.to_frame(), output)
        message = f"wrote the rows of {len(report.findings)} findings to {output}"
    return Result(report.to_dict(), str(report), message)


def _test_rows(column: Any, name: str) -> Any:
    """Return a mask of the rows that are not for training."""
    from pandas.api.types import is_bool_dtype

    if is_bool_dtype(column.dtype):
        mask = ~column.to_numpy(bool)
    else:
        mask = ~column.astype(str).str.lower().isin(TRAINING).to_numpy()
    if mask.all() or not mask.any():
        values = ", ".join(repr(str(value)) for value in column.unique()[:5])
        raise Mistake(
            f"--split must name a column with 'train' and another value, however"
            f" {name!r} holds {values}"
        )
    return mask

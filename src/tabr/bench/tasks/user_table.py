"""A user's table as a task."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, get_args

import pandas as pd

from tabr.bench.tasks.task import Task, UserTable
from tabr.config import batch_size_for
from tabr.errors import DataError
from tabr.tables.cells import ColumnKind
from tabr.tables.files import check_column, read_table, suffix_of
from tabr.tables.targets import Outcome, choose_task

FEWEST_ROWS = 50  # of a table that is split in three
_ROWS_A_SECOND = 500  # for the order of work; the pace is measured later


def tasks_of_table(
    table: UserTable, *, kind: Outcome | None = None, n_splits: int = 1
) -> list[Task]:
    """Return the tasks of a table: one for each random split.

    Their name ends in a short checksum of the file and of the options, so that results
    of another version of the table are never taken for results of this one.

    Args:
        table: The file, its target, and what is known of its columns.
        kind: What is predicted; None follows from the target's values.
        n_splits: Random splits in 64, 16 and 20 percent of the rows.
    """
    labels = _read_labels(table)
    kind = choose_task(labels)[0] if kind is None else kind
    task = Task(
        name=_name(table, kind),
        benchmark="own",
        kind=kind,
        published="",
        batch_size=batch_size_for(round(0.64 * len(labels))),
        cost=len(labels) / _ROWS_A_SECOND,
        user_table=replace(table, path=table.path.resolve()),
    )
    return [replace(task, split=split) for split in range(n_splits)]


def _read_labels(table: UserTable) -> pd.Series[Any]:
    """Return the labels of a table; one that cannot be a task is refused."""
    path, target, kinds = table.path, table.target, dict(table.column_kinds)
    frame = read_table(path)
    for name in (target, *table.ignored, *kinds):
        check_column(frame, name, path)
    features = frame.columns.drop([target, *table.ignored])
    if not len(features):
        raise DataError(
            f"a table must have a feature, however all columns of {path} are ignored"
            " or the target: ignore fewer of them"
        )
    for name, kind in kinds.items():
        if kind not in get_args(ColumnKind):
            raise DataError(
                f"a kind must be one of {', '.join(get_args(ColumnKind))}, however"
                f" {name!r} shall be {kind!r}"
            )
        if name not in features:
            raise DataError(
                f"a kind is that of a feature, however {name!r} is ignored or the"
                " target: leave its kind out"
            )
    labels = frame[target].dropna()
    if len(labels) < FEWEST_ROWS:
        raise DataError(
            f"a table must have at least {FEWEST_ROWS} rows with a label to be split"
            f" in three, however {path} has {len(labels)}: add rows"
        )
    if labels.nunique() < 2:
        raise DataError(
            f"labels must differ, however all rows of {path} have"
            f" {target} = {labels.iloc[0]}: choose another --target"
        )
    return labels


def _name(table: UserTable, kind: Outcome) -> str:
    """Return the stem of the file with a checksum of it and of what is asked of it."""
    kinds = [f"{column}={kind}" for column, kind in sorted(table.column_kinds)]
    asked = (table.target, kind, *sorted(table.ignored), *kinds)
    checksum = hashlib.sha256(table.path.read_bytes())
    checksum.update("\0".join(asked).encode())
    stem = table.path.name.removesuffix(suffix_of(table.path)) or "table"
    return f"{stem}-{checksum.hexdigest()[:8]}"

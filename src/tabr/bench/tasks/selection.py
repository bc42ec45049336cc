"""The tasks of a command: those of a user's table, or some of the catalogue."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import Task, UserTable, check_files, data_folder, is_present
from tabr.config import PRESETS
from tabr.errors import DataError
from tabr.tables.cells import ColumnKind
from tabr.tables.files import check_column, suffix_of
from tabr.tables.targets import Outcome, choose_task

FEWEST_ROWS = 50  # of a table that is split in three
_ROWS_A_SECOND = 500  # for the order of work; the pace is measured later


@dataclass(frozen=True)
class TaskSelection:
    """The tasks of a user's table if there is one, else of the catalogue.

    Attributes:
        table: A user's table.
        kind: What is predicted in it; None follows from the target's values.
        n_splits: Random splits of it.
        labels: Names of tasks in the catalogue; None takes a whole benchmark.
        benchmark: "default", "why" or "all".
        data: The folder of the catalogue's tables; None takes TABR_DATA.
    """

    table: UserTable | None = None
    kind: Outcome | None = None
    n_splits: int = 1
    labels: Sequence[str] | None = None
    benchmark: str = "default"
    data: Path | None = None

    @property
    def folder(self) -> Path | None:
        """The folder of the catalogue's tables, if one is needed."""
        if self.table is not None:
            return None
        otherwise = ", or name a table of yours and its --target"
        return data_folder(self.data, otherwise=otherwise)

    def tasks(self) -> list[Task]:
        """Return all tasks, whether or not their tables are at hand."""
        if self.table is None:
            return select(self.labels, self.benchmark)
        return tasks_of_table(self.table, kind=self.kind, n_splits=self.n_splits)

    def available_tasks(self, log: Callable[[str], None] = print) -> list[Task]:
        """Return the tasks; log those of a benchmark that the folder lacks.

        A task that was named is not left out: `check_files` refuses it.
        """
        tasks, folder = self.tasks(), self.folder
        if folder is None or self.labels is not None:
            return tasks
        complete = [task for task in tasks if is_present(task, folder)]
        absent = [task for task in tasks if task not in complete]
        if not complete:
            check_files(absent, folder)
        if absent:
            labels = dict.fromkeys(task.label for task in absent)
            log(f"left out, as their tables are not there: {', '.join(labels)}")
        return complete


# --- a user's table -----------------------------------------------------------------


def tasks_of_table(
    table: UserTable, *, kind: Outcome | None = None, n_splits: int = 1
) -> list[Task]:
    """Return the tasks of a table: one for each random split.

    Their name ends in a short checksum of the file and of the options, so that results
    of another version of the table are never taken for results of this one.
    A split has 64, 16 and 20 percent of the rows.
    """
    labels = _read_labels(table)
    kind = choose_task(labels)[0] if kind is None else kind
    task = Task(
        name=_name(table, kind),
        benchmark="own",
        kind=kind,
        published="",
        batch_size=PRESETS["paper"].batch_size(round(0.64 * len(labels))),
        cost=len(labels) / _ROWS_A_SECOND,
        user_table=replace(table, path=table.path.resolve()),
    )
    return [replace(task, split=split) for split in range(n_splits)]


def _read_labels(table: UserTable) -> pd.Series[Any]:
    """Return the labels of a table; one that cannot be a task is refused."""
    path, target, kinds = table.path, table.target, dict(table.column_kinds)
    frame = table.read()
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

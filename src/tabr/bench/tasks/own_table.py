"""A user's own table as a task."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tabr.bench.tasks.task import OwnTable, Task
from tabr.config import batch_size_for
from tabr.errors import DataError
from tabr.tables.files import check_column, read_table, suffix_of
from tabr.tables.targets import Outcome, choose_task

FEWEST_ROWS = 50  # of a table that is split in three
_ROWS_A_SECOND = 500  # for the order of work; the pace is measured later


def own_tasks(
    path: Path,
    target: str,
    *,
    kind: Outcome | None = None,
    ignored: Sequence[str] = (),
    n_splits: int = 1,
) -> list[Task]:
    """Return the task of a table, once for each of several splits.

    Its name ends in a short checksum of the file and of what is asked of it, so that
    results of another version of the table are never taken for results of this one.

    Args:
        path: A CSV, Parquet or Feather file.
        target: The column to predict.
        kind: What is predicted; None follows from the target's values.
        ignored: Columns that do not count.
        n_splits: Random splits in 64, 16 and 20 percent of the rows.
    """
    frame = read_table(path)
    for name in (target, *ignored):
        check_column(frame, name, path)
    labels = frame[target].dropna()
    if len(labels) < FEWEST_ROWS:
        raise DataError(
            f"a table must have at least {FEWEST_ROWS} rows with a label to be split"
            f" in three, however {path} has {len(labels)}: add rows"
        )
    kind = choose_task(labels)[0] if kind is None else kind
    if labels.nunique() < 2:
        raise DataError(
            f"labels must differ, however all rows of {path} have"
            f" {target} = {labels.iloc[0]}: choose another --target"
        )
    asked = (target, kind, *sorted(ignored))
    checksum = hashlib.sha256(path.read_bytes())
    checksum.update("\0".join(asked).encode())
    stem = path.name.removesuffix(suffix_of(path)) or "table"
    name = f"{stem}-{checksum.hexdigest()[:8]}"
    return [
        Task(
            name=name,
            benchmark="own",
            kind=kind,
            published="",
            batch_size=batch_size_for(round(0.64 * len(labels))),
            cost=len(labels) / _ROWS_A_SECOND,
            split=split,
            comparable=False,
            own=OwnTable(str(path.resolve()), target, tuple(ignored)),
        )
        for split in range(n_splits)
    ]

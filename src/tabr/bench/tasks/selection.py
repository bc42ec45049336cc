"""The tasks of a command: those of a user's table, or some of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import Task, UserTable, check_files, data_folder, present
from tabr.bench.tasks.user_table import tasks_of_table
from tabr.tables.targets import Outcome


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
        complete, absent = present(tasks, folder)
        if not complete:
            check_files(absent, folder)
        if absent:
            labels = dict.fromkeys(task.label for task in absent)
            log(f"left out, as their tables are not there: {', '.join(labels)}")
        return complete

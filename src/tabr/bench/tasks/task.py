"""A task of the benchmark: which table, which split, how it is read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tabr.bench.tasks.splits import random_split
from tabr.errors import DataError
from tabr.metrics import Measure, find_measure
from tabr.tables.cells import ColumnKind
from tabr.tables.csv import LEVELLED
from tabr.tables.files import read_table

FOLDER_VARIABLE = "TABR_DATA"


@dataclass(frozen=True)
class Origin:
    """Where a table comes from, and by what it is known to be the paper's.

    Attributes:
        n_rows: Its rows, unused ones too.
        n_features: Its columns, the label not counted.
        openml: Its number on OpenML, if it is there.
        place: Where else it can be had.
        label_check: Of the paper's test rows in split 0 the standard deviation of the
            labels or, for two classes, how many rows the rarer one has.
    """

    n_rows: int | None = None
    n_features: int | None = None
    openml: int | None = None
    place: str = ""
    label_check: float | None = None


@dataclass(frozen=True)
class UserTable:
    """A user's table.

    Attributes:
        path: A CSV, Parquet or Feather file.
        target: The column to predict.
        ignored: Columns that are no features.
        column_kinds: Names and kinds of columns that would be guessed wrongly.
    """

    path: Path
    target: str
    ignored: tuple[str, ...] = ()
    column_kinds: tuple[tuple[str, ColumnKind], ...] = ()

    def read(self) -> pd.DataFrame:
        """Return the table; numbers that are categories keep leading zeros."""
        kept = [name for name, kind in self.column_kinds if kind in LEVELLED]
        return read_table(self.path, keeps_zeros=kept)


@dataclass(frozen=True)
class Task:
    """A table with a fixed split, and what the paper's runs chose for it.

    Attributes:
        name: Name of the table.
        benchmark: "default", "why" for the second benchmark (Grinsztajn et al.), or
            "own" for a user's table.
        kind: What is predicted.
        published: Name of the set in the published results.
        batch_size: Rows of a training step.
        cost: Published training seconds; long tasks are started first.
        split: Number of the split.
        official: Whether the split is the paper's own.
        normalization: How numbers are scaled.
        scale: Divide an RMSE by it to compare with the published figure.
        binary_text: Text columns of two levels that count as binary. All other text
            is categorical, even with two levels, as in the paper's copies.
        user_table: The file of a user's table; None for those of the paper.
        origin: Where the table comes from.
        differs: What is known to differ from the paper's table.
    """

    name: str
    benchmark: Literal["default", "why", "own"]
    kind: Literal["regression", "classification"]
    published: str
    batch_size: int
    cost: float
    split: int = 0
    official: bool = False
    normalization: Literal["quantile", "none"] = "quantile"
    scale: float = 1.0
    binary_text: tuple[str, ...] = ()
    user_table: UserTable | None = None
    origin: Origin = Origin()
    differs: str = ""

    @property
    def metric(self) -> Literal["rmse", "accuracy"]:
        """The measure of a prediction."""
        return "rmse" if self.kind == "regression" else "accuracy"

    def measure(self, scoring: str | None = None) -> Measure:
        """Return the measure of a scoring; None is the paper's."""
        name, of_classes = scoring or self.metric, self.kind == "classification"
        return find_measure(name, of_classes=of_classes, task=self.label)

    @property
    def comparable(self) -> bool:
        """Whether the table is the paper's, so that figures can be compared."""
        return self.official or self.benchmark == "default"

    @property
    def label(self) -> str:
        """The name on the command line: `adult`, `why/wine`."""
        if self.benchmark == "default":
            return self.name
        return f"{self.benchmark}/{self.name}"

    @property
    def has_split_file(self) -> bool:
        """Whether the parts are read from a file; else they are drawn by chance."""
        return self.official or self.benchmark == "why"

    @property
    def split_column(self) -> str:
        """The column of the split file."""
        return "part" if self.benchmark == "default" else f"split{self.split}"

    def column_kinds(self, frame: pd.DataFrame) -> dict[str, ColumnKind]:
        """Return the kinds of columns that would otherwise be guessed wrongly."""
        kinds: dict[str, ColumnKind] = {
            name: "categorical"
            for name in frame.columns
            if isinstance(frame[name].dtype, pd.CategoricalDtype)
            and name not in self.binary_text
        }
        if self.user_table is not None:
            kinds |= dict(self.user_table.column_kinds)
        return kinds


@dataclass(frozen=True)
class LabelledRows:
    """Rows of a table and their labels y (n,)."""

    X: pd.DataFrame
    y: NDArray[Any]


@dataclass(frozen=True)
class SplitTable:
    """The three parts of a split table."""

    train: LabelledRows
    val: LabelledRows
    test: LabelledRows


def data_folder(
    folder: str | os.PathLike[str] | None = None, *, otherwise: str = ""
) -> Path:
    """Return the folder of the tables, by default the one named in TABR_DATA.

    Without any, the message ends in `otherwise`: what else a user may do.
    """
    chosen = folder or os.environ.get(FOLDER_VARIABLE)
    if not chosen:
        raise DataError(
            "the benchmark needs a folder of tables, however none was named: pass"
            f" --data or set {FOLDER_VARIABLE}{otherwise}"
        )
    return Path(chosen)


def is_present(task: Task, folder: Path) -> bool:
    """Whether a folder has the table of a task and its split."""
    return not _lacks(task, folder)


def check_files(tasks: Iterable[Task], folder: Path | None) -> None:
    """Refuse, in one sentence, a folder that lacks tables or splits of the tasks."""
    needed = [task for task in dict.fromkeys(tasks) if task.user_table is None]
    if not needed:
        return
    folder = data_folder(folder)
    lacking = {task: names for task in needed if (names := _lacks(task, folder))}
    if lacking:
        absent = dict.fromkeys(name for names in lacking.values() for name in names)
        raise DataError(
            f"the folder {folder} must hold the tables of the tasks, however it lacks"
            f" {', '.join(absent)}: pass another --data or set {FOLDER_VARIABLE}, or"
            f" {how_to_get(lacking)}"
        )


def how_to_get(tasks: Iterable[Task]) -> str:
    """Return where tables come from, as the end of a sentence.

    >>> how_to_get([Task("a", "why", "regression", "", 1, 1, origin=Origin(openml=7))])
    'run `tabr bench fetch why/a`'
    """
    origins = {task.label: task.origin for task in tasks}
    fetched = [label for label, origin in origins.items() if origin.openml]
    ways = [f"run `tabr bench fetch {' '.join(fetched)}`"] if fetched else []
    ways += [
        f"take {label} from {origin.place}"
        for label, origin in origins.items()
        if not origin.openml
    ]
    return ", ".join(ways)


def files_of(task: Task, folder: Path) -> list[Path]:
    """Return the paths of the table and, where it has one, of its split."""
    table = folder / f"{task.label}.parquet"
    split = table.with_suffix(".split.parquet")
    return [table, split] if task.has_split_file else [table]


def _lacks(task: Task, folder: Path) -> list[str]:
    """The files, or parts of files, that a run of the task would miss in a folder."""
    table, *splits = files_of(task, folder)
    absent = [path for path in (table, *splits) if not path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in absent]
    if splits and not absent:
        column = task.split_column
        is_there = column in pq.read_schema(splits[0]).names
        # A folder may have the validation and test rows alone.
        if not is_there or not (_parts(splits[0], column) == "train").any():
            names.append(f"training rows of {column} in {splits[0].name}")
    return names


def _parts(path: Path, column: str) -> NDArray[Any]:
    return pd.read_parquet(path, columns=[column])[column].to_numpy(object)


def load(task: Task, folder: str | os.PathLike[str] | None = None) -> SplitTable:
    """Read the table of a task, in a folder or in that of TABR_DATA, and split it."""
    table, parts = task.user_table, None
    if table is None:
        folder = data_folder(folder)
        check_files([task], folder)
        path, *splits = files_of(task, folder)
        frame, target = pd.read_parquet(path), "target"
        if splits:
            parts = _parts(splits[0], task.split_column)
            if len(parts) != len(frame):
                raise DataError(
                    "a split must have the part of each row, however"
                    f" {splits[0].name} has {len(parts)} rows and the table"
                    f" {len(frame)}: take files of one version"
                )
    else:
        target = table.target
        frame = table.read().drop(columns=list(table.ignored))
        frame = frame[frame[target].notna()]  # the others cannot be scored
    y = frame.pop(target).to_numpy()
    if parts is None:
        is_class = task.kind == "classification"
        parts = random_split(y, stratified=is_class, seed=task.split)
    masks = [parts == name for name in ("train", "val", "test")]
    return SplitTable(
        *(LabelledRows(frame[mask].reset_index(drop=True), y[mask]) for mask in masks)
    )

"""A task of the benchmark: which table, which split, how it is read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tabr.errors import DataError
from tabr.tables.cells import ColumnKind
from tabr.tables.files import read_table
from tabr.tables.samples import places_in_proportion

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
class OwnTable:
    """A user's table: its file, the column to predict, columns that do not count."""

    path: str
    target: str
    ignored: tuple[str, ...] = ()


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
        comparable: Whether the table is the paper's, so that figures can be compared.
        own: Where a user's table is.
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
    comparable: bool = True
    own: OwnTable | None = None
    origin: Origin = Origin()
    differs: str = ""

    @property
    def metric(self) -> Literal["rmse", "accuracy"]:
        """The measure of a prediction."""
        return "rmse" if self.kind == "regression" else "accuracy"

    @property
    def label(self) -> str:
        """The name on the command line: `adult`, `why/wine`."""
        own_name = self.benchmark == "default"
        return self.name if own_name else f"{self.benchmark}/{self.name}"

    @property
    def has_split_file(self) -> bool:
        """Whether the parts are read from a file; else `own_split` makes them."""
        return self.official or self.benchmark == "why"

    @property
    def split_column(self) -> str:
        """The column of the split file."""
        return "part" if self.benchmark == "default" else f"split{self.split}"

    def column_kinds(self, frame: pd.DataFrame) -> dict[str, ColumnKind]:
        """Return the kinds of columns that would otherwise be guessed wrongly."""
        return {
            name: "categorical"
            for name in frame.columns
            if isinstance(frame[name].dtype, pd.CategoricalDtype)
            and name not in self.binary_text
        }


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

    Who can do without one says what to do `otherwise`.
    """
    chosen = folder or os.environ.get(FOLDER_VARIABLE)
    if not chosen:
        raise DataError(
            "the benchmark needs a folder of tables, however none was named: pass"
            f" --data or set {FOLDER_VARIABLE}{otherwise}"
        )
    return Path(chosen)


def present(tasks: Iterable[Task], folder: Path) -> tuple[list[Task], list[Task]]:
    """Return the tasks that a folder has the tables of, and those that it lacks."""
    there: list[Task] = []
    absent: list[Task] = []
    for task in tasks:
        (absent if _lacks(task, folder) else there).append(task)
    return there, absent


def check_files(tasks: Iterable[Task], folder: Path | None) -> None:
    """Refuse, in one sentence, a folder that lacks tables or splits of the tasks."""
    needed = [task for task in dict.fromkeys(tasks) if task.own is None]
    if not needed:
        return
    folder = data_folder(folder)
    lacking = {task: what for task in needed if (what := _lacks(task, folder))}
    if lacking:
        absent = dict.fromkeys(name for what in lacking.values() for name in what)
        raise DataError(
            f"the folder {folder} must hold the tables of the tasks, however it lacks"
            f" {', '.join(absent)}: pass another --data or set {FOLDER_VARIABLE}, or"
            f" {how_to_get(lacking)}"
        )


def how_to_get(tasks: Iterable[Task]) -> str:
    """Tell where tables come from.

    >>> how_to_get([Task("a", "why", "regression", "", 1, 1, origin=Origin(openml=7))])
    'run `python -m tabr.bench fetch why/a`'
    """
    origins = {task.label: task.origin for task in tasks}
    fetched = [label for label, origin in origins.items() if origin.openml]
    ways = [f"run `python -m tabr.bench fetch {' '.join(fetched)}`"] if fetched else []
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
    """What a run of the task would miss in a folder."""
    table, *splits = files_of(task, folder)
    absent = [path for path in (table, *splits) if not path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in absent]
    if splits and not absent and not _has_training_rows(splits[0], task.split_column):
        # A folder may have the validation and test rows alone.
        names.append(f"training rows of {task.split_column} in {splits[0].name}")
    return names


def _has_training_rows(path: Path, column: str) -> bool:
    known = column in pq.read_schema(path).names
    return known and bool((_parts(path, column) == "train").any())


def _parts(path: Path, column: str) -> NDArray[Any]:
    return pd.read_parquet(path, columns=[column])[column].to_numpy(object)


def load(task: Task, folder: str | os.PathLike[str] | None = None) -> SplitTable:
    """Read the table of a task and split it.

    Args:
        task: Which table and split.
        folder: Where the tables are; None asks the environment variable TABR_DATA.
    """
    if task.own is not None:
        return _load_own(task, task.own)
    path = data_folder(folder)
    check_files([task], path)
    table, *split = files_of(task, path)
    frame = pd.read_parquet(table)
    y = frame.pop("target").to_numpy()
    if split:
        parts = _parts(split[0], task.split_column)
    else:
        parts = own_split(y, stratified=task.kind == "classification", seed=task.split)
    if len(parts) != len(frame):
        raise DataError(
            f"a split must tell the part of each row, however {split[0].name} has"
            f" {len(parts)} rows and the table {len(frame)}: take files of one version"
        )

    return _cut(frame, y, parts)


def _load_own(task: Task, own: OwnTable) -> SplitTable:
    """Read a user's table; rows without a label cannot be scored and are left out."""
    frame = read_table(Path(own.path)).drop(columns=list(own.ignored))
    frame = frame[frame[own.target].notna()]
    y = frame.pop(own.target).to_numpy()
    is_class = task.kind == "classification"
    return _cut(frame, y, own_split(y, stratified=is_class, seed=task.split))


def _cut(frame: pd.DataFrame, y: NDArray[Any], parts: NDArray[Any]) -> SplitTable:
    """Return the rows of each part."""

    def part(name: str) -> LabelledRows:
        mask = parts == name
        return LabelledRows(frame[mask].reset_index(drop=True), y[mask])

    return SplitTable(part("train"), part("val"), part("test"))


def own_split(y: NDArray[Any], *, stratified: bool, seed: int = 0) -> NDArray[Any]:
    """Return the part of each row: 64 % train, 16 % val, 20 % test, by chance.

    >>> own_split(np.repeat([0, 1], [20, 5]), stratified=True).tolist().count("val")
    4
    """
    n = len(y)
    order = np.random.RandomState(seed).permutation(n)
    if stratified:
        order = order[np.argsort(places_in_proportion(y[order]), kind="stable")]
    n_test, n_val = round(0.2 * n), round(0.16 * n)
    parts = np.full(n, "train", dtype=object)
    parts[order[:n_test]] = "test"
    parts[order[n_test : n_test + n_val]] = "val"
    return parts

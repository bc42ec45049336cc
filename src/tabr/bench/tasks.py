"""The benchmark's tasks: which table, which split, how it was run in the paper."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.files import read_table
from tabr.frames import DataError, Kind
from tabr.samples import places_in_proportion

FOLDER_VARIABLE = "TABR_DATA"
BENCHMARKS = ("default", "why")


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

    @property
    def metric(self) -> Literal["rmse", "accuracy"]:
        """The measure of a prediction."""
        return "rmse" if self.kind == "regression" else "accuracy"

    @property
    def label(self) -> str:
        """The name on the command line: `adult`, `why/wine`."""
        own_name = self.benchmark == "default"
        return self.name if own_name else f"{self.benchmark}/{self.name}"

    def column_kinds(self, frame: pd.DataFrame) -> dict[str, Kind]:
        """Return the kinds of columns that would otherwise be guessed wrongly."""
        return {
            name: "categorical"
            for name in frame.columns
            if isinstance(frame[name].dtype, pd.CategoricalDtype)
            and name not in self.binary_text
        }


@dataclass(frozen=True)
class Part:
    """Rows of a table and their labels y (n,)."""

    X: pd.DataFrame
    y: NDArray[Any]


@dataclass(frozen=True)
class Parts:
    """The three parts of a split table."""

    train: Part
    val: Part
    test: Part


def _default(
    name: str,
    kind: Literal["regression", "classification"],
    batch_size: int,
    cost: float,
    **more: Any,
) -> Task:
    return Task(name, "default", kind, name, batch_size, cost, **more)


# Churn has one numeric column less than the paper's copy, which does not name it.
DEFAULT = (
    _default("california", "regression", 256, 36, official=True),
    _default("house", "regression", 256, 42, official=True),
    _default("adult", "classification", 256, 46, official=True, binary_text=("sex",)),
    _default("churn", "classification", 256, 8, binary_text=("Gender",)),
    _default("diamond", "regression", 512, 84, scale=3989.40),
    _default("otto", "classification", 512, 58, normalization="none"),
    _default("black-friday", "regression", 512, 303, scale=5082.27),
    _default("covtype", "classification", 1024, 2353),
)

# Name, group in the published names, splits, batch size, published seconds.
_WHY: tuple[tuple[str, str, int, int, float], ...] = (
    ("bank-marketing", "classif-num-medium", 3, 256, 26),
    ("kdd_ipums_la_97-small", "classif-num-medium", 3, 64, 19),
    ("wine", "classif-num-medium", 5, 32, 16),
    ("jannis-part", "classif-num-large", 1, 256, 66),
    ("compass", "classif-cat-medium", 2, 256, 32),
    ("electricity", "classif-cat-medium", 1, 256, 168),
    ("rl", "classif-cat-medium", 3, 64, 34),
    ("covertype", "classif-cat-large", 1, 256, 176),
    ("Ailerons", "regression-num-medium", 3, 256, 37),
    ("california", "regression-num-medium", 1, 256, 57),
    ("elevators", "regression-num-medium", 2, 256, 16),
    ("fifa", "regression-num-medium", 2, 256, 42),
    ("house_16H", "regression-num-medium", 1, 256, 24),
    ("houses", "regression-num-medium", 1, 256, 67),
    ("isolet-part", "regression-num-medium", 3, 128, 17),
    ("medical_charges", "regression-num-medium", 1, 256, 54),
    ("wine_quality", "regression-num-medium", 3, 128, 18),
    ("analcatdata_supreme", "regression-cat-medium", 5, 64, 21),
    ("Bike_Sharing_Demand", "regression-cat-medium", 2, 256, 36),
    ("Mercedes_Benz_Greener_Manufacturing", "regression-cat-medium", 5, 64, 11),
    ("OnlineNewsPopularity", "regression-cat-medium", 1, 256, 12),
    ("black_friday", "regression-cat-large", 1, 256, 167),
    ("diamonds", "regression-cat-large", 1, 256, 170),
)
_WITHOUT_NUMBERS = {"Mercedes_Benz_Greener_Manufacturing"}
# Other rows, another split or fewer columns than in the paper.
_NOT_COMPARABLE = {"isolet-part", "jannis-part", "black_friday", "OnlineNewsPopularity"}

WHY = tuple(
    Task(
        name=name,
        benchmark="why",
        kind="classification" if group.startswith("classif") else "regression",
        published=f"why/{group}-{split}-{name.removesuffix('-part')}",
        batch_size=batch_size,
        cost=cost,
        split=split,
        official=name not in _NOT_COMPARABLE,
        normalization="none" if name in _WITHOUT_NUMBERS else "quantile",
        comparable=name not in _NOT_COMPARABLE,
    )
    for name, group, n_splits, batch_size, cost in _WHY
    for split in range(n_splits)
)

TASKS = DEFAULT + WHY


def select(
    labels: Sequence[str] | None = None, benchmark: str | None = None
) -> list[Task]:
    """Return the tasks with these labels, all splits, or those of a benchmark.

    A benchmark, which may be "all", leaves out the tables that cannot be compared.

    >>> [(task.name, task.split) for task in select(["why/rl"])]
    [('rl', 0), ('rl', 1), ('rl', 2)]
    """
    if labels is None:
        wanted = BENCHMARKS if benchmark in (None, "all") else (benchmark,)
        return [t for t in TASKS if t.benchmark in wanted and t.comparable]
    known = list(dict.fromkeys(task.label for task in TASKS))
    unknown = [label for label in labels if label not in known]
    if unknown:
        raise DataError(
            f"a task must be one of {', '.join(known)}; however, these came:"
            f" {', '.join(unknown)}"
        )
    return [task for task in TASKS if task.label in labels]


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of the tables, by default the one named in TABR_DATA."""
    chosen = folder or os.environ.get(FOLDER_VARIABLE)
    if not chosen:
        raise DataError(
            "the benchmark needs a folder of tables, however none was named: pass"
            f" --data or set {FOLDER_VARIABLE}"
        )
    return Path(chosen)


def check_files(tasks: Iterable[Task], folder: Path | None) -> None:
    """Refuse, in one sentence, a folder that lacks tables or splits of the tasks."""
    ours = [task for task in tasks if task.own is None]
    if not ours:
        return
    folder = data_folder(folder)
    needed = dict.fromkeys(path for task in ours for path in _files(task, folder))
    absent = [str(path.relative_to(folder)) for path in needed if not path.is_file()]
    if absent:
        raise DataError(
            f"the folder {folder} must hold the tables of the tasks, however it lacks"
            f" {', '.join(absent)}: pass another --data or set {FOLDER_VARIABLE}"
        )


def _files(task: Task, folder: Path) -> list[Path]:
    """The table and, where there is one, its split."""
    table = folder / f"{task.label}.parquet"
    has_split = task.official or task.benchmark == "why"
    return [table, table.with_suffix(".split.parquet")] if has_split else [table]


def load(task: Task, folder: str | os.PathLike[str] | None = None) -> Parts:
    """Read the table of a task and split it.

    Args:
        task: Which table and split.
        folder: Where the tables are; None asks the environment variable TABR_DATA.
    """
    if task.own is not None:
        return _load_own(task, task.own)
    path = data_folder(folder)
    check_files([task], path)
    table, *split = _files(task, path)
    frame = pd.read_parquet(table)
    y = frame.pop("target").to_numpy()
    if split:
        column = "part" if task.benchmark == "default" else f"split{task.split}"
        parts = pd.read_parquet(split[0], columns=[column])[column].to_numpy(object)
    else:
        parts = own_split(y, stratified=task.kind == "classification", seed=task.split)
    if len(parts) != len(frame):
        raise DataError(
            f"a split must tell the part of each row, however {split[0].name} has"
            f" {len(parts)} rows and the table {len(frame)}: take files of one version"
        )

    return _cut(frame, y, parts)


def _load_own(task: Task, own: OwnTable) -> Parts:
    """Read a user's table; rows without a label cannot be scored and are left out."""
    frame = read_table(Path(own.path)).drop(columns=list(own.ignored))
    frame = frame[frame[own.target].notna()]
    y = frame.pop(own.target).to_numpy()
    is_class = task.kind == "classification"
    return _cut(frame, y, own_split(y, stratified=is_class, seed=task.split))


def _cut(frame: pd.DataFrame, y: NDArray[Any], parts: NDArray[Any]) -> Parts:
    """Return the rows of each part."""

    def part(name: str) -> Part:
        mask = parts == name
        return Part(frame[mask].reset_index(drop=True), y[mask])

    return Parts(part("train"), part("val"), part("test"))


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

"""Runs as tables: a CSV file for each benchmark, a line for each run.

`tabr bench` writes a file a run; `fold` puts such files into the tables.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tabr.bench.results import Result, name_parts, read
from tabr.errors import DataError
from tabr.tables.files import write_bytes

RunKind = Literal["single", "ensemble"]

# The file of each benchmark; the tables of users are here that of a guide's example.
TABLES = {"default": "default.csv", "why": "why.csv", "own": "example.csv"}
VERSIONS = ("tabr", "torch", "python")
COLUMNS = (
    "benchmark",
    "table",
    "method",
    "config",
    "kind",
    "split",
    "seed",
    "val",
    "test",
    "seconds",
    "workers",
    "threads",
    "hardware",
    *VERSIONS,
    "commit",
    "best_epoch",
    "n_parameters",
    "predictions",
    "params",
)
LATER = ("scores", "stopped_by")  # columns that are there where runs have them
_KINDS: dict[str, RunKind] = {"seed": "single", "ensemble": "ensemble"}
_RUN_FILE = re.compile(r"split-\d+-(seed|ensemble)-\d+\.json")


class Run(NamedTuple):
    """A single run or an ensemble, whose seed is the number of its group of seeds."""

    kind: RunKind
    result: Result

    @property
    def key(self) -> tuple[str, str, str, str, int, int]:
        """What tells the run from others, in the order of the tables."""
        r = self.result
        return r.benchmark, r.task, r.method, self.kind, r.split, r.seed

    def __str__(self) -> str:
        r = self.result
        numbers = f"split {r.split} seed {r.seed}"
        return f"{self.kind} run of {r.method} on {r.benchmark}/{r.task} {numbers}"


def time_of_a_fit(runs: Iterable[tuple[float, int]]) -> tuple[float, int]:
    """Return mean seconds, and how many runs shared the hardware meanwhile.

    Runs come as their seconds and `workers`. They slow one another down: those count
    that shared it with the fewest others.
    """
    times = list(runs)
    fewest = min(workers for _, workers in times)
    timed = [seconds for seconds, workers in times if workers == fewest]
    return math.fsum(timed) / len(timed), fewest


# --- lines of a table -------------------------------------------------------------


def to_line(run: Run) -> dict[str, str]:
    """Return the cells of a run as text; what is not known is empty."""
    r = run.result
    method, config = name_parts(r.method)
    cells = {
        "benchmark": r.benchmark,
        "table": r.task,
        "method": method,
        "config": config,
        "kind": run.kind,
        "split": r.split,
        "seed": r.seed,
        "val": r.val,
        "test": r.test,
        "seconds": r.seconds,
        "workers": r.workers,
        "threads": r.threads,
        "hardware": r.hardware,
        **{name: r.versions.get(name) for name in VERSIONS},
        "commit": r.commit,
        "best_epoch": r.best_epoch,
        "n_parameters": r.n_parameters,
        "predictions": r.predictions,
        "params": _to_json(r.params),
        "scores": None if r.scores is None else _to_json(r.scores),
        "stopped_by": r.stopped_by,
    }
    return {name: "" if cell is None else str(cell) for name, cell in cells.items()}


def from_line(line: dict[str, str]) -> Run:
    """Return the run of a line."""

    def number(name: str) -> int | None:
        return int(line[name]) if line[name] else None

    scores = line.get("scores")  # lines of before have none
    kind: RunKind = "ensemble" if line["kind"] == "ensemble" else "single"
    return Run(
        kind,
        Result(
            benchmark=line["benchmark"],
            task=line["table"],
            method=f"{line['method']}-{line['config']}",
            split=int(line["split"]),
            seed=int(line["seed"]),
            params=json.loads(line["params"]),
            test=float(line["test"]),
            val=float(line["val"]),
            seconds=float(line["seconds"]),
            best_epoch=number("best_epoch"),
            n_parameters=number("n_parameters"),
            hardware=line["hardware"],
            workers=int(line["workers"]),
            versions={name: line[name] for name in VERSIONS if line[name]},
            threads=number("threads"),
            commit=line["commit"] or None,
            predictions=line["predictions"] or None,
            scores=json.loads(scores) if scores else None,
            stopped_by=line.get("stopped_by") or None,
        ),
    )


def _to_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def to_csv(runs: Iterable[Run]) -> str:
    """Return the table of runs, sorted.

    A run that the table would not give back as it is, is refused. A line ends where
    its run has nothing more: lines stay as they were when runs with scores come.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    cells = []
    for run in sorted(runs, key=lambda run: run.key):
        line = to_line(run)
        # The writer leaves a carriage return bare, where the reader ends a line.
        if from_line(line) != run or "\r" in "".join(line.values()):
            raise DataError(
                "a line of a table holds a method with its configuration, finite"
                " numbers, texts without carriage returns and the versions of"
                f" {', '.join(VERSIONS)}, however the {run} has others"
            )
        later = [line[name] for name in LATER]
        while later and not later[-1]:
            later.pop()
        cells.append([*(line[name] for name in COLUMNS), *later])
    n_columns = max(map(len, cells), default=len(COLUMNS))
    writer.writerow([*COLUMNS, *LATER][:n_columns])
    writer.writerows(cells)
    return text.getvalue()


def read_table(path: Path) -> list[Run]:
    """Return the runs of a table; none if it is not there."""
    if not path.is_file():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [from_line(line) for line in csv.DictReader(file)]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is not a table of runs: {error!r}") from error


def write_table(runs: Iterable[Run], path: Path) -> None:
    """Write a table, whole or not at all."""
    write_bytes(path, to_csv(runs).encode())


# --- files of runs into tables ----------------------------------------------------


@dataclass(frozen=True)
class Folded:
    """How many lines of a table are new, replaced and the same as before."""

    path: Path
    n_new: int
    n_replaced: int
    n_same: int

    def __str__(self) -> str:
        replaced = f", {self.n_replaced} replaced" if self.n_replaced else ""
        return f"{self.path}: {self.n_new} lines new{replaced}, {self.n_same} as before"


def read_files(folder: Path) -> list[Run]:
    """Return the runs that have files anywhere in a folder."""
    runs = []
    for path in sorted(folder.rglob("split-*.json")):
        match = _RUN_FILE.fullmatch(path.name)
        if match is None:
            continue
        try:
            runs.append(Run(_KINDS[match[1]], read(path)))
        except (TypeError, ValueError) as error:
            raise DataError(f"{path} is not the file of a run: {error}") from error
    if not runs:
        raise DataError(
            f"runs are folded from files split-0-seed-0.json and so on, however"
            f" {folder} has none: make them with `tabr bench run --out {folder}`"
        )
    return runs


def fold(folder: Path, results: Path, *, replace: bool = False) -> list[Folded]:
    """Put the run files of a folder into the tables of the results folder.

    All tables are checked before the first is written. To fold twice is to fold once.

    Args:
        folder: Where the files are, however deep.
        results: Where the tables are.
        replace: Whether a run with other content takes the place of that in a table;
            otherwise it is refused.
    """
    by_benchmark: dict[str, list[Run]] = {}
    for run in read_files(folder):
        by_benchmark.setdefault(run.result.benchmark, []).append(run)
    unknown = [name for name in by_benchmark if name not in TABLES]
    if unknown:
        raise DataError(
            f"there are tables of {', '.join(TABLES)}, however {folder} has runs of"
            f" {', '.join(unknown)}: fold a folder without them"
        )
    tables, counts = {}, []
    for benchmark, runs in by_benchmark.items():
        path = results / TABLES[benchmark]
        lines, count = _merged(path, runs, replace)
        tables[path] = to_csv(lines)
        counts.append(count)
    for path, text in tables.items():
        write_bytes(path, text.encode())
    return counts


def _merged(path: Path, runs: Iterable[Run], replace: bool) -> tuple[list[Run], Folded]:
    """Return the runs of a table and of files, and how many of these are new."""
    lines = {run.key: run for run in read_table(path)}
    n_new = n_replaced = n_same = 0
    for run in runs:
        before = lines.get(run.key)
        if before is None:
            n_new += 1
        elif before == run:
            n_same += 1
        elif replace:
            n_replaced += 1
        else:
            raise DataError(
                f"a run stands in {path} once, however the {run} came with other"
                " content: take its file away, or pass --replace"
            )
        lines[run.key] = run
    return list(lines.values()), Folded(path, n_new, n_replaced, n_same)

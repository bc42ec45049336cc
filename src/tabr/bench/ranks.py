"""How methods stand: ranks by the paper's rule, wins, ties and losses, standings.

Two means are apart if they differ by more than the standard deviation of the better
one. Rank 1 is the best method and all that are not apart from it; those are set aside,
and the best of the others begins rank 2. This reproduces the paper's average ranks from
its published runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import NamedTuple

import pandas as pd

from tabr.bench.results import Result, read
from tabr.bench.tasks.task import Task
from tabr.errors import DataError

COLUMNS = ("rank", "method", "score", "std", "runs", "seconds", "n_parameters")


class Score(NamedTuple):
    """The mean of a method's runs and their standard deviation, divided by n."""

    mean: float
    std: float


class WinTieLoss(NamedTuple):
    """How often one method was better than another, as good, and worse."""

    win: int
    tie: int
    loss: int


def pooled(scores: Iterable[Score]) -> Score:
    """Return the score of all runs of several splits together, splits of one size.

    >>> pooled([Score(1.0, 0.0), Score(3.0, 0.0)])
    Score(mean=2.0, std=1.0)
    """
    parts = list(scores)
    mean = math.fsum(part.mean for part in parts) / len(parts)
    squares = (part.std**2 + (part.mean - mean) ** 2 for part in parts)
    return Score(mean, math.sqrt(math.fsum(squares) / len(parts)))


def ranks(scores: Mapping[str, Score], *, larger_is_better: bool) -> dict[str, int]:
    """Return the rank of each method, from 1.

    >>> scores = {"a": Score(0.90, 0.02), "b": Score(0.89, 0.5), "c": Score(0.8, 0.0)}
    >>> ranks(scores, larger_is_better=True)
    {'a': 1, 'b': 1, 'c': 2}
    """
    sign = 1 if larger_is_better else -1
    left, found, rank = dict(scores), dict[str, int](), 0
    while left:
        rank += 1
        best = max(left.values(), key=lambda score: sign * score.mean)
        together = [n for n, s in left.items() if abs(s.mean - best.mean) <= best.std]
        for name in together:
            found[name] = rank
            del left[name]
    return {name: found[name] for name in scores}


def compare(one: Score, other: Score, *, larger_is_better: bool) -> int:
    """Return 1 if the first is better, -1 if it is worse, 0 if they are not apart."""
    gain = one.mean - other.mean if larger_is_better else other.mean - one.mean
    std = one.std if gain > 0 else other.std
    if abs(gain) <= std:
        return 0
    return 1 if gain > 0 else -1


def count_outcomes(outcomes: Sequence[int]) -> WinTieLoss:
    """Count what `compare` returned.

    >>> count_outcomes([1, 0, 1, -1])
    WinTieLoss(win=2, tie=1, loss=1)
    """
    return WinTieLoss(outcomes.count(1), outcomes.count(0), outcomes.count(-1))


# --- standings of a table -------------------------------------------------------


def read_task(out: Path, task: Task) -> list[Result]:
    """Return all single runs of a task's table, whatever split, method and config."""
    folder = out / task.benchmark / task.name
    return [read(path) for path in sorted(folder.glob("*/split-*-seed-*.json"))]


def standings(
    out: Path, task: Task, plans: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return a line for each method with runs on a table, the best first.

    Splits are pooled: the score is the mean over all runs.

    Args:
        out: Where results are.
        task: Any split of the table.
        plans: Names of methods with configurations; None takes all that have runs.
    """
    by_plan: dict[str, list[Result]] = {}
    for result in read_task(out, task):
        if plans is None or result.method in plans:
            by_plan.setdefault(result.method, []).append(result)
    if not by_plan:
        raise DataError(
            f"standings need results, however {out} has none of {task.label}: make"
            " them with `tabr bench run`"
        )
    scores = {plan: _score(results) for plan, results in by_plan.items()}
    larger = task.metric == "accuracy"
    places = ranks(scores, larger_is_better=larger)
    lines = []
    for plan, results in by_plan.items():
        sizes = [r.n_parameters for r in results if r.n_parameters is not None]
        lines.append(
            {
                "rank": places[plan],
                "method": plan,
                "score": scores[plan].mean,
                "std": scores[plan].std,
                "runs": len(results),
                "seconds": fmean(r.seconds for r in results),
                "n_parameters": fmean(sizes) if sizes else math.nan,
            }
        )
    table = pd.DataFrame(lines, columns=list(COLUMNS))
    order = -table["score"] if larger else table["score"]
    return table.iloc[order.argsort(kind="stable")].reset_index(drop=True)


def _score(results: Sequence[Result]) -> Score:
    splits: dict[int, list[float]] = {}
    for result in results:
        splits.setdefault(result.split, []).append(result.test)
    return pooled(Score(fmean(tests), pstdev(tests)) for tests in splits.values())


# --- text -----------------------------------------------------------------------


def to_text(table: pd.DataFrame, task: Task) -> str:
    """Write the standings for a terminal."""
    measure = "RMSE" if task.metric == "rmse" else "accuracy"
    better = "lower" if task.metric == "rmse" else "higher"
    digits = _digits(table)
    rows = [
        (
            str(line["rank"]),
            short_name(str(line["method"])),
            f"{line['score']:.{digits}f} ± {line['std']:.{digits}f}",
            str(line["runs"]),
            f"{line['seconds']:.1f}",
        )
        for line in table.to_dict("records")
    ]
    header = ("rank", "method", measure, "runs", "seconds")
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if name == "method" else cell.rjust(width)
            for name, cell, width in zip(header, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(
        [
            f"{task.label}: {measure} of the test rows, {better} is better",
            "",
            *lines,
            "",
            "One rank: no further from its best than that one's standard deviation.",
        ]
    )


def average_ranks_text(tables: Sequence[tuple[Task, pd.DataFrame]]) -> str:
    """Write the average rank among the methods that all tables have."""
    common = set.intersection(*(set(table["method"]) for _, table in tables))
    places: dict[str, list[int]] = {name: [] for name in sorted(common)}
    for task, table in tables:
        part = table[table["method"].isin(common)]
        columns = (part[name] for name in ("method", "score", "std"))
        scores = {name: Score(m, s) for name, m, s in zip(*columns, strict=True)}
        found = ranks(scores, larger_is_better=task.metric == "accuracy")
        for name, rank in found.items():
            places[name].append(rank)
    order = sorted(places, key=lambda name: fmean(places[name]))
    lines = [f"Average rank over {len(tables)} tables:"]
    lines += [
        f"  {fmean(places[name]):.2f} ± {pstdev(places[name]):.2f}  {short_name(name)}"
        for name in order
    ]
    return "\n".join(lines)


def short_name(plan: str) -> str:
    """Leave out what goes without saying.

    >>> short_name("tabr-s-default"), short_name("knn-tuned")
    ('tabr-s', 'knn-tuned')
    """
    return plan.removesuffix("-default")


def _digits(table: pd.DataFrame) -> int:
    """Return the decimals that show two figures of the smallest deviation, up to six.

    Without a deviation four significant figures of the scores are shown.
    """
    spread = table["std"][table["std"] > 0]
    scale = float(spread.min()) * 100 if len(spread) else table["score"].abs().max()
    if not scale or not math.isfinite(scale):
        return 4
    return min(6, max(0, 3 - math.floor(math.log10(scale))))

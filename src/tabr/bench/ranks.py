"""The standings of methods: ranks by the paper's rule.

Two means are apart if they differ by more than the standard deviation of the better
one. Rank 1 is the best method and all that are not apart from it; those are set aside,
and the best of the others begins rank 2. This reproduces the paper's average ranks from
its published runs.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import pandas as pd

from tabr.bench.results import Result, read
from tabr.bench.tasks.task import Task
from tabr.errors import DataError
from tabr.text import aligned, plain_rows


class Score(NamedTuple):
    """The mean of a method's runs and their standard deviation, divided by n."""

    mean: float
    std: float


def pooled(scores: Iterable[Score]) -> Score:
    """Return the score over all runs of several splits, which are of one size.

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
    rest, rank_of, rank = dict(scores), dict[str, int](), 0
    while rest:
        rank += 1
        best = max(rest.values(), key=lambda score: sign * score.mean)
        tied = [n for n, s in rest.items() if abs(s.mean - best.mean) <= best.std]
        for name in tied:
            rank_of[name] = rank
            del rest[name]
    return {name: rank_of[name] for name in scores}


# --- standings of a table -------------------------------------------------------


def read_results(
    out: Path, task: Task, plans: Container[str] | None = None
) -> list[Result]:
    """Return the single runs of a task's table, of all its splits.

    Without names of plans, all plans that have runs count.
    """
    folder = out / task.benchmark / task.name
    results = [read(path) for path in sorted(folder.glob("*/split-*-seed-*.json"))]
    results = [r for r in results if plans is None or r.method in plans]
    if not results:
        raise DataError(
            f"standings need results, however {out} has none of {task.label}: make"
            " them with `tabr bench run`"
        )
    return results


def standings(results: Iterable[Result], task: Task) -> pd.DataFrame:
    """Return a line for each method with runs on a table, the best first.

    Splits are pooled: the score is the mean over all runs. `task` is any split.
    """
    by_plan: dict[str, list[Result]] = {}
    for result in results:
        by_plan.setdefault(result.method, []).append(result)
    scores = {plan: _score(runs) for plan, runs in by_plan.items()}
    larger = task.metric == "accuracy"
    rank_of = ranks(scores, larger_is_better=larger)
    lines = []
    for plan in sorted(by_plan, key=lambda plan: scores[plan].mean, reverse=larger):
        runs = by_plan[plan]
        sizes = [r.n_parameters for r in runs if r.n_parameters is not None]
        lines.append(
            {
                "rank": rank_of[plan],
                "method": plan,
                "score": scores[plan].mean,
                "std": scores[plan].std,
                "runs": len(runs),
                "seconds": fmean(r.seconds for r in runs),
                "n_parameters": fmean(sizes) if sizes else math.nan,
            }
        )
    return pd.DataFrame(lines)


def _score(results: Sequence[Result]) -> Score:
    splits: dict[int, list[float]] = {}
    for result in results:
        splits.setdefault(result.split, []).append(result.test)
    return pooled(Score(fmean(tests), pstdev(tests)) for tests in splits.values())


# --- text and JSON ----------------------------------------------------------------


def to_record(table: pd.DataFrame, task: Task) -> dict[str, Any]:
    """Return the standings as JSON has them."""
    return {
        "task": task.label,
        "metric": task.metric,
        "larger_is_better": task.metric == "accuracy",
        "standings": plain_rows(table),
    }


def to_text(table: pd.DataFrame, task: Task) -> str:
    """Return the standings for a terminal."""
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
    return "\n".join(
        [
            f"{task.label}: {measure} of the test rows, {better} is better",
            "",
            *aligned([header, *rows], "rlr"),
            "",
            "One rank: no further from its best than that one's standard deviation.",
        ]
    )


def average_ranks_text(tables: Sequence[tuple[Task, pd.DataFrame]]) -> str:
    """Return the average ranks among the methods that all tables have."""
    common = set.intersection(*(set(table["method"]) for _, table in tables))
    all_ranks: dict[str, list[int]] = {name: [] for name in sorted(common)}
    for task, table in tables:
        part = table[table["method"].isin(common)]
        columns = (part[name] for name in ("method", "score", "std"))
        scores = {name: Score(m, s) for name, m, s in zip(*columns, strict=True)}
        rank_of = ranks(scores, larger_is_better=task.metric == "accuracy")
        for name, rank in rank_of.items():
            all_ranks[name].append(rank)
    lines = [f"Average rank over {len(tables)} tables:"]
    for name, values in sorted(all_ranks.items(), key=lambda item: fmean(item[1])):
        lines.append(
            f"  {fmean(values):.2f} ± {pstdev(values):.2f}  {short_name(name)}"
        )
    return "\n".join(lines)


def short_name(plan: str) -> str:
    """Return the name of a method and its config, without the default config.

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

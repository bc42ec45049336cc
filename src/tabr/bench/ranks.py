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
from tabr.metrics import MEASURES, Measure
from tabr.text import ABSENT, aligned, cell, plain_rows, score

# Beside the measure of ranks in a terminal; files have all.
_SHOWN = {name for name in MEASURES if name != "balanced-accuracy"}


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


def standings(
    results: Iterable[Result], task: Task, scoring: str | None = None
) -> pd.DataFrame:
    """Return a line for each method with runs on a table, the best first.

    Splits are pooled: the score is the mean over all runs. `task` is any split, and
    `scoring` the measure of ranks; None is the paper's. Means of the other measures
    that runs have kept are further columns. Methods whose runs have not kept the score
    come last, without a rank.
    """
    by_plan: dict[str, list[Result]] = {}
    for result in results:
        by_plan.setdefault(result.method, []).append(result)
    measure = task.measure(scoring)
    scores = {plan: _score(runs, measure, task) for plan, runs in by_plan.items()}
    known = {plan: own for plan, own in scores.items() if own is not None}
    if not known:
        raise DataError(
            f"standings by {measure.name} need runs that kept it, however those of"
            f" {task.label} are from before there were any, or it has no meaning there:"
            " leave --scoring out, or run them into another --out"
        )
    rank_of = ranks(known, larger_is_better=not measure.smaller_is_better)
    order = sorted(known, key=lambda plan: -measure.sign * known[plan].mean)
    others = _other_means(by_plan, measure, task)
    lines = []
    for plan in [*order, *(plan for plan in by_plan if plan not in known)]:
        runs, own = by_plan[plan], known.get(plan, Score(math.nan, math.nan))
        sizes = [r.n_parameters for r in runs if r.n_parameters is not None]
        lines.append(
            {
                "rank": rank_of.get(plan),
                "method": plan,
                "score": own.mean,
                "std": own.std,
                "runs": len(runs),
                "seconds": fmean(r.seconds for r in runs),
                "n_parameters": fmean(sizes) if sizes else math.nan,
                **{name: means[plan] for name, means in others.items()},
            }
        )
    table = pd.DataFrame(lines)
    return table if len(known) == len(by_plan) else table.astype({"rank": "Int64"})


def _score(results: Sequence[Result], measure: Measure, task: Task) -> Score | None:
    """Return the score of a method's runs; None if one of them has not kept it."""
    splits: dict[int, list[float]] = {}
    for result in results:
        is_paper_s = measure.name == task.metric
        test = result.test if is_paper_s else result.score(measure, "test")
        if test is None:
            return None
        splits.setdefault(result.split, []).append(test)
    return pooled(Score(fmean(tests), pstdev(tests)) for tests in splits.values())


def _other_means(
    by_plan: Mapping[str, Sequence[Result]], measure: Measure, task: Task
) -> dict[str, dict[str, float]]:
    """Return the means of measures that any method has kept, by measure and method."""
    others = {}
    for name, other in MEASURES.items():
        if other.of_classes == measure.of_classes and other is not measure:
            means = {}
            for plan, runs in by_plan.items():
                own = _score(runs, other, task)
                means[plan] = math.nan if own is None else own.mean
            if not all(map(math.isnan, means.values())):
                others[name] = means
    return others


# --- text and JSON ----------------------------------------------------------------


def to_record(
    table: pd.DataFrame, task: Task, scoring: str | None = None
) -> dict[str, Any]:
    """Return the standings as JSON has them."""
    measure = task.measure(scoring)
    return {
        "task": task.label,
        "metric": measure.name,
        "larger_is_better": not measure.smaller_is_better,
        "standings": plain_rows(table),
    }


def to_text(table: pd.DataFrame, task: Task, scoring: str | None = None) -> str:
    """Return the standings for a terminal."""
    measure = task.measure(scoring)
    better = "lower" if measure.smaller_is_better else "higher"
    digits = _digits(table)
    others = [MEASURES[name] for name in MEASURES if name in table and name in _SHOWN]
    rows = [
        (
            cell(line["rank"]),
            short_name(str(line["method"])),
            f"{line['score']:.{digits}f} ± {line['std']:.{digits}f}"
            if math.isfinite(line["score"])
            else ABSENT,
            *(score(line[other.name]) for other in others),
            str(line["runs"]),
            f"{line['seconds']:.1f}",
        )
        for line in table.to_dict("records")
    ]
    labels = [other.label for other in others]
    header = ("rank", "method", measure.label, *labels, "runs", "seconds")
    return "\n".join(
        [
            f"{task.label}: {measure.label} of the test rows, {better} is better",
            "",
            *aligned([header, *rows], "rlr"),
            "",
            "One rank: no further from its best than that one's standard deviation.",
        ]
    )


def average_ranks_text(
    tables: Sequence[tuple[Task, pd.DataFrame]], scoring: str | None = None
) -> str:
    """Return the average ranks among the methods that have one in all tables."""
    ranked = (table[table["rank"].notna()] for _, table in tables)
    common = set.intersection(*(set(table["method"]) for table in ranked))
    all_ranks: dict[str, list[int]] = {name: [] for name in sorted(common)}
    for task, table in tables:
        part = table[table["method"].isin(common)]
        columns = (part[name] for name in ("method", "score", "std"))
        scores = {name: Score(m, s) for name, m, s in zip(*columns, strict=True)}
        larger = not task.measure(scoring).smaller_is_better
        rank_of = ranks(scores, larger_is_better=larger)
        for name, rank in rank_of.items():
            all_ranks[name].append(rank)
    lines = [f"Average rank over {len(tables)} tables:"]
    for name, values in sorted(all_ranks.items(), key=lambda item: fmean(item[1])):
        lines.append(
            f"  {fmean(values):.2f} ± {pstdev(values):.2f}  {short_name(name)}"
        )
    return "\n".join(lines)


def short_name(plan: str) -> str:
    """Return the name of a method, its config and scoring, without the default config.

    >>> (
    ...     short_name("tabr-s-default"),
    ...     short_name("knn-tuned"),
    ...     short_name("a-default@r2"),
    ... )
    ('tabr-s', 'knn-tuned', 'a@r2')
    """
    method, at, scoring = plan.partition("@")
    return method.removesuffix("-default") + at + scoring


def _digits(table: pd.DataFrame) -> int:
    """Return the decimals that show two figures of the smallest deviation, up to six.

    Without a deviation four significant figures of the scores are shown.
    """
    spread = table["std"][table["std"] > 0]
    scale = float(spread.min()) * 100 if len(spread) else table["score"].abs().max()
    if not scale or not math.isfinite(scale):
        return 4
    return min(6, max(0, 3 - math.floor(math.log10(scale))))

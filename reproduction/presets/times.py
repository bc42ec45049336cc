"""Seconds of a fit of our runs, each hardware by itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from reproduction.presets.boards import (
    DEFAULT_TREES,
    NETWORKS,
    PRESETS,
    SETS,
    TABR_S,
    Contestant,
    runs_of,
)
from reproduction.runs import Run, time_of_a_fit
from tabr.bench.results import Result

TIMED = (*PRESETS, *DEFAULT_TREES, TABR_S._replace(side="ours"), *NETWORKS)
MOST = 0.8  # of the sets of a preset, to share its mean


class Time(NamedTuple):
    """The times of a contestant on one hardware.

    Attributes:
        contestant: Whose runs they are.
        hardware: Where they ran.
        threads: Of a run, as the runs state them; None is all cores.
        workers: How many runs shared the hardware, the fewest and the most.
        n_runs: How many runs there are.
        seconds: Mean time of a fit by set, of the runs that shared the hardware with
            the fewest others.
    """

    contestant: Contestant
    hardware: str
    threads: tuple[int | None, ...]
    workers: tuple[int, int]
    n_runs: int
    seconds: Mapping[str, float]


def times(runs: Iterable[Run]) -> dict[str, list[Time]]:
    """Return the times by hardware: what ran on a CPU never joins what ran on a GPU."""
    groups: dict[tuple[str, Contestant], dict[str, list[Result]]] = {}
    for contestant, label, result in runs_of(runs, TIMED):
        sets = groups.setdefault((result.hardware, contestant), {})
        sets.setdefault(label, []).append(result)
    by_hardware: dict[str, list[Time]] = {}
    for hardware, contestant in sorted(groups, key=lambda key: TIMED.index(key[1])):
        sets = groups[hardware, contestant]
        by_hardware.setdefault(hardware, []).append(_time(contestant, hardware, sets))
    return dict(sorted(by_hardware.items()))


def _time(
    contestant: Contestant, hardware: str, sets: Mapping[str, list[Result]]
) -> Time:
    results = [result for part in sets.values() for result in part]
    fits = {
        label: time_of_a_fit((r.seconds, r.workers) for r in part)
        for label, part in sets.items()
    }
    sharing = [workers for _, workers in fits.values()]
    threads = {result.threads for result in results}
    return Time(
        contestant,
        hardware,
        tuple(sorted(threads, key=lambda n: math.inf if n is None else n)),
        (min(sharing), max(sharing)),
        len(results),
        {label: seconds for label, (seconds, _) in fits.items()},
    )


def comparable(rows: Sequence[Time]) -> tuple[list[Time], list[str]]:
    """Return the rows of a hardware that have a mean, and the sets it is over.

    A row has one if it has most sets of the first row, a preset's if there is one: a
    row of a few sets would leave only these for all.
    """
    first = set(rows[0].seconds)
    enough = [row for row in rows if len(first & set(row.seconds)) >= MOST * len(first)]
    common = set.intersection(*(set(row.seconds) for row in enough))
    return enough, [label for label in SETS if label in common]


def mean_seconds(time: Time, labels: Iterable[str]) -> float:
    """Return the geometric mean of the times on some sets; NaN without sets."""
    logs = [math.log(max(time.seconds[label], 1e-3)) for label in labels]
    return math.exp(fmean(logs)) if logs else math.nan

"""Context freeze: what it costs and saves, and how much contexts change anyway."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from reproduction.studies.units import Record, Unit, loader, make_method, score_of
from tabr.bench.methods.tabr import TabRMethod
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import Task

TABLES = ("california", "diamond", "black-friday", "covtype")
OTHERS = ("churn", "house", "adult", "otto")
AFTER = (0, 1, 2, 4, 8, None)  # epochs; None is never


def freeze(
    tables: Sequence[str], folder: Path, seeds: Sequence[int], params: Record
) -> Iterator[Unit]:
    """Yield models that freeze contexts, and one that watches how they change.

    All have the defaults of TabR-S. Watching searches once more after each epoch, so
    its time tells nothing.
    """
    loaded = loader(folder)

    def make(task: Task, seed: int, more: Record) -> TabRMethod:
        chosen = {**params, **more}
        return make_method(task, loaded(task), seed, "tabr-s", "default", chosen)

    @cache
    def warm_up(task: Task) -> None:
        """Train shortly on a GPU, with and without a freeze: kernels get compiled."""
        method = make(task, 0, {"freeze_after": 1, "max_epochs": 2})
        if method.device.type == "cuda":
            method.fit(loaded(task).train, loaded(task).val)

    def fit(task: Task, seed: int, after: int | None) -> Iterator[Record]:
        warm_up(task)
        parts = loaded(task)
        method = make(task, seed, {"freeze_after": after})
        start = time.perf_counter()
        method.fit(parts.train, parts.val)
        seconds = time.perf_counter() - start
        trained = method.estimator.history_.seconds
        yield {
            "test": round(score_of(task, parts.test, method), 6),
            "seconds": round(seconds, 3),
            "epochs": len(trained),
            "seconds_per_epoch": round(float(trained.iloc[-1]) / len(trained), 4),
        }

    def watch(task: Task, seed: int) -> Iterator[Record]:
        parts = loaded(task)
        method = make(task, seed, {"record_context": True})
        method.fit(parts.train, parts.val)
        (member,) = method.estimator.members_
        # Of the second epoch on: the first has none before it.
        yield {"context_change": [round(x, 5) for x in member.history.context_change]}

    for task in select(tables):
        for seed in seeds:
            about = {"table": task.name, "seed": seed}
            for after in AFTER:
                frozen = {**about, "what": "fit", "freeze_after": after}
                yield Unit(frozen, partial(fit, task, seed, after))
            yield Unit({**about, "what": "contexts"}, partial(watch, task, seed))

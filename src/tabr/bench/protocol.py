"""One run: fit on train, stop by val, score val and test."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence

import pandas as pd
import torch

from tabr import __version__
from tabr.bench.methods import METHODS, Setting
from tabr.bench.parameters import parameters
from tabr.bench.results import DEFAULT_PLAN, Plan, Predictions, Result, current_commit
from tabr.bench.tasks.task import SplitTable, Task
from tabr.bench.workers import Resources
from tabr.device.devices import device_name


def setting_of(
    task: Task,
    X: pd.DataFrame,
    resources: Resources,
    on_epoch: Callable[[int, float], None] | None = None,
    scoring: str | None = None,
) -> Setting:
    """Return what a task, with training rows X, and a machine decide for a method."""
    return Setting(
        outcome=task.kind,
        column_kinds=task.column_kinds(X),
        normalized=task.normalization != "none",
        device=resources.device,
        n_threads=resources.threads,
        on_epoch=on_epoch,
        scoring=None if scoring is None else task.measure(scoring).name,
    )


def current_versions() -> dict[str, str]:
    """Return the versions of tabr, torch and python."""
    return {
        "tabr": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def run_seeds(
    task: Task,
    parts: SplitTable,
    seeds: Sequence[int],
    resources: Resources,
    plan: Plan = DEFAULT_PLAN,
    on_epoch: Callable[[int, float], None] | None = None,
) -> list[tuple[Result, Predictions]]:
    """Fit models of successive seeds as one, and score each.

    Args:
        task: What is predicted and how it was run in the paper.
        parts: The rows.
        seeds: Seeds of the models.
        resources: Where to compute, and how many runs share it.
        plan: What to fit.
        on_epoch: Called by networks after each epoch with its number and validation
            score.
    """
    params = parameters(task, plan.method, plan.config, plan.trial)
    setting = setting_of(task, parts.train.X, resources, on_epoch, plan.scoring)
    entry = METHODS[plan.method]
    methods = [entry.make(setting, seed, **params) for seed in seeds]
    device = methods[0].device
    if device.type == "cuda":
        torch.zeros(1, device=device)  # starts the GPU before the clock
    start = time.perf_counter()
    if len(methods) == 1:
        methods[0].fit(parts.train, parts.val)
    else:
        entry.method.fit_as_one(methods, parts.train, parts.val)
    seconds = time.perf_counter() - start
    pairs = []
    for seed, method in zip(seeds, methods, strict=True):
        predictions = Predictions(
            method.predict(parts.val.X), method.predict(parts.test.X), method.classes
        )
        val, test = predictions.scores(task, parts)
        result = Result(
            benchmark=task.benchmark,
            task=task.name,
            method=plan.name,
            split=task.split,
            seed=seed,
            params=params,
            test=test,
            val=val,
            seconds=round(seconds, 3),
            best_epoch=method.best_epoch,
            n_parameters=method.n_parameters,
            hardware=device_name(device),
            workers=resources.workers * len(seeds),
            threads=resources.threads,
            commit=current_commit(),
            versions=current_versions(),
            scores=predictions.all_scores(task, parts),
            stopped_by=method.stopped_by,
        )
        pairs.append((result, predictions))
    return pairs

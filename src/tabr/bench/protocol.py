"""One run: fit on train, stop by val, score val and test, keep a small file."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tabr import __version__
from tabr.bench.baselines import METHODS, Method, Setting
from tabr.bench.configs import Config, parameters
from tabr.bench.tasks import Part, Parts, Task
from tabr.devices import device_name
from tabr.metrics import rmse


@dataclass(frozen=True)
class Plan:
    """What to fit: a method, and where its parameters come from."""

    method: str = "tabr-s"
    config: Config = "default"
    trial: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """Return the name under which results are kept.

        >>> Plan().name
        'tabr-s-default'
        """
        return f"{self.method}-{self.config}"


DEFAULT_PLAN = Plan()


@dataclass(frozen=True)
class Result:
    """What one run gave.

    Attributes:
        benchmark: Which benchmark the task belongs to.
        task: Name of the table.
        method: What was fitted, and with which configuration.
        split: Number of the split.
        seed: Seed of the model.
        params: Parameters that were passed to the method.
        test: Score of the test rows, in the unit of the published figure.
        val: Score of the validation rows, likewise.
        seconds: Time of the fit, preprocessing and validation included.
        best_epoch: The epoch (from 0) or number of trees that was kept, if any.
        n_parameters: Trained numbers, where that can be said.
        hardware: Where it ran.
        workers: Runs that shared the hardware.
        versions: Of tabr, torch and python.
    """

    benchmark: str
    task: str
    method: str
    split: int
    seed: int
    params: dict[str, Any]
    test: float
    val: float
    seconds: float
    best_epoch: int | None
    n_parameters: int | None
    hardware: str
    workers: int
    versions: dict[str, str]


def run_one(
    task: Task,
    parts: Parts,
    seed: int,
    device: str | None = None,
    *,
    plan: Plan = DEFAULT_PLAN,
    workers: int = 1,
) -> Result:
    """Fit one model and score it.

    Args:
        task: What is predicted and how it was run in the paper.
        parts: The rows.
        seed: Seed of the model.
        device: Where to compute; None is a GPU if there is one.
        plan: What to fit.
        workers: Runs that share the hardware, for the record.
    """
    params = parameters(task, plan.method, plan.config, plan.trial)
    n_threads = 1 if workers > 1 else None
    setting = setting_of(task, parts.train.X, device, n_threads)
    method = METHODS[plan.method].make(setting, seed, **params)
    if method.device.type == "cuda":
        torch.zeros(1, device=method.device)  # starts the GPU before the clock
    start = time.perf_counter()
    method.fit(parts.train, parts.val)
    seconds = time.perf_counter() - start
    return Result(
        benchmark=task.benchmark,
        task=task.name,
        method=plan.name,
        split=task.split,
        seed=seed,
        params=params,
        test=score_of(task, parts.test, method),
        val=score_of(task, parts.val, method),
        seconds=round(seconds, 3),
        best_epoch=method.best_epoch,
        n_parameters=method.n_parameters,
        hardware=device_name(method.device),
        workers=workers,
        versions={
            "tabr": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    )


def result_path(out: Path, task: Task, seed: int, plan: Plan = DEFAULT_PLAN) -> Path:
    """Return the file of a run; the run is done if and only if it exists."""
    folder = out / task.benchmark / task.name / plan.name
    return folder / f"split-{task.split}-seed-{seed}.json"


def write(result: Result, path: Path) -> None:
    """Write a result, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dataclasses.asdict(result), indent=1, allow_nan=False)
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        draft.write_text(text + "\n", "utf-8")
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def read(path: Path) -> Result:
    """Read what `write` wrote."""
    return Result(**json.loads(path.read_text("utf-8")))


def setting_of(
    task: Task,
    X: pd.DataFrame,
    device: str | None = None,
    n_threads: int | None = None,
) -> Setting:
    """Return what a task, with training rows X, and a machine decide for a method."""
    return Setting(
        outcome=task.kind,
        column_kinds=task.column_kinds(X),
        normalized=task.normalization != "none",
        device=device,
        n_threads=n_threads,
    )


def score_of(task: Task, part: Part, method: Method) -> float:
    """Return the score of a part, in the unit of the published figure."""
    prediction = method.predict(part.X)
    if method.classes is None:
        return rmse(part.y, prediction) / task.scale
    return float(np.mean(method.classes[prediction.argmax(1)] == part.y))

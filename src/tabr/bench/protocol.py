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
import torch
from numpy.typing import NDArray

from tabr import TabRClassifier, TabRRegressor, __version__
from tabr.bench.tasks import Part, Parts, Task
from tabr.metrics import rmse

METHOD = "tabr-s-default"
TRIAL = "trial"  # other parameters than the published ones: kept apart, never reported


@dataclass(frozen=True)
class Result:
    """What one run gave.

    Attributes:
        benchmark: Which benchmark the task belongs to.
        task: Name of the table.
        method: What was fitted.
        split: Number of the split.
        seed: Seed of the model.
        params: Parameters of the estimator, as they were passed.
        test: Score of the test rows, in the unit of the published figure.
        val: Score of the validation rows, likewise.
        seconds: Time of the fit, preprocessing and validation included.
        best_epoch: The epoch (from 0) whose weights were kept.
        n_parameters: Trained numbers of the network.
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
    best_epoch: int
    n_parameters: int
    hardware: str
    workers: int
    versions: dict[str, str]


def run_one(
    task: Task,
    parts: Parts,
    seed: int,
    device: str | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    workers: int = 1,
) -> Result:
    """Fit one model and score it.

    Args:
        task: What is predicted and how it was run in the paper.
        parts: The rows.
        seed: Seed of the model.
        device: Where to compute; None is a GPU if there is one.
        params: Parameters to change; the result then counts as a trial.
        workers: Runs that share the hardware, for the record.
    """
    chosen = {
        "mode": "paper",
        "batch_size": task.batch_size,
        "normalization": task.normalization,
        "column_kinds": task.column_kinds(parts.train.X),
        "random_state": seed,
        **(params or {}),
    }
    estimator = TabRRegressor if task.kind == "regression" else TabRClassifier
    model = estimator(**chosen, device=device)
    if device != "cpu" and torch.cuda.is_available():
        torch.zeros(1, device=device or "cuda")  # starts the GPU before the clock
    start = time.perf_counter()
    model.fit(parts.train.X, parts.train.y, eval_set=(parts.val.X, parts.val.y))
    seconds = time.perf_counter() - start
    network = model.members_[0].network
    return Result(
        benchmark=task.benchmark,
        task=task.name,
        method=method_of(params),
        split=task.split,
        seed=seed,
        params=chosen,
        test=_score(task, parts.test, model),
        val=_score(task, parts.val, model),
        seconds=round(seconds, 3),
        best_epoch=model.best_epoch_[0],
        n_parameters=sum(p.numel() for p in network.parameters()),
        hardware=_hardware(model.candidates_.labels.device),
        workers=workers,
        versions={
            "tabr": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    )


def method_of(params: Mapping[str, Any] | None) -> str:
    """Return the method's name: the published defaults, or a trial of others."""
    return TRIAL if params else METHOD


def result_path(
    out: Path, task: Task, seed: int, params: Mapping[str, Any] | None = None
) -> Path:
    """Return the file of a run; the run is done if and only if it exists."""
    folder = out / task.benchmark / task.name / method_of(params)
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


def _score(task: Task, part: Part, model: TabRRegressor | TabRClassifier) -> float:
    prediction: NDArray[Any] = model.predict(part.X)
    if task.metric == "rmse":
        return rmse(part.y, prediction) / task.scale
    return float(np.mean(prediction == part.y))


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()

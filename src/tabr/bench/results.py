"""What runs leave behind: a small file each, and predictions beside it if asked for."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tabr.bench.parameters import Config
from tabr.bench.tasks.task import SplitTable, Task
from tabr.metrics import MEASURES, Measure, codes_of, rmse
from tabr.tables.files import write_bytes


@dataclass(frozen=True)
class Plan:
    """What to fit: a method, and where its parameters come from.

    Attributes:
        method: Its name.
        config: Where its parameters come from.
        trial: Parameters of the config "trial".
        scoring: The measure that the validation part is looked at by; None is the
            paper's, or the method's own.
    """

    method: str = "tabr-s"
    config: Config = "default"
    trial: Mapping[str, Any] | None = None
    scoring: str | None = None

    @property
    def name(self) -> str:
        """Return the name under which results are kept.

        >>> Plan().name, Plan(scoring="log-loss").name
        ('tabr-s-default', 'tabr-s-default@log-loss')
        """
        return f"{self.method}-{self.config}{scoring_suffix(self.scoring)}"


def scoring_suffix(scoring: str | None) -> str:
    """Return the end of a name that tells one scoring from others, if there is one.

    >>> scoring_suffix("roc-auc"), scoring_suffix(None)
    ('@roc-auc', '')
    """
    return "" if scoring is None else f"@{scoring}"


def name_parts(name: str) -> tuple[str, str]:
    """Return the method of a plan's name, and all that follows it.

    >>> name_parts("tabr-s-default@log-loss"), name_parts("mlp-retuned-ensemble")
    (('tabr-s', 'default@log-loss'), ('mlp', 'retuned-ensemble'))
    """
    configs = "|".join(get_args(Config))
    match = re.fullmatch(rf"(.*)-((?:{configs})(?:@.*)?)", name, re.DOTALL)
    method, _, config = (
        name.rpartition("-") if match is None else (match[1], "", match[2])
    )
    return method, config


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
        workers: Runs that shared the hardware, in processes of their own or as one.
        versions: Of tabr, torch and python.
        threads: Threads of the run; None is all cores.
        commit: Of the checkout that the code ran from, `-dirty` at its end if files
            had been changed; None if it ran from elsewhere, or long ago.
        predictions: File of the predictions, beside that of the result, if kept.
        scores: All scores of the parts "val" and "test" by the names of
            `tabr.metrics`, errors of numbers in the unit of the published figure and
            those without a meaning left out; None if the run is from before there were
            any.
        stopped_by: What ended the training instead of the scoring of the plan, as a
            library calls it; None where it could be that.
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
    threads: int | None = None
    commit: str | None = None
    predictions: str | None = None
    scores: Mapping[str, Mapping[str, float]] | None = None
    stopped_by: str | None = None

    def score(self, measure: Measure, part: Literal["val", "test"]) -> float | None:
        """Return the score of a part by a measure, if the run has kept it."""
        return (self.scores or {}).get(part, {}).get(measure.name)


@cache
def current_commit() -> str | None:
    """Return the commit of the checkout that this code runs from; None elsewhere."""
    package = Path(__file__).resolve().parents[1]
    root = package.parents[1]
    # An installed package may lie in somebody else's checkout.
    if package != root / "src" / "tabr" or not (root / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        output = subprocess.check_output(
            command, cwd=root, stderr=subprocess.DEVNULL, timeout=10, text=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return output.strip() or None


@dataclass(frozen=True)
class Predictions:
    """The predictions of a method for the rows that decide: values, or probabilities.

    Attributes:
        val: Of the validation rows, (n,) or (n, classes).
        test: Of the test rows, likewise.
        classes: Labels of the columns; None for values.
    """

    val: NDArray[np.float64]
    test: NDArray[np.float64]
    classes: NDArray[Any] | None

    def scores(self, task: Task, parts: SplitTable) -> tuple[float, float]:
        """Return the scores of the validation and the test rows, in published units."""
        val = score(task, parts.val.y, self.val, self.classes)
        return val, score(task, parts.test.y, self.test, self.classes)

    def all_scores(self, task: Task, parts: SplitTable) -> dict[str, dict[str, float]]:
        """Return all scores of the validation and the test rows, as results have them.

        That of the task's metric is the one of `scores`.
        """
        return {
            "val": all_scores(task, parts.val.y, self.val, self.classes),
            "test": all_scores(task, parts.test.y, self.test, self.classes),
        }


def score(
    task: Task,
    y: NDArray[Any],
    predictions: NDArray[np.float64],
    classes: NDArray[Any] | None,
) -> float:
    """Return the score of values or probabilities, in the unit of the published one."""
    if classes is None:
        return rmse(y, predictions) / task.scale
    return float(np.mean(classes[predictions.argmax(1)] == labels_of(y, classes)))


def all_scores(
    task: Task,
    y: NDArray[Any],
    predictions: NDArray[np.float64],
    classes: NDArray[Any] | None,
) -> dict[str, float]:
    """Return all scores of values or probabilities by name, errors in published units.

    Labels that are no class are another one, without probability. What has no meaning
    for these rows is left out.
    """
    if classes is not None:
        y = codes_of(labels_of(y, classes), classes)
        is_other = y < 0
        if is_other.any():
            y[is_other] = len(classes)
            nothing = np.zeros((len(y), 1))
            predictions = np.concatenate([predictions, nothing], axis=1)
    scores = {}
    for name, measure in MEASURES.items():
        if measure.of_classes == (classes is not None):
            value = measure.compute(y, predictions)
            in_units = measure.smaller_is_better and not measure.of_classes
            scores[name] = value / task.scale if in_units else value
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def labels_of(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """Return labels (n,) as classes have them: a file keeps those of any type as text.

    >>> labels_of(np.array([True, False], object), np.array(["False", "True"])).tolist()
    ['True', 'False']
    """
    return y.astype(str) if classes.dtype.kind == "U" else y


def result_path(out: Path, task: Task, seed: int, plan: Plan = DEFAULT_PLAN) -> Path:
    """Return the file of a run; the run is done if and only if it exists."""
    folder = out / task.benchmark / task.name / plan.name
    return folder / f"split-{task.split}-seed-{seed}.json"


def write(result: Result, path: Path, predictions: Predictions | None = None) -> None:
    """Write a result, whole or not at all, after the predictions beside it if given.

    It comes last, as it marks the run as done, and names the predictions.
    """
    beside = path.with_suffix(".npz")
    if predictions is not None:
        write_predictions(predictions, beside)
    name = beside.name if beside.is_file() else None
    content = dataclasses.asdict(result) | {"predictions": name}
    text = json.dumps(content, indent=1, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def write_predictions(predictions: Predictions, path: Path) -> None:
    """Write predictions to an npz file, whole or not at all."""
    arrays = {"val": predictions.val, "test": predictions.test}
    if predictions.classes is not None:
        labels = predictions.classes
        arrays["classes"] = labels.astype(str) if labels.dtype == object else labels
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    write_bytes(path, file.getvalue())


def read(path: Path) -> Result:
    """Read what `write` wrote."""
    return Result(**json.loads(path.read_text("utf-8")))


def read_part(
    path: Path, name: Literal["val", "test"]
) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
    """Read the predictions of one part alone, and the classes of their columns."""
    with np.load(path, allow_pickle=False) as arrays:
        return arrays[name].astype(np.float64), arrays.get("classes")


def read_predictions(path: Path) -> Predictions:
    """Read the predictions beside the result at path."""
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as arrays:
        return Predictions(arrays["val"], arrays["test"], arrays.get("classes"))

"""Ensembles of trials: the best of a search, weighted by what they say of its rows.

The validation rows choose the members, their weights and a temperature. What is kept
of the test rows is read by nobody before the ensemble is scored, as a run of its own.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tabr.bench.protocol import current_versions
from tabr.bench.results import (
    Plan,
    Predictions,
    Result,
    all_scores,
    current_commit,
    labels_of,
    read_part,
    result_path,
    write,
)
from tabr.bench.runs import Log, Run, Summary, scores_text
from tabr.bench.tasks.task import SplitTable, Task, check_files, load
from tabr.errors import DataError
from tabr.metrics import codes_of
from tabr.prediction.blend import blend_weights, temperature, tempered
from tabr.tables.files import write_bytes

Floats = NDArray[np.float64]

# Trials that may become members. Each brings a weight to be learned from the very rows
# by which all trials were stopped and ranked: with a hundred of them the luckiest would
# be taken for the best. And who asks the ensemble asks each member.
MOST_MEMBERS = 12
NOTE = (
    "The validation rows chose the best trial, the members, their weights and the"
    " temperature, so both validation scores flatter: rows that chose nothing, as the"
    " test rows, tell how good it is."
)


@dataclass(frozen=True)
class TrialMember:
    """A trial as a member of an ensemble.

    Attributes:
        trial: Its number in the search.
        params: All parameters of the method.
        val: Its score of the validation rows, by the measure of the search.
        seconds: Time of its fit.
        predictions: File of its predictions, seen from the folder of the task.
        hardware: Where it ran; None if it is from before that was kept.
        n_parameters: Trained numbers, where that is known.
        weight: How much it counts in the mean.
    """

    trial: int
    params: dict[str, Any]
    val: float
    seconds: float
    predictions: str
    hardware: str | None = None
    n_parameters: int | None = None
    weight: float = 0.0

    def part(
        self, folder: Path, name: Literal["val", "test"]
    ) -> tuple[Floats, NDArray[Any] | None]:
        """Return its predictions of a part, and the classes; `folder` is the task's."""
        path = folder / self.predictions
        if not path.is_file():
            raise DataError(
                f"an ensemble needs the predictions of its members, however {path} is"
                " not there: run the same `tabr tune --ensemble` again"
            )
        return read_part(path, name)


@dataclass(frozen=True)
class TrialEnsemble:
    """The weighted mean of trials of one search.

    The weights make squared error or log loss small, whatever the scoring is: others
    have no best weights that few rows could tell.

    Attributes:
        method: The method of the search.
        scoring: Its measure; None is the paper's.
        metric: The name of that measure.
        seed: The seed of its trials' models.
        trials: Complete trials with predictions, from which it was chosen.
        members: Those that count, the best trial first; their weights sum to one.
        temperature: What the logarithms of the mean probabilities are divided by; 1 for
            values.
        val: The measure of the validation rows; it flatters, and so does the next.
        best_val: That of the best trial alone.
    """

    method: str
    scoring: str | None
    metric: str
    seed: int
    trials: int
    members: tuple[TrialMember, ...]
    temperature: float
    val: float
    best_val: float

    def predictions(self, folder: Path) -> Predictions:
        """Return what it predicts; `folder` is the task's."""
        weights = [member.weight for member in self.members]
        means = {}
        for name in ("val", "test"):
            pairs = [member.part(folder, name) for member in self.members]
            mean = weighted_mean([values for values, _ in pairs], weights)
            _, classes = pairs[0]
            means[name] = tempered(mean, self.temperature)
        return Predictions(means["val"], means["test"], classes)

    def to_json(self) -> dict[str, Any]:
        """Return it as its file has it."""
        return {**dataclasses.asdict(self), "note": NOTE}


# --- the choice -------------------------------------------------------------------


def choose_ensemble(
    trials: Sequence[TrialMember],
    task: Task,
    plan: Plan,
    seed: int,
    y: NDArray[Any],
    folder: Path,
) -> TrialEnsemble | None:
    """Return the ensemble of the best of these trials; None if there are none.

    Args:
        trials: Complete trials with predictions, the best first.
        task: What is predicted.
        plan: The method and the scoring of the search.
        seed: The seed of the trials' models.
        y: The labels of the validation rows (n,).
        folder: Of the task, seen from which members name their predictions.
    """
    members, predictions, classes = _entrants(trials, folder)
    if not members:
        return None
    codes = None if classes is None else codes_of(labels_of(y, classes), classes)
    # A row of a class that no trial knows teaches nothing about them.
    known = slice(None) if codes is None else codes >= 0
    taught = None if codes is None else codes[known]
    weights = _rounded(
        blend_weights(np.stack([p[known] for p in predictions]), y[known], taught)
    )
    mean, best = weighted_mean(predictions, weights.tolist()), 1.0
    if taught is not None:
        best = round(temperature(lambda t: tempered(mean[known], t), taught), 3)
    measure = task.measure(plan.scoring)
    chosen = [
        replace(member, weight=weight)
        for member, weight in zip(members, weights.tolist(), strict=True)
        if weight > 0
    ]
    return TrialEnsemble(
        method=plan.method,
        scoring=plan.scoring,
        metric=measure.name,
        seed=seed,
        trials=len(trials),
        members=tuple(chosen),
        temperature=best,
        val=all_scores(task, y, tempered(mean, best), classes)[measure.name],
        best_val=members[0].val,
    )


def _entrants(
    trials: Iterable[TrialMember], folder: Path
) -> tuple[list[TrialMember], list[Floats], NDArray[Any] | None]:
    """Return the trials that may become members, and what they predict."""
    members, predictions = list[TrialMember](), list[Floats]()
    classes: NDArray[Any] | None = None
    for trial in trials:
        values, classes = trial.part(folder, "val")
        # A network that went astray may have an accuracy: it "predicts" some class.
        if np.isfinite(values).all():
            members.append(trial)
            predictions.append(values)
        if len(members) == MOST_MEMBERS:
            break
    return members, predictions, classes


def _rounded(weights: Floats) -> Floats:
    """Return weights that sum to one with four decimals.

    The others mean nothing, and may differ from one machine to another.
    """
    rounded = np.round(weights, 4)
    rounded[rounded.argmax()] += 1 - rounded.sum()
    return np.round(rounded, 4)


def weighted_mean(predictions: Sequence[Floats], weights: Sequence[float]) -> Floats:
    """Return the sum of predictions (n,) or (n, classes) times their weights."""
    total = np.zeros(predictions[0].shape)
    for values, weight in zip(predictions, weights, strict=True):
        total += weight * values
    return total


# --- files ------------------------------------------------------------------------


def task_folder(out: Path, task: Task) -> Path:
    """Return the folder of all that is known of a table."""
    return out / task.benchmark / task.name


def ensemble_path(
    out: Path, task: Task, method: str, scoring: str | None = None
) -> Path:
    """Return the file of a search's ensemble, beside that of its best trial."""
    name = Plan(method, "retuned", scoring=scoring).name
    return task_folder(out, task) / name / f"split-{task.split}-ensemble.json"


def write_ensemble(ensemble: TrialEnsemble, out: Path, task: Task) -> None:
    """Write an ensemble, whole or not at all."""
    path = ensemble_path(out, task, ensemble.method, ensemble.scoring)
    text = json.dumps(ensemble.to_json(), indent=1, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def read_ensemble(
    out: Path, task: Task, method: str, scoring: str | None = None
) -> TrialEnsemble:
    """Read what `write_ensemble` wrote when the search was last run."""
    path = ensemble_path(out, task, method, scoring)
    if not path.is_file():
        option = f" --scoring {scoring}" if scoring else ""
        raise DataError(
            f"an ensemble of trials must have been chosen, however {path} is not"
            f" there: run `tabr tune --ensemble{option}` for {method} first"
        )
    content: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    fields = {name: content[name] for name in content if name != "note"}
    members = tuple(TrialMember(**member) for member in fields.pop("members"))
    return TrialEnsemble(**fields, members=members)


# --- the score --------------------------------------------------------------------


def score_ensembles(
    runs: Iterable[Run], folder: Path | None, out: Path, log: Log = print
) -> Summary:
    """Score the ensembles of searches as runs, and return how many there are.

    Nothing is fitted, so all are scored anew: a search that has gone on may have
    another ensemble. The tables are in `folder`, and results go to `out`.
    """
    pairs = [
        (run, read_ensemble(out, run.task, run.plan.method, run.plan.scoring))
        for run in runs
    ]
    check_files((run.task for run, _ in pairs), folder)
    load_cached = lru_cache(maxsize=1)(partial(load, folder=folder))
    for run, ensemble in pairs:
        task, plan = run.task, run.plan
        predictions = ensemble.predictions(task_folder(out, task))
        result = _result(run, ensemble, predictions, load_cached(task))
        write(result, result_path(out, task, run.seed, plan), predictions)
        n_members = len(ensemble.members)
        log(f"{run}: {scores_text(result, task, plan.scoring)}, {n_members} members")
    return Summary(0, n_done=len(pairs))


def _result(
    run: Run, ensemble: TrialEnsemble, predictions: Predictions, parts: SplitTable
) -> Result:
    """Return the result of an ensemble; its seconds are those of its members' fits."""
    task, members = run.task, ensemble.members
    val, test = predictions.scores(task, parts)
    sizes = [m.n_parameters for m in members if m.n_parameters is not None]
    hardware = dict.fromkeys(member.hardware or "unknown" for member in members)
    return Result(
        benchmark=task.benchmark,
        task=task.name,
        method=run.plan.name,
        split=task.split,
        seed=run.seed,
        params={
            "temperature": ensemble.temperature,
            "members": [
                {"trial": m.trial, "weight": m.weight, "params": m.params}
                for m in members
            ],
        },
        test=test,
        val=val,
        seconds=round(sum(member.seconds for member in members), 3),
        best_epoch=None,
        n_parameters=sum(sizes) if len(sizes) == len(members) else None,
        hardware=" and ".join(hardware),
        workers=1,
        versions=current_versions(),
        commit=current_commit(),
        scores=predictions.all_scores(task, parts),
    )

"""Tuning: Optuna's TPE on the validation score, many trials, by as many workers.

A trial is a run like any other. What Optuna knows lives in a database, SQLite beside
the results or any that SQLAlchemy reaches, so that a stopped search goes on where it
was, and several machines can share one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tabr.bench.methods import METHODS
from tabr.bench.protocol import run_one
from tabr.bench.results import Plan, Result
from tabr.bench.tasks.task import SplitTable, Task
from tabr.bench.workers import Failure, Place, WorkerPool
from tabr.errors import DataError
from tabr.optional import require
from tabr.tables.files import write_bytes

# Trials of the paper.
N_TRIALS = 100
N_TRIALS_OF = {"xgboost": 200, "lightgbm": 200, "catboost": 200}
PATIENCE = 5  # trials that may fail one after the other


@dataclass(frozen=True)
class Search:
    """A search for the parameters of a method on a task.

    Attributes:
        task: Table and split.
        method: What is tuned.
        storage: Database of the trials, as SQLAlchemy writes addresses.
        n_trials: Trials in all; None is the paper's number.
        seed: Of the sampler and of every trial's model.
        prunes: Whether trials that fall behind the others are ended early.
        fixed: Parameters that are not searched for.
    """

    task: Task
    method: str
    storage: str
    n_trials: int | None = None
    seed: int = 0
    prunes: bool = False
    fixed: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the search in the database."""
        return f"{self.task.label}/split-{self.task.split}/{self.method}"

    def __str__(self) -> str:
        return f"{self.method} {self.task.label} split {self.task.split}"

    @property
    def n_wanted(self) -> int:
        """Return how many trials there shall be."""
        if self.n_trials is not None:
            return self.n_trials
        return N_TRIALS_OF.get(self.method, N_TRIALS)

    def study(self) -> Any:
        """Open the search in the database, or begin it there."""
        optuna = require("optuna", extra="tune")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        pruner = optuna.pruners.NopPruner()
        if self.prunes:
            pruner = optuna.pruners.MedianPruner(n_warmup_steps=8)
        return optuna.create_study(
            storage=_opened(self.storage),
            study_name=self.name,
            direction="maximize",
            load_if_exists=True,
            pruner=pruner,
        )

    def n_done(self) -> int:
        """Count the trials that are done, of everybody who shares the database."""
        states = self._states()
        return states.count("COMPLETE") + states.count("PRUNED")

    def has_found(self) -> bool:
        """Tell whether there is a best trial."""
        return "COMPLETE" in self._states()

    def _states(self) -> list[str]:
        trials = self.study().get_trials(deepcopy=False)
        return [trial.state.name for trial in trials]

    def do(self, parts: SplitTable, place: Place) -> Result | None:
        """Do one trial and tell the database; None if it was ended early."""
        optuna = require("optuna", extra="tune")
        study = self.study()
        results: list[Result] = []

        def objective(trial: Any) -> float:
            study.sampler = self._sampler(trial.number, place.workers)
            chosen = METHODS[self.method].space(trial)

            def on_epoch(epoch: int, score: float) -> None:
                trial.report(score, epoch)
                if trial.should_prune():
                    raise optuna.TrialPruned

            result, _ = run_one(
                self.task,
                parts,
                self.seed,
                place,
                plan=Plan(self.method, "trial", {**chosen, **dict(self.fixed)}),
                on_epoch=on_epoch if self.prunes else None,
            )
            results.append(result)
            trial.set_user_attr("params", result.params)
            trial.set_user_attr("val", result.val)
            trial.set_user_attr("seconds", result.seconds)
            return result.val if self.task.metric == "accuracy" else -result.val

        study.optimize(objective, n_trials=1)
        return results[0] if results else None

    def _sampler(self, number: int, n_workers: int) -> Any:
        """Return the sampler of one trial.

        Each trial has a seed of its own. One worker counts the trials that are done:
        a search that was stopped then goes on as if it had not been. Several workers
        take the trial's number, so that no two draw the same.
        """
        optuna = require("optuna", extra="tune")
        return optuna.samplers.TPESampler(
            seed=self.seed * 1_000_003 + (self.n_done() if n_workers == 1 else number),
            n_startup_trials=20 if self.n_wanted >= 200 else 10,  # as in the paper
            multivariate=False,
            constant_liar=n_workers > 1,
        )

    def best(self) -> dict[str, Any]:
        """Return what the best trial ran with, and how good it was."""
        best, states = self.study().best_trial, self._states()
        return {
            "method": self.method,
            "params": best.user_attrs["params"],
            "metric": self.task.metric,
            "val": best.user_attrs["val"],
            "trial": best.number,
            "trials": states.count("COMPLETE"),
            "pruned": states.count("PRUNED"),
            "failed": states.count("FAIL"),
            "seed": self.seed,
        }


@cache
def _opened(address: str) -> Any:
    """Open a database once in each process."""
    optuna = require("optuna", extra="tune")
    try:
        try:
            return optuna.storages.RDBStorage(address)
        except Exception:  # another process may have made the same tables meanwhile
            time.sleep(1.0)
            return optuna.storages.RDBStorage(address)
    except Exception as error:  # SQLAlchemy's and every driver's own
        reason = str(error).strip().splitlines()[0]
        hidden = address.split("@")[-1]  # without a password
        raise DataError(
            f"trials need a database that can be opened, however {hidden} cannot:"
            f" {reason}; see --storage"
        ) from error


def choice_path(out: Path, task: Task, method: str) -> Path:
    """Return the file that keeps what a search has found."""
    folder = out / task.benchmark / task.name / f"{method}-retuned"
    return folder / f"split-{task.split}-params.json"


def read_choice(out: Path, task: Task, method: str) -> dict[str, Any]:
    """Return the parameters that a search has found."""
    path = choice_path(out, task, method)
    if not path.is_file():
        raise DataError(
            f"retuned parameters must have been searched for, however {path} is not"
            f" there: run `tabr tune` for {method} first"
        )
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    params: dict[str, Any] = content["params"]
    return params


def tune(
    searches: Sequence[Search],
    team: WorkerPool,
    out: Path,
    remaining: Callable[[], float | None] = lambda: None,
) -> int:
    """Do the trials that are missing, and keep what each search has found.

    Who shares the database with others may find that it has a few trials too many.

    Args:
        searches: What to search for.
        team: Who does the trials.
        out: Where the choices are kept.
        remaining: Returns the seconds left, or None.

    Returns:
        How many searches are not complete.
    """
    n_open = 0
    for search in searches:
        n_done = _complete(search, team, remaining)
        n_open += n_done < search.n_wanted
        if n_done < search.n_wanted:
            print(
                f"{search}: {n_done} of {search.n_wanted} trials; run it again to go on"
            )
        if search.has_found():
            text = json.dumps(search.best(), indent=1) + "\n"
            write_bytes(choice_path(out, search.task, search.method), text.encode())
    return n_open


def _complete(
    search: Search, team: WorkerPool, remaining: Callable[[], float | None]
) -> int:
    """Do trials until there are enough; return how many there are."""
    n_done, failures = search.n_done(), 0
    print(f"{search}: {max(0, search.n_wanted - n_done)} trials to do, {n_done} done")
    while failures < PATIENCE:
        left = remaining()
        if team.n_idle and n_done + team.n_busy < search.n_wanted and left != 0:
            team.give(search)
            continue
        ended = team.ended(left) if team.n_busy else []
        if not ended:
            break
        n_done = search.n_done()
        for _, answer in ended:
            failures = failures + 1 if isinstance(answer, Failure) else 0
            _say(search, answer, n_done)
    return n_done


def _say(search: Search, answer: Any, n_done: int) -> None:
    """Tell how a trial has ended."""
    about = f"{search} trial {n_done} of {search.n_wanted}"
    if isinstance(answer, Failure):
        text = f"FAILED, {answer.reason}"
    elif answer is None:
        text = "fell behind and was ended"
    else:
        best = search.best()["val"]
        text = f"{search.task.metric} {answer.val:.6g} (best {best:.6g}),"
        text += f" {answer.seconds:.1f} s"
    print(f"{about}: {text}", flush=True)

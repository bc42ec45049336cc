"""A search for parameters: Optuna's TPE on the validation score, trial by trial.

A trial is a run like any other. Optuna's trials live in a database, SQLite beside the
results or any that SQLAlchemy reaches, so that a stopped search goes on where it was,
and several machines can share one.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tabr.bench.methods import METHODS
from tabr.bench.parameters import check_libraries, check_methods
from tabr.bench.protocol import run_seeds
from tabr.bench.results import Plan, Predictions, Result, scoring_suffix
from tabr.bench.tasks.task import SplitTable, Task
from tabr.bench.trial_ensembles import TrialMember, task_folder
from tabr.bench.workers import Resources
from tabr.errors import DataError, TrainingError
from tabr.metrics import Measure
from tabr.optional import require

N_TRIALS = 100  # as in the paper
N_TRIALS_OF = {"xgboost": 200, "lightgbm": 200, "catboost": 200}
_SQLITE = "sqlite:///"


@dataclass(frozen=True)
class Trial:
    """What a trial gave.

    Attributes:
        params: All parameters of the method.
        result: Its result; of the test rows it is never looked at.
        predictions: Of the validation and the test rows, if the search keeps them.
    """

    params: dict[str, Any]
    result: Result
    predictions: Predictions | None = None


@dataclass(frozen=True)
class Search:
    """A search for the parameters of a method on a task.

    Attributes:
        task: Table and split.
        method: The method that is tuned.
        storage: Database of the trials, as SQLAlchemy writes addresses.
        n_trials: Trials in all.
        seed: Of the sampler and of every trial's model.
        prunes: Whether trials that fall behind the others are ended early.
        fixed: Parameters that are not searched for.
        scoring: The measure of the validation rows that the search makes best; None is
            the paper's.
        keeps_predictions: Whether the predictions of complete trials are kept, and an
            ensemble is chosen from them.
    """

    task: Task
    method: str
    storage: str
    n_trials: int = N_TRIALS
    seed: int = 0
    prunes: bool = False
    fixed: tuple[tuple[str, Any], ...] = ()
    scoring: str | None = None
    keeps_predictions: bool = False

    @property
    def name(self) -> str:
        """The name of the search in the database; each scoring has trials of its own.

        >>> from tabr.bench.tasks.catalog import select
        >>> Search(select(["adult"])[0], "mlp", "sqlite://", scoring="roc-auc").name
        'adult/split-0/mlp@roc-auc'
        """
        method = f"{self.method}{scoring_suffix(self.scoring)}"
        return f"{self.task.label}/split-{self.task.split}/{method}"

    @property
    def measure(self) -> Measure:
        """What the search makes best."""
        return self.task.measure(self.scoring)

    def __str__(self) -> str:
        method = f"{self.method}{scoring_suffix(self.scoring)}"
        return f"{method} {self.task.label} split {self.task.split}"

    def plan(self, params: Mapping[str, Any]) -> Plan:
        """Return the plan of a trial with these parameters."""
        return Plan(self.method, "trial", params, self.scoring)

    def score(self, result: Result) -> float:
        """Return a trial's score of the validation rows, by the measure."""
        if self.scoring is None:
            return result.val
        score = result.score(self.measure, "val")
        if score is None:
            raise TrainingError(
                f"a trial must have a {self.measure.name} of the validation rows,"
                " however its predictions have none: they are not finite"
            )
        return score

    def study(self) -> Any:
        """Return the search in the database; it is made if it is new."""
        optuna = require("optuna", extra="tune")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        pruner = optuna.pruners.NopPruner()
        if self.prunes:
            pruner = optuna.pruners.MedianPruner(n_warmup_steps=8)
        return optuna.create_study(
            storage=_open_storage(self.storage),
            study_name=self.name,
            direction="maximize",
            load_if_exists=True,
            pruner=pruner,
        )

    def n_done(self) -> int:
        """Return how many trials are done, by all machines that share the database."""
        counts = self.counts()
        return counts["COMPLETE"] + counts["PRUNED"]

    def counts(self) -> Counter[str]:
        """Return the numbers of trials by their state, such as "COMPLETE"."""
        trials = self.study().get_trials(deepcopy=False)
        return Counter(trial.state.name for trial in trials)

    def run(self, parts: SplitTable, resources: Resources) -> Trial | None:
        """Run one trial and store it; return None if it was ended early."""
        optuna = require("optuna", extra="tune")
        study = self.study()
        trials: list[Trial] = []

        def objective(trial: Any) -> float:
            study.sampler = self._sampler(trial.number, resources.workers)
            params = {**METHODS[self.method].space(trial), **dict(self.fixed)}

            def on_epoch(epoch: int, score: float) -> None:
                trial.report(score, epoch)
                if trial.should_prune():
                    raise optuna.TrialPruned

            watch = on_epoch if self.prunes else None
            done = self.fit(params, parts, resources, watch)
            trials.append(done)
            score = self.score(done.result)
            trial.set_user_attr("params", done.params)
            for name in ("seconds", "hardware", "n_parameters"):
                trial.set_user_attr(name, getattr(done.result, name))
            trial.set_user_attr("val", score)
            return self.measure.sign * score

        study.optimize(objective, n_trials=1)
        return trials[0] if trials else None

    def fit(
        self,
        params: Mapping[str, Any],
        parts: SplitTable,
        resources: Resources,
        on_epoch: Callable[[int, float], None] | None = None,
    ) -> Trial:
        """Return a trial with these parameters; nothing is stored."""
        about = self.task, parts, [self.seed], resources, self.plan(params)
        ((result, predictions),) = run_seeds(*about, on_epoch)
        kept = predictions if self.keeps_predictions else None
        return Trial(result.params, result, kept)

    def predictions_paths(self, out: Path) -> dict[Path, dict[str, Any]]:
        """Return where predictions of complete trials are kept, and their parameters.

        Whether or not they are there yet.
        """
        chosen = (trial.user_attrs["params"] for trial in self._complete())
        return {self.predictions_path(out, params): params for params in chosen}

    def members(self, out: Path) -> list[TrialMember]:
        """Return the trials whose predictions are kept, the best first.

        Equal trials share their predictions, and are there once.
        """
        folder, members = task_folder(out, self.task), dict[Path, TrialMember]()
        for trial in sorted(self._complete(), key=lambda t: (-t.value, t.number)):
            about = trial.user_attrs
            path = self.predictions_path(out, about["params"])
            if path in members or not path.is_file():
                continue
            members[path] = TrialMember(
                trial=trial.number,
                params=about["params"],
                val=about["val"],
                seconds=about["seconds"],
                predictions=path.relative_to(folder).as_posix(),
                hardware=about.get("hardware"),
                n_parameters=about.get("n_parameters"),
            )
        return list(members.values())

    def predictions_path(self, out: Path, params: Mapping[str, Any]) -> Path:
        """Return the file of a trial's predictions; equal trials share one."""
        text = json.dumps([self.seed, params], sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        plan = f"{self.method}-trials{scoring_suffix(self.scoring)}"
        file = f"split-{self.task.split}-{name}.npz"
        return task_folder(out, self.task) / plan / file

    def _complete(self) -> list[Any]:
        trials = self.study().get_trials(deepcopy=False)
        return [trial for trial in trials if trial.state.name == "COMPLETE"]

    def _sampler(self, number: int, n_workers: int) -> Any:
        """Return the sampler of one trial.

        Each trial has a seed of its own. One worker counts the trials that are done:
        a search that was stopped then goes on as if it had not been. Several workers
        take the trial's number, so that no two draw the same.
        """
        optuna = require("optuna", extra="tune")
        return optuna.samplers.TPESampler(
            seed=self.seed * 1_000_003 + (self.n_done() if n_workers == 1 else number),
            n_startup_trials=20 if self.n_trials >= 200 else 10,  # as in the paper
            multivariate=False,
            constant_liar=n_workers > 1,
        )

    def best(self) -> dict[str, Any]:
        """Return the parameters of the best trial, its score, and counts of trials."""
        best, counts = self.study().best_trial, self.counts()
        return {
            "method": self.method,
            "params": best.user_attrs["params"],
            "metric": self.measure.name,
            "scoring": self.scoring,
            "val": best.user_attrs["val"],
            "trial": best.number,
            "trials": counts["COMPLETE"],
            "pruned": counts["PRUNED"],
            "failed": counts["FAIL"],
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Again:
    """A complete trial that is run again, for its predictions."""

    search: Search
    params: dict[str, Any]

    @property
    def task(self) -> Task:
        """The table and split of its search."""
        return self.search.task

    def run(self, parts: SplitTable, resources: Resources) -> Trial:
        """Return the trial, which the database has already."""
        return self.search.fit(self.params, parts, resources)


def searches_of(
    tasks: Sequence[Task],
    methods: Sequence[str],
    storage: str,
    n_trials: int | None = None,
    **options: Any,
) -> list[Search]:
    """Return a search for each task and each method that can predict it.

    A method that cannot be tuned is refused, and so is a scoring of other tasks.
    Without a number of trials it is the paper's; the options are the other attributes
    of `Search`.
    """
    require("optuna", extra="tune")
    names = list(dict.fromkeys(methods))
    check_methods(names)
    for name in names:
        if METHODS[name].method.needs_no_tuning:
            raise DataError(
                f"a method must have parameters to tune, however {name} has none or"
                " chooses them by itself: leave it out"
            )
    check_libraries(names)
    if options.get("scoring") is not None:
        for task in tasks:
            task.measure(options["scoring"])
    return [
        Search(
            task, name, storage, n_trials or N_TRIALS_OF.get(name, N_TRIALS), **options
        )
        for task in tasks
        for name in names
        if task.kind in METHODS[name].method.outcomes
    ]


# --- databases and files ----------------------------------------------------------


def sqlite_storage(out: Path) -> str:
    """Return the address of the database in a folder of results."""
    return f"{_SQLITE}{(out / 'tuning.db').resolve()}"


@cache
def _open_storage(address: str) -> Any:
    """Return an open database, one for each process."""
    optuna = require("optuna", extra="tune")
    if address.startswith(_SQLITE):
        Path(address.removeprefix(_SQLITE)).parent.mkdir(parents=True, exist_ok=True)
    with suppress(Exception):
        return optuna.storages.RDBStorage(address)
    time.sleep(1.0)  # another process may have made the same tables meanwhile
    try:
        return optuna.storages.RDBStorage(address)
    except Exception as error:  # SQLAlchemy's and every driver's own
        reason = str(error).strip().splitlines()[0]
        host = address.split("@")[-1]  # without a password
        raise DataError(
            f"trials need a database that can be opened, however {host} cannot:"
            f" {reason}; see --storage"
        ) from error


def best_params_path(
    out: Path, task: Task, method: str, scoring: str | None = None
) -> Path:
    """Return the file of the best trial of a search."""
    name = Plan(method, "retuned", scoring=scoring).name
    return task_folder(out, task) / name / f"split-{task.split}-params.json"


def read_best(
    out: Path, task: Task, method: str, scoring: str | None = None
) -> dict[str, Any]:
    """Return what `Search.best` returned when the search was last run."""
    path = best_params_path(out, task, method, scoring)
    if not path.is_file():
        option = f" --scoring {scoring}" if scoring else ""
        raise DataError(
            f"retuned parameters must have been searched for, however {path} is not"
            f" there: run `tabr tune{option}` for {method} first"
        )
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content

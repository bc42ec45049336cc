"""Tuning: the trials of searches, by several workers, and what they found on disk."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from tabr.bench.results import Plan, write_predictions
from tabr.bench.runs import Log, stopping_note
from tabr.bench.searches import Again, Search, Trial, best_params_path
from tabr.bench.tasks.task import SplitTable, check_files, load
from tabr.bench.trial_ensembles import choose_ensemble, task_folder, write_ensemble
from tabr.bench.workers import Failure, Resources, WorkerPool, countdown, open_pool
from tabr.tables.files import write_bytes

MOST_FAILURES = 5  # trials that may fail one after the other


def tune(
    searches: Sequence[Search],
    folder: Path | None,
    out: Path,
    resources: Resources,
    *,
    budget_seconds: float | None = None,
    log: Log = print,
) -> int:
    """Run the trials that are missing and write the best; return the open searches.

    A search that keeps predictions also has its ensemble written. The tables are in
    `folder`, results go to `out`, and after `budget_seconds` what still runs is ended.
    Where machines share a database, it may end with a few trials too many.
    """
    check_files((search.task for search in searches), folder)
    n_trials = max((search.n_trials for search in searches), default=1)
    resources = replace(resources, workers=min(resources.workers, n_trials))
    seconds_left = countdown(budget_seconds)
    load_cached = lru_cache(maxsize=1)(partial(load, folder=folder))
    n_open = 0
    with open_pool(resources.workers, folder, resources) as pool:
        for search in searches:
            n_done = _complete(search, pool, out, seconds_left, log)
            n_lacking = 0
            if search.keeps_predictions:
                n_lacking = _predict_again(search, pool, out, seconds_left, log)
            if n_done < search.n_trials or n_lacking:
                n_open += 1
                lacking = f", {n_lacking} without predictions" if n_lacking else ""
                log(
                    f"{search}: {n_done} of {search.n_trials} trials{lacking};"
                    " run it again to go on"
                )
            if search.counts()["COMPLETE"]:
                path = best_params_path(out, search.task, search.method, search.scoring)
                write_bytes(path, (json.dumps(search.best(), indent=1) + "\n").encode())
                if search.keeps_predictions:
                    _choose(search, load_cached(search.task), out)
    return n_open


def _complete(
    search: Search,
    pool: WorkerPool,
    out: Path,
    seconds_left: Callable[[], float | None],
    log: Log,
) -> int:
    """Run trials until there are enough; return how many there are."""
    n_done, n_failures, notes = search.n_done(), 0, set[str]()
    log(f"{search}: {max(0, search.n_trials - n_done)} trials to do, {n_done} done")
    while n_failures < MOST_FAILURES:
        timeout = seconds_left()
        if pool.n_idle and n_done + pool.n_busy < search.n_trials and timeout != 0:
            pool.submit(search)
            continue
        finished = pool.finished(timeout)
        if not finished:
            break
        n_done = search.n_done()
        for _, outcome in finished:
            n_failures = n_failures + 1 if isinstance(outcome, Failure) else 0
            log(_trial_text(search, outcome, n_done))
            if isinstance(outcome, Trial):
                _keep_predictions(search, outcome, out)
                note = stopping_note(outcome.result, search.plan({}), search.task)
                if note and note not in notes:
                    notes.add(note)
                    log(note)
    return n_done


def _predict_again(
    search: Search,
    pool: WorkerPool,
    out: Path,
    seconds_left: Callable[[], float | None],
    log: Log,
) -> int:
    """Run complete trials again that lack predictions; return how many still do.

    They are those of a search that did not keep them, of other machines, or of a
    command that was ended between a trial and its file.
    """
    paths = search.predictions_paths(out)
    waiting = deque(params for path, params in paths.items() if not path.is_file())
    if waiting:
        log(f"{search}: {len(waiting)} trials to run again, for their predictions")
    while waiting or pool.n_busy:
        while waiting and pool.n_idle and seconds_left() != 0:
            pool.submit(Again(search, waiting.popleft()))
        finished = pool.finished(seconds_left())
        if not finished:
            break
        for _, outcome in finished:
            if isinstance(outcome, Failure):
                log(f"{search}: FAILED, {outcome.reason}")
            elif isinstance(outcome, Trial):
                _keep_predictions(search, outcome, out)
    n_lacking = sum(not path.is_file() for path in paths)
    for folder in {path.parent for path in paths}:
        log(f"{search}: predictions of {len(paths) - n_lacking} trials are in {folder}")
    return n_lacking


def _keep_predictions(search: Search, trial: Trial, out: Path) -> None:
    if trial.predictions is not None:
        path = search.predictions_path(out, trial.params)
        write_predictions(trial.predictions, path)


def _choose(search: Search, parts: SplitTable, out: Path) -> None:
    """Write the ensemble of the trials that there are."""
    task, plan = search.task, Plan(search.method, scoring=search.scoring)
    about = task, plan, search.seed, parts.val.y, task_folder(out, task)
    ensemble = choose_ensemble(search.members(out), *about)
    if ensemble is not None:
        write_ensemble(ensemble, out, task)


def _trial_text(search: Search, outcome: Trial | Failure | None, n_done: int) -> str:
    start = f"{search} trial {n_done} of {search.n_trials}:"
    if isinstance(outcome, Failure):
        return f"{start} FAILED, {outcome.reason}"
    if outcome is None:
        return f"{start} fell behind and was ended"
    result = outcome.result
    scores = f"{search.score(result):.6g} (best {search.best()['val']:.6g})"
    return f"{start} {search.measure.name} {scores}, {result.seconds:.1f} s"

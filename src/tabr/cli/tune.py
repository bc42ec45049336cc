"""The command `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tabr.cli import bench, options
from tabr.cli.messages import Result, common, say

if TYPE_CHECKING:
    from tabr.bench.tasks.selection import TaskSelection


@click.command()
@bench.task_options
@bench.names_option("--methods", default="tabr-s", help="Methods to tune.")
@options.count("--trials", help="Trials in all.  [default: as in the paper]")
@options.scoring(
    help="The score of the validation rows to make best, and to stop early by:"
    f" {options.MEASURES}; or scikit-learn's name of it.  [default: RMSE or accuracy]"
)
@click.option("--seed", type=click.IntRange(0), default=0, help="For trials.")
@click.option("--prune", is_flag=True, help="End trials early that fall behind.")
@click.option(
    "--ensemble",
    "keeps_predictions",
    is_flag=True,
    help="Weigh the best trials as an ensemble, too, by the validation rows; all"
    " trials' predictions are kept.",
)
@bench.params_option(help="Parameters that are not tuned.")
@click.option(
    "--storage",
    metavar="URL",
    help="Database of the trials, for many machines, such as"
    " postgresql+psycopg://user@host/name.  [default: SQLite in --out]",
)
@bench.out_option
@bench.worker_options
@common
def tune(
    selection: TaskSelection,
    methods: list[str],
    trials: int | None,
    scoring: str | None,
    seed: int,
    prune: bool,
    keeps_predictions: bool,
    params: dict[str, Any],
    storage: str | None,
    out: Path,
    resources: Any,
    budget: float | None,
) -> Result:
    """Search for good parameters on TABLE, by the validation score.

    A search that was stopped goes on where it was. Test rows are not looked at: `tabr
    bench run --config retuned` scores the best trial, and `--config retuned-ensemble`
    the ensemble of `--ensemble`.
    """
    from tabr.bench import search_text, searches, trial_ensembles, tuning

    chosen = searches.searches_of(
        selection.available_tasks(say),
        methods,
        storage or searches.sqlite_storage(out),
        n_trials=trials,
        seed=seed,
        prunes=prune,
        fixed=tuple(params.items()),
        scoring=scoring,
        keeps_predictions=keeps_predictions,
    )
    with bench.resumable():
        n_open = tuning.tune(
            chosen, selection.folder, out, resources, budget_seconds=budget, log=say
        )
    records, texts = [], []
    for search in chosen:
        about = out, search.task, search.method, search.scoring
        path = searches.best_params_path(*about)
        if path.is_file():
            best = searches.read_best(*about)
            place = {"task": search.task.label, "split": search.task.split}
            record = {**place, **best, "path": str(path), "ensemble": None}
            texts.append(f"{search_text.best_text(best, search.task)}\nkept in {path}")
            path = trial_ensembles.ensemble_path(*about)
            if keeps_predictions and path.is_file():
                ensemble = trial_ensembles.read_ensemble(*about)
                record["ensemble"] = {**ensemble.to_json(), "path": str(path)}
                text = search_text.ensemble_text(ensemble, search.task)
                texts.append(f"{text}\nkept in {path}")
            records.append(record)
    content = {"incomplete_searches": n_open, "best": records}
    return Result(content, "\n\n".join(texts), code=1 if n_open else 0)

"""The command `fit`."""

from __future__ import annotations

import ast
import inspect
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tabr.cli.files import (
    check_column,
    check_output,
    closest,
    file_type,
    output_type,
    read_table,
    table_argument,
)
from tabr.cli.messages import Mistake, common, say, show, show_json

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("numeric", "binary", "categorical", "date")
# Parameters of the estimators that have an option of their own.
OPTIONS = {
    "n_members": "--members",
    "embedding": "--embedding",
    "random_state": "--seed",
    "device": "--device",
    "time_limit": "--time-limit",
    "max_epochs": "--max-epochs",
    "column_kinds": "--kind",
    "candidates": "--past-only and the like",
    "refit_candidates": "--refit-candidates",
    "ignore": "--drop",
    "verbose": "--quiet",
}


@click.command()
@table_argument
@click.option("--target", required=True, metavar="COL", help="The column to predict.")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="MODEL",
    type=output_type,
    help="The file to write.",
)
@click.option(
    "--task",
    type=click.Choice(["auto", "regression", "classification"]),
    default="auto",
    show_default=True,
)
@click.option("--validation", type=file_type, help="Rows to stop early by.")
@click.option("--weight", metavar="COL", help="The column that weighs the rows.")
@click.option(
    "--drop", metavar="COL", multiple=True, help="A column to ignore; repeatable."
)
@click.option(
    "--kind", metavar="COL=KIND", multiple=True, help=f"One of {', '.join(KINDS)}."
)
@click.option(
    "--past-only", metavar="COL", help="Times: only earlier rows become neighbours."
)
@click.option("--window", help="How far back they may lie, such as 365D.")
@click.option("--gap", help="How much time must lie between, such as 1D.")
@click.option(
    "--not-same-group",
    metavar="COL",
    multiple=True,
    help="Groups whose rows do not become each other's neighbours; repeatable.",
)
@click.option(
    "--same-group",
    metavar="COL",
    multiple=True,
    help="Groups whose rows have neighbours only among themselves; repeatable.",
)
@click.option(
    "--refit-candidates",
    is_flag=True,
    help="After training, validation rows become candidates too.",
)
@click.option(
    "--members",
    "n_members",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Networks whose predictions are averaged.",
)
@click.option(
    "--embedding",
    type=click.Choice(["lr", "plr", "plr-lite"]),
    help="How numbers are embedded.  [default: not at all]",
)
@click.option(
    "--seed", "random_state", type=click.IntRange(0), default=0, show_default=True
)
@click.option("--device", help="cpu, cuda, ...  [default: a GPU if there is one]")
@click.option("--time-limit", type=float, metavar="S", help="Seconds for each member.")
@click.option("--max-epochs", type=int, help="Stop after this many.")
@click.option(
    "--param",
    "pairs",
    metavar="NAME=VALUE",
    multiple=True,
    help="Any other parameter of the estimator, such as width=128.",
)
@click.option("--quiet", is_flag=True, help="No progress and no messages.")
@common
def fit(
    table: Path,
    target: str,
    output: Path,
    task: str,
    validation: Path | None,
    weight: str | None,
    drop: tuple[str, ...],
    kind: tuple[str, ...],
    past_only: str | None,
    window: str | None,
    gap: str | None,
    not_same_group: tuple[str, ...],
    same_group: tuple[str, ...],
    pairs: tuple[str, ...],
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Fit a model to TABLE and save it as MODEL."""
    check_output(output, [table, validation])
    frame = read_table(table)
    rule = _rule(past_only, window, gap, not_same_group, same_group)
    ruling = () if rule is None else rule.columns
    for name in ruling:
        check_column(frame, name, table)
    kinds: dict[str, Any] = dict(pair.rpartition("=")[::2] for pair in kind)
    if "" in kinds:
        raise Mistake(f"--kind must be like COL=KIND, however: {kinds['']!r}")
    for name in [target, *([weight] if weight else []), *drop, *kinds]:
        check_column(frame, name, table)
    note = (lambda text: None) if quiet else say
    if task == "auto":
        from tabr.tables.targets import choose_task

        task, reason = choose_task(frame[target])
        other = {"regression": "classification"}.get(task, "regression")
        note(f"{target!r} holds {reason}: {task} (if not, --task {other})")
    from tabr.estimators import TabRClassifier, TabRRegressor

    estimator = TabRRegressor if task == "regression" else TabRClassifier
    params = options | _params(pairs, estimator)
    verbose = not quiet and sys.stderr.isatty()
    # What a rule reads stays in the table, though it be no feature.
    ignored = [name for name in drop if name in ruling]
    model: Any = estimator(
        column_kinds=kinds or None,
        candidates=rule,
        ignore=ignored,
        verbose=verbose,
        **params,
    )
    left_out = [target, *([weight] if weight else []), *drop]
    left_out = [name for name in left_out if name not in ignored]

    def labelled(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series[Any]]:
        return rows.drop(columns=left_out, errors="ignore"), rows[target]

    eval_set = None
    if validation is not None:
        rows = read_table(validation)
        check_column(rows, target, validation)
        eval_set = labelled(rows)
    weights = _weights(frame[weight]) if weight else None
    note(f"fitting on {len(frame)} rows")
    start = time.perf_counter()
    model.fit(*labelled(frame), weights, eval_set=eval_set)
    seconds = time.perf_counter() - start
    model.save(output)
    histories = [member.history for member in model.members_]
    score = sum(history.best_score for history in histories) / len(histories)
    default = ("RMSE", -score) if task == "regression" else ("accuracy", score)
    name, value = default if model.scoring is None else (model.scoring, score)
    used = list(model.preprocessor_.kinds_.values())
    n_train = len(model.candidates_)
    n_weighed = len(frame) if weights is None else int((weights != 0).sum())
    n_validation = n_weighed - n_train if eval_set is None else len(eval_set[1])
    summary = {
        "model": str(output),
        "bytes": output.stat().st_size,
        "task": task,
        "target": target,
        "rows": n_train,
        "validation_rows": n_validation,
        "columns": {kind: used.count(kind) for kind in KINDS if kind in used},
        "constant_columns": list(model.preprocessor_.dropped),
        "members": len(histories),
        "validation_score": {"name": name, "value": value},
        "best_epoch": model.best_epoch_,
        "stopped": [history.stopped for history in histories],
        "seconds": round(seconds, 3),
    }
    if as_json:
        show_json(summary)
    else:
        show(_fit_text(summary))
    return 130 if histories[-1].stopped == "interrupted" else 0


def _rule(
    past_only: str | None,
    window: str | None,
    gap: str | None,
    not_same: tuple[str, ...],
    same: tuple[str, ...],
) -> Any:
    """Return the rule that options ask for: all of them must hold."""
    from tabr.candidates.rules import NotSameGroup, PastOnly, Rule, SameGroup

    if past_only is None and (window or gap):
        raise Mistake("--window and --gap need --past-only, which names the times")
    rules: list[Rule] = []
    if past_only is not None:
        rules.append(PastOnly(past_only, _span(window), _span(gap)))
    rules += [NotSameGroup(name) for name in not_same]
    rules += [SameGroup(name) for name in same]
    whole: Rule | None = None
    for rule in rules:
        whole = rule if whole is None else whole & rule
    return whole


def _span(text: str | None) -> Any:
    """Read a span: a number where it is one, else a text such as 30D."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def _weights(column: pd.Series[Any]) -> Any:
    from pandas.api.types import is_numeric_dtype

    if not is_numeric_dtype(column.dtype):
        raise Mistake(f"weights must be numbers, however {column.name!r} holds others")
    return column.to_numpy(float, na_value=float("nan"))


def _params(pairs: Iterable[str], estimator: type) -> dict[str, Any]:
    """Read name=value pairs as parameters of the estimator."""
    known = inspect.signature(estimator).parameters
    params: dict[str, Any] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if name in OPTIONS:
            raise Mistake(f"{name} has an option of its own: use {OPTIONS[name]}")
        if name not in known:
            near = closest(name, known)
            raise Mistake(f"there is no parameter {name!r}; the closest are {near}")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        kinds = str(known[name].annotation).split(" | ")
        if set(kinds) <= {"int", "float", "None"}:
            given = "None" if value is None else type(value).__name__
            if given not in kinds and not (given == "int" and "float" in kinds):
                wanted = " or ".join(kinds)
                raise Mistake(f"{name} must be of type {wanted}, however: {text!r}")
        elif value is not None:
            value = text
        params[name] = value
    if params.get("scoring") is not None:
        from sklearn.metrics import get_scorer_names

        if params["scoring"] not in (names := get_scorer_names()):
            near = closest(params["scoring"], names)
            raise Mistake(f"there is no such scoring; the closest are {near}")
    return params


def _fit_text(summary: dict[str, Any]) -> str:
    columns = ", ".join(f"{n} {kind}" for kind, n in summary["columns"].items())
    if summary["constant_columns"]:
        columns += f"; constant, so left out: {', '.join(summary['constant_columns'])}"
    score = summary["validation_score"]
    n = summary["members"]
    mean = f" (mean of {n} members)" if n > 1 else ""
    lines = {
        "model": f"{summary['model']} ({summary['bytes'] / 1e6:.3g} MB)",
        "task": f"{summary['task']} of {summary['target']!r}",
        "rows": f"{summary['rows']}, and {summary['validation_rows']} to stop early by",
        "columns": columns,
        "validation": f"{score['name']} {score['value']:.5g}{mean}",
        "best epoch": f"{', '.join(map(str, summary['best_epoch']))} (from 0)",
        "seconds": f"{summary['seconds']:.1f}",
    }
    return "\n".join(f"{key:<12}{value}" for key, value in lines.items())

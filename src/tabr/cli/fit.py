"""The command `fit`."""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from tabr.cli import options
from tabr.cli.messages import Mistake, Result, common, say
from tabr.config import PRESETS, EmbeddingKind

if TYPE_CHECKING:
    import pandas as pd

    from tabr.candidates.rules import Rule

# Parameters of the estimators that have an option of another name.
OPTIONS = {
    "column_kinds": "--kind",
    "candidates": "--past-only and the like",
    "verbose": "--quiet",
}


@click.command()
@options.table
@options.column("--target", required=True, help="The column to predict.")
@options.output(metavar="MODEL", required=True, help="The file to write.")
@options.task
@click.option("--validation", type=options.input_type, help="Rows to stop early by.")
@options.column("--weight", help="The column that weighs the rows.")
@options.ignore
@options.kind
@options.column("--past-only", help="Times: only earlier rows become neighbours.")
@click.option(
    "--window", metavar="SPAN", help="How far back they may lie, such as 365D."
)
@click.option(
    "--gap", metavar="SPAN", help="How much time must lie between, such as 1D."
)
@options.column(
    "--not-same-group",
    multiple=True,
    help="Groups whose rows do not become each other's neighbours; repeatable.",
)
@options.column(
    "--same-group",
    multiple=True,
    help="Groups whose rows have neighbours only among themselves; repeatable.",
)
@click.option(
    "--refit-candidates/--no-refit-candidates",
    default=None,
    help="Whether rows that were held out become candidates after training."
    "  [default: those of TABLE do, those of --validation do not]",
)
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    default="default",
    help="One network; the best, which is a pack of them; or the paper's TabR-S.",
)
@options.members(help="Networks of each recipe.  [default: the preset's]")
@click.option(
    "--embedding",
    type=click.Choice(["none", *get_args(EmbeddingKind)]),
    help="How numbers are embedded.  [default: the preset's]",
)
@click.option(
    "--scoring",
    metavar="NAME",
    help=f"The score to stop early by: {options.MEASURES}; or any scorer of"
    " scikit-learn.  [default: RMSE or log-loss]",
)
@options.seed
@options.device
@click.option("--time-limit", type=float, metavar="S", help="Seconds to fit in.")
@click.option("--max-epochs", type=int, metavar="N", help="Stop after this many.")
@click.option(
    "--param",
    "pairs",
    metavar="NAME=VALUE",
    multiple=True,
    help="Any other parameter of the estimator, such as width=128; repeatable.",
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
    ignore: tuple[str, ...],
    kinds: dict[str, Any],
    past_only: str | None,
    window: str | None,
    gap: str | None,
    not_same_group: tuple[str, ...],
    same_group: tuple[str, ...],
    pairs: tuple[str, ...],
    quiet: bool,
    **params: Any,
) -> Result:
    """Fit a model to TABLE and save it as MODEL."""
    options.check_output(output, table, validation)
    from tabr.estimators import TabRClassifier, TabRRegressor
    from tabr.tables.csv import LEVELLED, types_of
    from tabr.tables.targets import choose_task

    rule = _rule(past_only, window, gap, not_same_group, same_group)
    columns_of_rule = () if rule is None else rule.columns
    no_features = [target, *([weight] if weight else []), *ignore]
    levels = [name for name, kind in kinds.items() if kind in LEVELLED]
    frame = options.read_columns(
        table,
        *(*columns_of_rule, *no_features, *kinds),
        keeps_zeros=[
            *(*levels, *not_same_group, *same_group),
            *([target] if task == "classification" else []),
        ],
    )
    note = (lambda text: None) if quiet else say
    if task == "auto":
        task, reason = choose_task(frame[target])
        other = {"regression": "classification"}.get(task, "regression")
        note(f"{target!r} holds {reason}: {task} (if not, --task {other})")
    estimator = TabRRegressor if task == "regression" else TabRClassifier
    # What a rule reads stays in the table, though it be no feature.
    kept = [name for name in ignore if name in columns_of_rule]
    left_out = [name for name in no_features if name not in kept]
    model: Any = estimator(
        column_kinds=kinds or None,
        candidates=rule,
        ignore=kept,
        verbose=not quiet and sys.stderr.isatty(),
        **params,
        **_params(pairs, estimator),
    )
    eval_set = None
    if validation is not None:
        rows = options.read_columns(validation, target, types=types_of(frame))
        eval_set = rows.drop(columns=left_out, errors="ignore"), rows[target]
    weights = _weights(frame[weight]) if weight else None
    note(f"fitting on {len(frame)} rows")
    start = time.perf_counter()
    model.fit(frame.drop(columns=left_out), frame[target], weights, eval_set=eval_set)
    seconds = time.perf_counter() - start
    model.save(output)
    n_validation: int | None = None  # unknown where they are candidates too
    if eval_set is not None:
        n_validation = len(eval_set[1])
    else:
        n_rows = len(frame) if weights is None else int((weights != 0).sum())
        n_validation = n_rows - len(model.candidates_) or None
    summary = {
        "model": str(output),
        "bytes": output.stat().st_size,
        "task": task,
        "target": target,
        "rows": len(model.candidates_),
        "validation_rows": n_validation,
        **_training_summary(model),
        "seconds": round(seconds, 3),
    }
    code = 130 if summary["stopped"][-1] == "interrupted" else 0
    return Result(summary, _summary_text(summary), code=code)


def _rule(
    past_only: str | None,
    window: str | None,
    gap: str | None,
    not_same: tuple[str, ...],
    same: tuple[str, ...],
) -> Rule | None:
    """Return the rule that options ask for: all of them must hold."""
    from tabr.candidates.rules import NotSameGroup, PastOnly, SameGroup

    if past_only is None and (window or gap):
        raise Mistake("--window and --gap need --past-only, which names the times")
    rules: list[Rule] = []
    if past_only is not None:
        rules.append(PastOnly(past_only, _span(window), _span(gap)))
    rules += [NotSameGroup(name) for name in not_same]
    rules += [SameGroup(name) for name in same]
    return functools.reduce(operator.and_, rules) if rules else None


def _span(text: str | None) -> Any:
    """Return a span: a number where it is one, else a text such as 30D."""
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
    """Return parameters of the estimator, of pairs such as width=128."""
    from tabr.text import closest

    parameters = inspect.signature(estimator).parameters
    command = click.get_current_context().command
    options_by_name = {o.name: o.opts[0] for o in command.params} | OPTIONS
    params: dict[str, Any] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if name in parameters and name in options_by_name:
            option = options_by_name[name]
            raise Mistake(f"{name} has an option of its own: use {option}")
        if name not in parameters:
            near = closest(name, parameters)
            raise Mistake(f"there is no parameter {name!r}; the closest are {near}")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        types = str(parameters[name].annotation).split(" | ")
        if set(types) <= {"bool", "int", "float", "None"}:
            type_name = "None" if value is None else type(value).__name__
            if type_name not in types and not (type_name == "int" and "float" in types):
                wanted = " or ".join(types)
                raise Mistake(f"{name} must be of type {wanted}, however: {text!r}")
        elif value is not None:
            value = text
        params[name] = value
    return params


def _training_summary(model: Any) -> dict[str, Any]:
    """Return what training made: columns, members, the score it stopped by."""
    histories = [member.history for member in model.members_]
    score = sum(history.best_score for history in histories) / len(histories)
    name, sign = model.stopping_score
    used = list(model.preprocessor_.kinds_.values())
    return {
        "columns": {kind: used.count(kind) for kind in options.KINDS if kind in used},
        "unused_columns": list(model.preprocessor_.dropped),
        "members": len(histories),
        "recipes": recipe_weights(model.members_),
        "validation_score": {"name": name, "value": sign * score},
        "best_epoch": model.best_epoch_,
        "stopped": [history.stopped for history in histories],
    }


def recipe_weights(members: list[Any]) -> dict[str, float]:
    """Return how much the members of each recipe count together, of one in all."""
    total = sum(member.weight for member in members)
    shares: dict[str, float] = {}
    for member in members:
        shares[member.recipe] = shares.get(member.recipe, 0.0) + member.weight / total
    return shares


def _summary_text(summary: dict[str, Any]) -> str:
    from tabr.text import aligned, number, size_of

    columns = ", ".join(f"{n} {kind}" for kind, n in summary["columns"].items())
    if summary["unused_columns"]:
        unused = ", ".join(summary["unused_columns"])
        columns += f"; constant or a mere trend, so left out: {unused}"
    score = summary["validation_score"]
    n = summary["members"]
    mean = f" (mean of {n} members)" if n > 1 else ""
    if summary["validation_rows"] is None:
        validation = "those to stop early by included"
    else:
        validation = f"and {number(summary['validation_rows'])} to stop early by"
    shares = ""
    if len(summary["recipes"]) > 1:
        shares = ", ".join(f"{k} {v:.0%}" for k, v in summary["recipes"].items())
    lines = {
        "model": f"{summary['model']} ({size_of(summary['bytes'])})",
        "task": f"{summary['task']} of {summary['target']!r}",
        "rows": f"{number(summary['rows'])}, {validation}",
        "columns": columns,
        "validation": f"{score['name']} {number(score['value'], 5)}{mean}",
        **({"recipes": shares} if shares else {}),
        "best epoch": f"{', '.join(map(str, summary['best_epoch']))} (from 0)",
        "seconds": f"{summary['seconds']:.1f}",
    }
    return "\n".join(aligned(list(lines.items())))

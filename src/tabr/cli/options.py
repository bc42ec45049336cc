"""Arguments and options that commands share, and the files that they name.

Import it as a module: `@options.target`. The library is imported inside functions, as
it brings pandas with it.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tabr.cli.messages import Mistake, say

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("numeric", "binary", "categorical", "date")
input_type = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
output_type = click.Path(path_type=Path)


def _read_kinds(
    context: click.Context, option: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    """Return kinds by column, of pairs such as area=numeric."""
    kinds = dict(pair.rpartition("=")[::2] for pair in pairs)
    if "" in kinds:
        raise Mistake(f"--kind must be like COL=KIND, however: {kinds['']!r}")
    return kinds


def _read_integers(
    context: click.Context, option: click.Parameter, text: str | None
) -> list[int] | None:
    """Return the numbers of a text such as 3,17,18."""
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise Mistake(
            f"{option.opts[0]} must be like 3,17,18, however: {text!r}"
        ) from None


# Options with a name of their own, which commands complete.
column = functools.partial(click.option, metavar="COL")
count = functools.partial(click.option, metavar="N", type=click.IntRange(1))
integers = functools.partial(click.option, callback=_read_integers)
members = functools.partial(count, "--members", "n_members")
output = functools.partial(click.option, "-o", "--output", type=output_type)

table = click.argument("table", type=input_type)
model = click.argument("model_file", metavar="MODEL", type=input_type)
target = column("--target", help="The column with the labels.")
ignore = column("--ignore", multiple=True, help="A column to leave out; repeatable.")
task = click.option(
    "--task",
    type=click.Choice(["auto", "regression", "classification"]),
    default="auto",
    help="What is predicted: numbers or classes.",
)
kind = click.option(
    "--kind",
    "kinds",
    metavar="COL=KIND",
    multiple=True,
    callback=_read_kinds,
    help=f"What a column is: {', '.join(KINDS)}; repeatable.",
)
seed = count(
    "--seed",
    "random_state",
    type=click.IntRange(0),
    default=0,
    help="Of all that is random.",
)
device = click.option(
    "--device", metavar="NAME", help="cpu, cuda, ...  [default: a GPU if there is one]"
)


def _read_measure(
    context: click.Context, option: click.Parameter, name: str | None
) -> str | None:
    """Return the name of a measure, by any of its names."""
    if name is None:
        return None
    from tabr.metrics import find_measure

    return find_measure(name).name


MEASURES = (
    "rmse, mae, r2 of numbers; accuracy, balanced-accuracy, log-loss, roc-auc,"
    " average-precision of classes"
)
scoring = functools.partial(
    click.option, "--scoring", metavar="NAME", callback=_read_measure
)
port = count(
    "--port", type=click.IntRange(0, 65535), default=8000, help="Where it is served."
)


def grouped(
    name: str, make: Callable[..., Any], *decorators: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a decorator that adds options; a command gets what `make` makes of them.

    The options are the parameters of `make`; the command gets one, by this name.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_group(**values: Any) -> Any:
            group = {key: values.pop(key) for key in inspect.signature(make).parameters}
            return command(**{name: make(**group)}, **values)

        return functools.reduce(lambda c, add: add(c), reversed(decorators), with_group)

    return decorate


def check_output(path: Path | None, *inputs: Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    if path is None:
        return
    if any(p is not None and path.exists() and path.samefile(p) for p in inputs):
        raise Mistake(f"{path} is also the input; write to another file")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise Mistake(f"{path} cannot be written: name a file in a folder of yours")


def check_table_output(path: Path | None, *inputs: Path | None) -> None:
    """Refuse a table to write as `check_output` does, or by its suffix."""
    check_output(path, *inputs)
    if path is not None:
        from tabr.tables.files import suffix_of

        suffix_of(path)


def read_columns(path: Path, *names: str) -> pd.DataFrame:
    """Return a table that must have these columns."""
    from tabr.tables.files import check_column, read_table

    frame = read_table(path)
    for name in names:
        check_column(frame, name, path)
    return frame


def read_inputs(model_file: Path, table: Path) -> tuple[Any, pd.DataFrame]:
    """Return a model of either kind, and a table."""
    from tabr.estimators import load_model

    frame = read_columns(table)  # first, as it is the quicker one to fail
    return load_model(model_file), frame


def feature_columns(model: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that the model reads.

    If there are none the whole table is returned, and the model words the mistake.
    """
    names = set(model.preprocessor_.feature_names)
    if model.candidates is not None:
        names |= set(model.candidates.columns)
    columns = [name for name in frame.columns if name in names]
    return frame[columns] if columns else frame


def read_labelled(
    model_file: Path, table: Path, target: str | None
) -> tuple[Any, pd.DataFrame, pd.Series[Any]]:
    """Return a model, the rows of a table, and their labels.

    The labels are the column that is named, or else the only one that is new.
    """
    from tabr.tables.files import check_column

    model, frame = read_inputs(model_file, table)
    if target is None:
        seen = set(model.candidates_.columns)
        others = [name for name in frame.columns if name not in seen]
        if len(others) != 1:
            names = ", ".join(map(repr, others[:8])) or "none"
            raise Mistake(
                f"--target must name the column with the labels; one of: {names}"
            )
        target = others[0]
        say(f"the target is {target!r}, the only column that the model did not see")
    check_column(frame, target, table)
    return model, frame.drop(columns=target), frame[target]

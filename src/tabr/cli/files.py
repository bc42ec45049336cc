"""What commands share: arguments and options, and the files that they name.

The library is imported inside functions, as it brings pandas with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tabr.cli.messages import Mistake, say

if TYPE_CHECKING:
    import pandas as pd

file_type = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
output_type = click.Path(path_type=Path)
table_argument = click.argument("table", type=file_type)
model_argument = click.argument("model_file", metavar="MODEL", type=file_type)
target_option = click.option(
    "--target", metavar="COL", help="The column with the labels."
)
ignore_option = click.option(
    "--ignore", metavar="COL", multiple=True, help="A column to leave out; repeatable."
)
task_option = click.option(
    "--task",
    type=click.Choice(["auto", "regression", "classification"]),
    default="auto",
    show_default=True,
    help="What is predicted: numbers or classes.",
)
KINDS = ("numeric", "binary", "categorical", "date")


def _read_kinds(
    context: click.Context, option: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    """Return kinds by column, of pairs such as area=numeric."""
    kinds = dict(pair.rpartition("=")[::2] for pair in pairs)
    if "" in kinds:
        raise Mistake(f"--kind must be like COL=KIND, however: {kinds['']!r}")
    return kinds


kind_option = click.option(
    "--kind",
    "kinds",
    metavar="COL=KIND",
    multiple=True,
    callback=_read_kinds,
    help=f"What a column is: {', '.join(KINDS)}; repeatable.",
)


def count_option(
    *names: str, default: int, text: str, least: int = 1
) -> Callable[[Any], Any]:
    """Return an option for a whole number."""
    return click.option(
        *names,
        metavar="N",
        type=click.IntRange(least),
        default=default,
        show_default=True,
        help=text,
    )


def members_option(default: int) -> Callable[[Any], Any]:
    """Return the option for the number of networks."""
    text = "Networks whose predictions are averaged."
    return count_option("--members", "n_members", default=default, text=text)


def seed_option(command: Any) -> Any:
    """Give a command the option --seed."""
    text = "Of all that is random."
    names = "--seed", "random_state"
    return count_option(*names, default=0, least=0, text=text)(command)


def table_output_option(text: str) -> Callable[[Any], Any]:
    """Return the option for a table to write, with its text of help."""
    return click.option("-o", "--output", metavar="OUT", type=output_type, help=text)


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


def read_integers(option: str, text: str) -> list[int]:
    """Return the numbers of an option such as 3,17,18."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise Mistake(f"{option} must be like 3,17,18, however: {text!r}") from None


def read_inputs(model_file: Path, table: Path) -> tuple[Any, pd.DataFrame]:
    """Return a model of either kind, and a table."""
    from tabr.estimators import load_model
    from tabr.tables.files import read_table

    frame = read_table(table)  # first, as it is the quicker one to fail
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


def target_of(model: Any, frame: pd.DataFrame, target: str | None, path: Path) -> str:
    """Return the column of labels: the named one, or the only one that is new."""
    from tabr.tables.files import check_column

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
    check_column(frame, target, path)
    return target

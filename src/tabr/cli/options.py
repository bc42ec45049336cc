"""Arguments and options that commands share, and the files that they name.

Import it as a module: `@options.target`. The library is imported inside functions, as
it brings pandas with it.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tabr.cli.messages import Mistake, say, watch

if TYPE_CHECKING:
    import pandas as pd

    from tabr.tables.csv import ColumnType

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

ids = integers("--ids", metavar="3,17,18", help="Ids of candidates.")
ids_table = click.option(
    "--from",
    "table",
    metavar="TABLE",
    type=input_type,
    help="A table with a column id.",
)
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
    """Refuse before the work what could not be written after it; watch the rest."""
    if path is None:
        return
    if any(p is not None and path.exists() and path.samefile(p) for p in inputs):
        raise Mistake(f"{path} is also the input; write to another file")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise Mistake(f"{path} cannot be written: name a file in a folder of yours")
    watch(path)


def check_table_output(path: Path | None, *inputs: Path | None) -> None:
    """Refuse a table to write as `check_output` does, or by its suffix."""
    check_output(path, *inputs)
    if path is not None:
        from tabr.tables.files import suffix_of

        suffix_of(path)


def read_columns(
    path: Path,
    *names: str,
    types: Mapping[str, ColumnType] | None = None,
    keeps_zeros: Collection[str] = (),
) -> pd.DataFrame:
    """Return a table that must have these columns; `read_table` says the rest."""
    from tabr.tables.files import check_column, read_table

    frame = read_table(path, types, keeps_zeros=keeps_zeros)
    for name in names:
        check_column(frame, name, path)
    return frame


def read_ids(ids: Any, table: Path | None) -> Any:
    """Return the ids of --ids, or of the table of --from."""
    if (ids is None) == (table is None):
        raise Mistake("give either --ids or --from, to say which candidates go")
    return ids if table is None else read_columns(table, "id")["id"].to_numpy()


def read_inputs(
    model_file: Path, table: Path, key: Path | None = None
) -> tuple[Any, pd.DataFrame]:
    """Return a model and a table, read as the model knows its columns.

    With a public key, only a model file that it has signed is read.
    """
    from tabr.estimators import load_model
    from tabr.tables.files import suffix_of

    suffix_of(table)  # first, as it is the quicker one to fail
    model = load_model(model_file, key=key)
    return model, read_columns(table, types=model.column_types())


def feature_columns(model: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns that the model knows.

    If there are none the whole table is returned, and the model words the mistake.
    """
    known = set(model.candidates_.columns)
    columns = [name for name in frame.columns if name in known]
    return frame[columns] if columns else frame


def read_labelled(
    model_file: Path, table: Path, target: str | None
) -> tuple[Any, pd.DataFrame, pd.Series[Any]]:
    """Return a model, the columns of a table that it knows, and their labels.

    The labels are the column that is named, or else has the name of the target of fit.
    """
    from tabr.estimators import load_model
    from tabr.tables.files import suffix_of

    suffix_of(table)
    model = load_model(model_file)
    name = model.target_name_ if target is None else target
    if name is None:
        raise Mistake(
            f"--target must name the column with the labels, as {model_file} does not"
            " know what its target is called"
        )
    types = {**model.column_types(), name: model.target_type()}
    wanted = () if target is None else (name,)
    frame = read_columns(table, *wanted, types=types)
    if name not in frame:
        raise Mistake(
            f"{table} must have the target {name!r}, however it has no such column; add"
            " it, or name the column with the labels by --target"
        )
    rows = frame.drop(columns=name)
    known = feature_columns(model, rows)
    others = [other for other in rows.columns if other not in known]
    if others:
        more = ", ..." if len(others) > 8 else ""
        names = ", ".join(map(repr, others[:8]))
        say(f"not read, as the model does not know them: {names}{more}")
    return model, known, frame[name]

"""Tables as files: reading them, writing them, and what can be wrong with them."""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tabr.cli.messages import Mistake, say

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".feather")

file_type = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
table_argument = click.argument("table", type=file_type)
model_argument = click.argument("model_file", metavar="MODEL", type=file_type)
output_type = click.Path(path_type=Path)


def suffix_of(path: Path) -> str:
    """Return the suffix that tells a table's format."""
    name = path.name.lower()
    found = [suffix for suffix in SUFFIXES if name.endswith(suffix)]
    if not found:
        known = ", ".join(SUFFIXES)
        raise Mistake(f"a table's name must end in one of {known}, however: {path}")
    return found[0]


def read_table(path: Path) -> pd.DataFrame:
    """Read a table of any known format."""
    import zlib

    import pandas as pd

    suffix = suffix_of(path)
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".parquet": pd.read_parquet,
        ".feather": pd.read_feather,
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = readers.get(suffix, _read_csv)(path)
    except (
        OSError,
        ValueError,
        EOFError,
        zlib.error,
        pd.errors.ParserWarning,
    ) as error:
        reason = str(error).strip().split("\n")[0]
        raise Mistake(f"{path} cannot be read as {suffix[1:]}: {reason}") from error
    if frame.empty:
        n_rows, n_columns = frame.shape
        raise Mistake(f"{path} is empty: {n_rows} rows and {n_columns} columns")
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def _read_csv(path: Path) -> pd.DataFrame:
    """Read a CSV; the header tells commas, semicolons and tabs apart."""
    import gzip

    import pandas as pd

    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig") as file:
        outside = "".join(file.readline().split('"')[::2])  # of quotes
    separator = max(",;\t", key=outside.count)

    def read(decimal: str) -> pd.DataFrame:
        return pd.read_csv(
            path,
            sep=separator,
            decimal=decimal,
            encoding="utf-8-sig",
            index_col=False,
            low_memory=False,
        )

    if separator != ";":
        return read(".")
    # Where a comma is the decimal point, columns turn out as numbers only then.
    frames = [read("."), read(",")]
    return max(frames, key=lambda frame: frame.select_dtypes("number").shape[1])


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table; a crash leaves no half of it."""
    suffix = suffix_of(path)
    part = path.with_name(f".{path.name}.{os.getpid()}{suffix}")
    try:
        if suffix == ".parquet":
            frame.to_parquet(part, index=False)
        elif suffix == ".feather":
            frame.to_feather(part)
        else:
            frame.to_csv(part, index=False, sep="\t" if "tsv" in suffix else ",")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def check_output(path: Path, inputs: Iterable[Path | None]) -> None:
    """Refuse before the work what could not be written after it."""
    if any(p is not None and path.exists() and path.samefile(p) for p in inputs):
        raise Mistake(f"{path} is also the input; write to another file")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise Mistake(f"{path} cannot be written: name a file in a folder of yours")


def check_column(frame: pd.DataFrame, name: str, path: Path) -> None:
    """Refuse a column that the table does not have."""
    if name not in frame.columns:
        near = closest(name, frame.columns)
        raise Mistake(f"{path} has no column {name!r}; the closest are {near}")


def closest(name: str, names: Iterable[str]) -> str:
    """Return the names that a misspelt one may stand for, as text."""
    near = difflib.get_close_matches(name, known := list(names), n=3, cutoff=0.5)
    return ", ".join(map(repr, near or known[:8]))


def load_model_file(path: Path) -> Any:
    """Read a model of either kind."""
    from tabr.estimators import load_model

    return load_model(path)


def features(model: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """Leave out what is no feature; if nothing is left the model words the mistake."""
    names = set(model.preprocessor_.feature_names)
    if model.candidates is not None:
        names |= set(model.candidates.columns)
    known = [c for c in frame.columns if c in names]
    return frame[known] if known else frame


def target_of(model: Any, frame: pd.DataFrame, target: str | None, path: Path) -> str:
    """Return the column of labels: the given one, or the only one that is new."""
    if target is None:
        known = set(model.candidates_.columns)
        others = [c for c in frame.columns if c not in known]
        if len(others) != 1:
            found = ", ".join(map(repr, others[:8])) or "none"
            raise Mistake(
                f"--target must name the column with the labels; one of: {found}"
            )
        target = others[0]
        say(f"the target is {target!r}, the only column that the model did not see")
    check_column(frame, target, path)
    return target

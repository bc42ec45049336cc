"""What commands share: tables and models as files.

The library is imported where it is needed, as it brings pandas with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tabr.cli.messages import Mistake, say

if TYPE_CHECKING:
    import pandas as pd

file_type = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
table_argument = click.argument("table", type=file_type)
model_argument = click.argument("model_file", metavar="MODEL", type=file_type)
output_type = click.Path(path_type=Path)


def suffix_of(path: Path) -> str:
    """Return the suffix that tells a table's format."""
    from tabr.tables import files

    return files.suffix_of(path)


def read_table(path: Path) -> pd.DataFrame:
    """Read a table of any known format."""
    from tabr.tables import files

    return files.read_table(path)


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table; a crash leaves no half of it."""
    from tabr.tables import files

    files.write_table(frame, path)


def check_output(path: Path, inputs: Iterable[Path | None]) -> None:
    """Refuse before the work what could not be written after it."""
    if any(p is not None and path.exists() and path.samefile(p) for p in inputs):
        raise Mistake(f"{path} is also the input; write to another file")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise Mistake(f"{path} cannot be written: name a file in a folder of yours")


def check_column(frame: pd.DataFrame, name: str, path: Path) -> None:
    """Refuse a column that the table does not have."""
    from tabr.tables import files

    files.check_column(frame, name, path)


def closest(name: str, names: Iterable[str]) -> str:
    """Return the names that a misspelt one may stand for, as text."""
    from tabr.tables import files

    return files.closest(name, names)


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

"""Tables as files: CSV, Parquet and Feather, read and written whole."""

from __future__ import annotations

import gzip
import os
import secrets
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from tabr.errors import DataError
from tabr.text import closest

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".feather")


def suffix_of(path: Path) -> str:
    """Return the suffix that tells a table's format."""
    name = path.name.lower()
    suffixes = [suffix for suffix in SUFFIXES if name.endswith(suffix)]
    if not suffixes:
        accepted = ", ".join(SUFFIXES)
        raise DataError(
            f"a table's name must end in one of {accepted}, however: {path}"
        )
    return suffixes[0]


def read_table(path: Path) -> pd.DataFrame:
    """Read a table of any known format."""
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
        raise DataError(f"{path} cannot be read as {suffix[1:]}: {reason}") from error
    if frame.empty:
        n_rows, n_columns = frame.shape
        raise DataError(f"{path} is empty: {n_rows} rows and {n_columns} columns")
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def _read_csv(path: Path) -> pd.DataFrame:
    """Read a CSV; the header tells commas, semicolons and tabs apart."""
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
    """Write a table, whole or not at all."""
    suffix = suffix_of(path)
    with draft_of(path) as draft:
        if suffix == ".parquet":
            frame.to_parquet(draft, index=False)
        elif suffix == ".feather":
            frame.to_feather(draft)
        else:
            frame.to_csv(draft, index=False, sep="\t" if "tsv" in suffix else ",")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path) as draft:
        draft.write_bytes(content)


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of the file when all went well.

    Until then the old file stays; what fails leaves nothing behind.
    """
    suffix = "".join(path.suffixes[-2:])  # which tells writers of tables the format
    draft = path.with_name(f".tabr-{secrets.token_hex(8)}{suffix}")
    try:
        yield draft
        with open(draft, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def check_column(frame: pd.DataFrame, name: str, path: Path) -> None:
    """Refuse a column that the table does not have."""
    if name not in frame.columns:
        near = closest(name, frame.columns)
        raise DataError(f"{path} has no column {name!r}; the closest are {near}")

"""Tables as files: CSV, Parquet and Feather, read and written whole."""

from __future__ import annotations

import gzip
import os
import secrets
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from tabr.errors import DataError
from tabr.tables.csv import ColumnType, read_csv, to_csv
from tabr.tables.frame import column_index
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


def read_table(
    path: Path,
    types: Mapping[str, ColumnType] | None = None,
    *,
    keeps_zeros: Collection[str] = (),
) -> pd.DataFrame:
    """Read a table of any known format.

    CSV is read as `types` says, which a model knows of its columns; of the others those
    in `keeps_zeros` are text where a number begins with a zero.
    """
    suffix = suffix_of(path)
    try:
        if suffix in (".parquet", ".feather"):
            frame = _read_arrow(path, suffix)
        else:
            frame = read_csv(_unpacked(path), types, keeps_zeros=keeps_zeros)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        reason = str(error).strip().split("\n")[0]
        raise DataError(f"{path} cannot be read as {suffix[1:]}: {reason}") from error
    if frame.empty:
        n_rows, n_columns = frame.shape
        raise DataError(f"{path} is empty: {n_rows} rows and {n_columns} columns")
    return frame


def _read_arrow(path: Path, suffix: str) -> pd.DataFrame:
    """Read Parquet or Feather; each column must have a name of its own."""
    if suffix == ".parquet":
        column_index(pq.read_schema(path).names)
        frame = pd.read_parquet(path)
    else:
        frame = pd.read_feather(path)
    return frame.set_axis(column_index(frame.columns), axis=1)


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix.lower() == ".gz" else content


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table, whole or not at all."""
    suffix = suffix_of(path)
    with draft_of(path) as draft:
        if suffix == ".parquet":
            frame.to_parquet(draft, index=False)
        elif suffix == ".feather":
            frame.to_feather(draft)
        else:
            text = to_csv(frame, "\t" if "tsv" in suffix else ",").encode()
            draft.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)


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

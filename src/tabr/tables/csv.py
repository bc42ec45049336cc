"""Tables as CSV: texts become cells as a model knows its columns, and cells texts.

- A cell is read as its column was in fit: text stays as it is written, so "01234" and
  " x" are no numbers; where numbers, flags or dates were, nothing else may stand.
- An empty cell is missing, and so are "NA", "null" and their like; in a column of text
  where fit saw one of them as a level, they and the quoted empty cell are texts.
- A column that no model knows is numbers, flags or text, by all of its cells.
- Each line has as many cells as the header, whose names differ and come once.
- No text is written that a spreadsheet takes for a formula: an apostrophe stands before
  it, and is taken away again where a model knows the text without it.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from tabr.errors import DataError
from tabr.tables.cells import Cells, ColumnKind, Floats
from tabr.tables.frame import column_index, default_names

# What is no cell where numbers are: the same as in pandas.
MISSING = frozenset([
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND",
    "1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
])  # fmt: skip
LEVELLED: tuple[ColumnKind, ...] = ("binary", "categorical")  # kinds that keep texts
_WORDS = {"true": 1, "false": 0}
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.I
)
_FORMULA = re.compile(r"[=+\-@\t\r\n]")  # at the beginning of a cell
_BLOCK = 1000
_MOST_BYTES_OF_A_LINE = 1 << 26
_NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
_EXACT = 1 << 53  # whole numbers up to here are floats, too


@dataclass(frozen=True)
class ColumnType:
    """What the texts of a column stand for, as fit saw the column.

    Attributes:
        nature: What the cells are; a date may have been text.
        dtype: Of the column in fit.
        levels: The texts that fit saw, of a column of text.
        others: Values that are no text in a column of several types, as CSV has them.
        needed: Whether a cell that is none of its kind is refused.
    """

    nature: Literal["number", "flag", "date", "text"]
    dtype: Any
    levels: Collection[str] = ()
    others: Mapping[str, Any] | None = None
    needed: bool = True
    dated: bool = False

    @classmethod
    def of(
        cls,
        series: pd.Series[Any],
        *,
        kind: ColumnKind | None = None,
        levels: Collection[str] | None = None,
        needed: bool = True,
    ) -> Self:
        """Return the type of a column of fit; `levels` are those that were learned."""
        nature, dtype = Cells.read(series, str(series.name), in_fit=False).nature, None
        if nature != "text":
            return cls(nature, series.dtype, needed=needed)
        dtype = series.dtype
        values = series
        if isinstance(dtype, pd.CategoricalDtype):
            values = pd.Series(dtype.categories)
        elif levels is None:
            levels = set(series[series.isin(MISSING)])
        others: dict[str, Any] | None = None
        if pd.api.types.infer_dtype(values, skipna=True) not in ("string", "empty"):
            cells = [v for v in values.dropna() if not isinstance(v, str)]
            others = {str(value): value for value in cells}
        if levels is None:
            levels = set(map(str, values))
        return cls("text", dtype, levels, others, needed, kind == "date")

    @property
    def wanted(self) -> str:
        """The cells of the column, in a word."""
        words = {"number": "numbers", "flag": "true or false", "text": "text"}
        dates = "dates like 2024-05-31"
        return dates if self.dated else words.get(self.nature, dates)

    def read(self, texts: pa.Array, decimal: str) -> pd.Series[Any] | int:
        """Return cells, or the row of the first text that is none of the kind."""
        if self.nature == "text":
            column = self._texts(texts)
            return _first_undated(column) if self.dated else column
        texts = _without(texts, MISSING)
        if self.nature == "date":
            return _dates(texts, getattr(self.dtype, "tz", None))
        cells = _numbers(texts, decimal, words=True)
        if isinstance(cells, int):
            return cells
        if self.nature == "flag":
            return _flags(cells)
        is_float = getattr(self.dtype, "kind", "O") == "f"
        return cells.astype(self.dtype) if is_float else cells

    def _texts(self, texts: pa.Array) -> pd.Series[Any]:
        if MISSING.isdisjoint(self.levels):
            texts = _without(texts, MISSING)
        cells: pd.Series[Any] = texts.to_pandas()
        marked = pc.match_substring_regex(texts, r"^'[=+\-@\t\r\n]")
        if pc.any(marked).as_py():
            known = frozenset(self.levels)
            cells = cells.map(lambda text: _unmarked(text, known), na_action="ignore")
        if self.others:
            values: pd.Series[Any] = cells.astype(object)
            return values.map(self._other, na_action="ignore")
        return cells

    def _other(self, text: str) -> Any:
        """Return the value that a text stands for in a column of several types."""
        assert self.others is not None
        if text not in self.others and _NUMBER.fullmatch(text):
            return self.others.get(str(float(text)), text)
        return self.others.get(text, text)


def _unmarked(text: str, known: Collection[str]) -> str:
    """Return a text without the apostrophe that `to_csv` wrote before it."""
    marked = text[:1] == "'" and _FORMULA.match(text, 1) is not None
    return text[1:] if marked and text not in known and text[1:] in known else text


# --- texts to cells -----------------------------------------------------------------


def _without(texts: pa.Array, words: Collection[str]) -> pa.Array:
    """Return the texts, missing where they are one of the words."""
    listed = pc.is_in(texts, value_set=pa.array(sorted(words), texts.type))
    return pc.if_else(listed, pa.scalar(None, texts.type), texts)


def _numbers(
    texts: pa.Array, decimal: str = ".", *, words: bool = False
) -> pd.Series[Any] | int:
    """Return texts as numbers, or the row of the first that is none.

    Whole numbers stay whole; `words` takes true and false as 1 and 0.
    """
    if decimal != ".":
        point = pc.fill_null(pc.match_substring(texts, "."), False)
        if pc.any(point).as_py():
            return int(pc.index(point, True).as_py())
        texts = pc.replace_substring(texts, decimal, ".")
    if pc.any(pc.starts_with(texts, "+")).as_py():
        texts = pc.replace_substring_regex(texts, r"^\+([\d.])", r"\1")
    try:
        pc.cast(texts.slice(0, _BLOCK), pa.float64())  # which fails soon, if at all
        floats = pc.cast(texts, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # at a text with a space, a word ...
        return _numbers_one_by_one(texts, words)
    whole = _whole(texts, floats)
    return pd.Series(floats) if whole is None else whole


def _whole(texts: pa.Array, floats: Floats) -> pd.Series[Any] | None:
    """Return texts as whole numbers, if all are and a float would be another."""
    missing = texts.null_count > 0
    if missing and not (np.abs(floats) >= _EXACT).any():
        return None
    if not pc.all(pc.match_substring_regex(texts, r"^-?\d+$")).as_py():
        return None
    for dtype in (pa.int64(), pa.uint64()):
        try:
            whole = pc.cast(texts, dtype)
        except pa.ArrowInvalid:
            continue
        types = _NULLABLE.get if missing else None
        column: pd.Series[Any] = whole.to_pandas(types_mapper=types)
        return column
    return None


def _numbers_one_by_one(texts: pa.Array, words: bool) -> pd.Series[Any] | int:
    numbers: list[float | int] = []
    for start in range(0, len(texts), _BLOCK):
        for text in texts.slice(start, _BLOCK).to_pylist():
            text = "nan" if text is None else text.strip()
            if words and text.lower() in _WORDS:
                numbers.append(_WORDS[text.lower()])
            elif not _NUMBER.fullmatch(text):
                return len(numbers)
            else:
                is_whole = text.lstrip("+-").isdigit() and abs(float(text)) <= _EXACT
                numbers.append(int(text) if is_whole else float(text))
    return pd.Series(numbers, dtype=None if numbers else float)


def _flags(numbers: pd.Series[Any]) -> pd.Series[Any] | int:
    """Return numbers as flags, or the row of the first that is neither 0 nor 1."""
    missing = numbers.isna().to_numpy(bool)
    wrong = ~(numbers.isin((0, 1)).to_numpy(bool) | missing)
    if wrong.any():
        return int(wrong.argmax())
    flags = numbers.fillna(0).astype(bool)
    return flags.astype(object).mask(missing) if missing.any() else flags


def _dates(texts: pa.Array, zone: Any) -> pd.Series[Any] | int:
    """Return texts as times in the zone of fit, or the row of the first that is none.

    A text without a zone is in UTC.
    """
    column = texts.to_pandas().astype(object)
    times = pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True)
    wrong = (times.isna() & column.notna()).to_numpy(bool)
    if wrong.any():
        return int(wrong.argmax())
    dates: pd.Series[Any] = times.dt.tz_convert(zone)
    return dates.dt.tz_localize(None) if zone is None else dates


def _first_undated(texts: pd.Series[Any]) -> pd.Series[Any] | int:
    """Return texts that are dates, or the row of the first that is none."""
    distinct = pd.Series(texts.dropna().unique(), dtype=object)
    times = pd.to_datetime(distinct, errors="coerce", format="ISO8601", utc=True)
    wrong = texts.isin(distinct[times.isna()]).to_numpy(bool)
    return int(wrong.argmax()) if wrong.any() else texts


def _inferred(
    texts: pa.Array, decimal: str, name: str, keeps_zeros: bool
) -> pd.Series[Any]:
    """Return cells of a column that no model knows: numbers, flags or text."""
    present = _without(texts, MISSING)
    if present.null_count == len(present):
        return pd.Series(np.full(len(present), np.nan))
    zeros = pc.fill_null(pc.match_substring_regex(present, r"^\s*0\d+\s*$"), False)
    first = pc.index(zeros, True).as_py()
    cells: pd.Series[Any] | int = 0
    if first < 0 or not keeps_zeros:
        cells = _numbers(present, decimal)
    if isinstance(cells, pd.Series):
        if first >= 0:
            warnings.warn(
                f"column {name!r} has leading zeros ({present[first].as_py()!r}) and is"
                " read as numbers, without them; what is named as categorical, or as"
                " the target of a classification, keeps them",
                stacklevel=2,
            )
        return cells
    if pc.all(pc.is_in(pc.utf8_lower(present), pa.array([*_WORDS, None]))).as_py():
        flags = _numbers(present, words=True)
        assert isinstance(flags, pd.Series)
        cells = _flags(flags)
        assert isinstance(cells, pd.Series)
        return cells
    column: pd.Series[Any] = present.to_pandas()
    return column


# --- a whole table ------------------------------------------------------------------


@dataclass(frozen=True)
class _Texts:
    """The cells of a file as texts, and the way back to their lines."""

    content: bytes
    separator: str
    names: pd.Index[str]
    columns: list[pa.Array]

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Split a file into cells; what is no table is refused."""
        try:
            separator = _separator(content)
            header = next(filter(None, _lines(content, separator)), None)
            if header is None:
                raise DataError("it is empty; give a header and rows")
            columns = _split(content, separator, len(header))
        except (UnicodeDecodeError, pa.ArrowInvalid, csv.Error) as error:
            raise _not_split(content, error) from error
        names = [name or f"Unnamed: {k}" for k, name in enumerate(header)]
        texts = cls(content, separator, column_index(names), columns)
        texts._check_header()
        return texts

    def _check_header(self) -> None:
        """Refuse the header as a row, as files that were joined have it."""
        if all(map(_NUMBER.fullmatch, self.names)) or not len(self.columns[0]):
            return
        again = pc.is_in(
            self.columns[0], value_set=_large(self.names[0], f"\ufeff{self.names[0]}")
        )
        for name, column in zip(self.names[1:], self.columns[1:], strict=True):
            if not pc.any(again).as_py():
                return
            own = name if not name.startswith("Unnamed: ") else ""
            filled = pc.fill_null(column, "")
            again = pc.and_(again, pc.is_in(filled, value_set=_large(name, own)))
        row = pc.index(again, True).as_py()
        if row >= 0:
            raise DataError(
                f"the header must come once, however line {self.line_of(row)} is the"
                " header again; drop that line"
            )

    def line_of(self, row: int) -> int:
        """Return the line of the file (from 1) in which a row (from 0) begins."""
        lines = _lines(self.content, self.separator)
        begin, left = 1, row + 1  # the header is a row, too
        with suppress(csv.Error):  # a cell that is too long for it
            for cells in lines:
                if cells:
                    if left == 0:
                        break
                    left -= 1
                begin = lines.line_num + 1
        return begin

    def to_frame(
        self, types: Mapping[str, ColumnType], keeps_zeros: Collection[str]
    ) -> pd.DataFrame:
        """Return the cells as their columns' types say."""
        names = column_index(_unmarked(name, types) for name in self.names)
        types = _by_position(names, types)
        decimal = self._decimal([types.get(name) for name in names])
        cells = {}
        for name, texts in zip(names, self.columns, strict=True):
            column: pd.Series[Any] | int | None = None
            about = types.get(name)
            if about is not None:
                column = about.read(texts, decimal)
                if isinstance(column, int) and about.needed:
                    raise DataError(
                        f"column {name!r} must hold {about.wanted}, as it did in fit,"
                        f" however line {self.line_of(column)} holds"
                        f" {texts[column].as_py()!r:.60}; correct the cell, or leave it"
                        " empty if the value is missing"
                    )
            if not isinstance(column, pd.Series):
                column = _inferred(texts, decimal, name, name in keeps_zeros)
            cells[name] = column
        return pd.DataFrame(cells)

    def _decimal(self, types: list[ColumnType | None]) -> str:
        """Return the decimal sign: beside semicolons it may be a comma."""
        if self.separator != ";":
            return "."
        of_numbers = [
            _without(texts, MISSING)
            for texts, about in zip(self.columns, types, strict=True)
            if about is None or about.nature == "number"
        ]

        def n_read(decimal: str) -> int:
            columns = [_numbers(texts, decimal) for texts in of_numbers]
            return sum(isinstance(column, pd.Series) for column in columns)

        return max(".", ",", key=n_read)


def _large(*texts: str) -> pa.Array:
    return pa.array(texts, pa.large_string())


def _text_of(content: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline="")


def _separator(content: bytes) -> str:
    """Return what parts cells: the header tells commas, semicolons and tabs apart."""
    for line in _text_of(content):
        if line.strip("\r\n"):
            outside = "".join(line.split('"')[::2])  # of quotes
            return max(",;\t", key=outside.count)
    return ","


def _lines(content: bytes, separator: str, *, strict: bool = False) -> Any:
    """Return a reader of a file's rows, which knows the number of the line."""
    return csv.reader(_text_of(content), delimiter=separator, strict=strict)


def _split(content: bytes, separator: str, n_columns: int) -> list[pa.Array]:
    """Return the columns of a file as texts, without the header.

    A cell without anything is missing, one of two quotes is a text.
    """
    names = default_names(n_columns)
    table = arrow_csv.read_csv(
        pa.BufferReader(content),
        read_options=arrow_csv.ReadOptions(
            column_names=names,
            use_threads=False,
            block_size=min(len(content) + 1, _MOST_BYTES_OF_A_LINE),
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=separator, newlines_in_values=True
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.large_string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    if content.count(b'"') % 2:
        for _ in _ended(content, separator):
            pass
    columns = (column.combine_chunks() for column in table.columns)
    return [column.slice(1) for column in columns]


def _ended(content: bytes, separator: str) -> Iterator[list[str]]:
    """Return the rows of a file; one whose last quote is open is refused."""
    lines = _lines(content, separator, strict=True)
    begin = 1
    while True:
        try:
            yield next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise DataError(
                    f"a quote must be closed, however that of line {begin} is open;"
                    " close it"
                ) from error
        begin = lines.line_num + 1


def _not_split(content: bytes, error: Exception) -> DataError:
    """Return why a file is no table, with the line."""
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = content.count(b"\n", 0, wrong.start) + 1
        return DataError(
            f"text must be UTF-8, however line {line} has the byte"
            f" {content[wrong.start]:#04x}; save the table as UTF-8"
        )
    lines = _lines(content, _separator(content))
    begin, width = 1, 0
    try:
        for cells in lines:
            width = width or len(cells)
            if cells and len(cells) != width:
                return DataError(
                    f"each line must have as many cells as the header, {width}, however"
                    f" line {begin} has {len(cells)}; mend it, or quote the cells that"
                    " hold the separator"
                )
            begin = lines.line_num + 1
    except csv.Error:
        pass
    return DataError(str(error).strip().split("\n")[0][:200])


def _by_position(
    names: Iterable[str], types: Mapping[str, ColumnType]
) -> Mapping[str, ColumnType]:
    """Return the types by these names, where those of fit were none: x0, x1, ..."""
    unknown = [name for name in names if name not in types]
    absent = [name for name in types if name not in set(names)]
    if len(unknown) != len(absent) or absent != default_names(len(absent)):
        return types
    return {**types, **{n: types[a] for n, a in zip(unknown, absent, strict=True)}}


def types_of(frame: pd.DataFrame) -> dict[str, ColumnType]:
    """Return how a table is read that belongs to another one."""
    return {
        str(name): ColumnType.of(column, needed=False) for name, column in frame.items()
    }


def read_csv(
    content: bytes,
    types: Mapping[str, ColumnType] | None = None,
    *,
    keeps_zeros: Collection[str] = (),
) -> pd.DataFrame:
    """Return the table of a file.

    Args:
        content: The file, in UTF-8; commas, semicolons or tabs part the cells.
        types: Columns that a model knows.
        keeps_zeros: Other columns, which are text where a number begins with a zero.

    >>> read_csv(b"zip,area\\n01234,80\\n", keeps_zeros=["zip"]).to_numpy().tolist()
    [['01234', 80]]
    """
    return _Texts.read(content).to_frame(types or {}, keeps_zeros)


# --- cells to texts -----------------------------------------------------------------


def to_csv(frame: pd.DataFrame, separator: str = ",") -> str:
    """Return a table as CSV that no spreadsheet takes for formulas.

    >>> to_csv(pd.DataFrame({"a": ["=1+1", "-1", "x"], "b": [-1.5, 2.0, 3.0]}))
    "a,b\\n'=1+1,-1.5\\n-1,2.0\\nx,3.0\\n"
    """
    columns: list[pd.Series[Any]] = [
        column.map(_marked)
        if isinstance(column.dtype, pd.CategoricalDtype | pd.StringDtype)
        or pd.api.types.is_object_dtype(column.dtype)
        else column
        for _, column in frame.items()
    ]
    names = [_marked(name) for name in frame.columns]
    safe = pd.concat(columns, axis=1) if columns else frame
    safe = safe.set_axis(names, axis=1)

    def written(quoting: Literal[0, 2]) -> str:
        text: str = safe.to_csv(
            index=False, sep=separator, lineterminator="\n", quoting=quoting
        )
        return text

    text = written(csv.QUOTE_MINIMAL)
    # A return ends a line for whoever reads it, and yet it is not quoted.
    return written(csv.QUOTE_NONNUMERIC) if "\r" in text else text


def _marked(value: Any) -> Any:
    """Return a value, with an apostrophe before a text that would be a formula."""
    if not isinstance(value, str) or not _FORMULA.match(value):
        return value
    return value if _NUMBER.fullmatch(value) else f"'{value}"

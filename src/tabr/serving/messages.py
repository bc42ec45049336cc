"""The columns of a model, and the requests and answers that are made for them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    Strict,
    WrapValidator,
    create_model,
)
from pydantic import StrictBool as Flag
from pydantic import StrictInt as Integer

from tabr.errors import DataError
from tabr.tables.cells import ColumnKind
from tabr.tables.coordinates import Coordinates, find_coordinates
from tabr.tables.csv import ColumnType
from tabr.text import plain, plain_list, plain_rows

MOST_LEVELS = 50  # offered to choose from
MOST_IDS = 10_000
MOST_EXPLAINED = 256  # rows of a request
COVERAGE = 0.9  # unless a request names another

MOST_TEXT = 10_000  # characters of a cell
MOST_VALUES = 1_000_000  # of a request in JSON
EXACT, EDGE = 2**53, 2**63  # ends of what floats tell apart, and of int64
EXTRA_CELLS = 16  # of a row, which are named as unknown; more are not even read

Row = dict[str, Any]
Value = bool | int | float | str


def _whole(value: Any, check: Callable[[Any], Any]) -> Any:
    """Return a number; a whole one stays as it came, unless no float is as large."""
    if type(value) is not int:
        return check(value)
    return value if abs(value) <= sys.float_info.max else check(math.inf)


Number = Annotated[float, Strict(), Field(allow_inf_nan=False), WrapValidator(_whole)]
Text = Annotated[str, Strict(), Field(max_length=MOST_TEXT)]
Label = Number | Flag | Text
Coverage = Annotated[float, Field(gt=0, lt=1)]
Ids = Annotated[
    list[Annotated[Integer, Field(ge=0, lt=2**63)]],
    Field(min_length=1, max_length=MOST_IDS),
    FailFast(),
]


class Column(BaseModel):
    """A column of the rows that a model takes, and the values that are usual in it."""

    name: str
    kind: ColumnKind | None = Field(description="null if only a rule reads it")
    cell: Literal["number", "flag", "text"] = Field(
        description="the type of a cell in JSON; a date is text"
    )
    levels: list[Value] | None = None
    low: int | float | None = None
    high: int | float | None = None
    median: float | None = None
    example: Value | None = None


class Schema:
    """The columns of a row, and the way from rows to a table and back."""

    def __init__(self, model: Any) -> None:
        """Read the columns of a fitted model and its candidates."""
        frame: pd.DataFrame = model.candidates_.frame
        kinds: Mapping[str, ColumnKind] = model.preprocessor_.kinds_
        by_rule = () if model.candidates is None else model.candidates.columns
        names = [n for n in frame.columns if n in kinds or n in set(by_rule)]
        self.columns = [_describe(frame[name], kinds.get(name)) for name in names]
        # Requests may hold columns that nothing reads, as tables do.
        self.others = [str(n) for n in frame.columns if n not in set(names)]
        self.place: Coordinates | None = find_coordinates(frame, kinds)
        self.types: dict[str, ColumnType] = model.column_types()
        self.target_type: ColumnType = model.target_type()
        self._dtypes = {str(name): dtype for name, dtype in frame.dtypes.items()}

    def to_frame(self, rows: Sequence[Row]) -> pd.DataFrame:
        """Return rows as a table; a column that a row lacks is a missing value."""
        table: dict[str, Any] = {}
        for column in self.columns:
            cells = [row.get(column.name) for row in rows]
            table[column.name] = _series(cells, column, self._dtypes[column.name])
        return pd.DataFrame(table)

    def to_rows(self, frame: pd.DataFrame) -> list[Row]:
        """Return a table as rows of plain values, in the columns of the model."""
        names = [column.name for column in self.columns]
        return plain_rows(frame[[name for name in names if name in frame]])


def _describe(series: pd.Series[Any], kind: ColumnKind | None) -> Column:
    values = series.dropna()
    is_flag = pd.api.types.is_bool_dtype(series.dtype)
    is_number = pd.api.types.is_numeric_dtype(series.dtype) and not is_flag
    cell: Any = "flag" if is_flag else "number" if is_number else "text"
    usual: dict[str, Any] = {}
    if kind in ("binary", "categorical"):
        usual["levels"] = plain_list(values.value_counts().index[:MOST_LEVELS])
    elif is_number and len(values):
        usual["low"], usual["high"] = plain(values.min()), plain(values.max())
        usual["median"] = plain(values.median())
    if len(values):
        usual["example"] = plain(values.iloc[len(values) // 2])
    return Column(name=str(series.name), kind=kind, cell=cell, **usual)


def _series(cells: list[Any], column: Column, dtype: Any) -> pd.Series[Any]:
    """Return cells as a series of the type that the model was fitted on."""
    if column.cell == "number":
        numbers = _numbers(cells)
        is_float = isinstance(dtype, np.dtype) and dtype.kind == "f"
        is_float &= numbers.dtype != object
        return numbers.astype(dtype) if is_float else numbers
    texts = pd.Series(cells, dtype=object)
    if not pd.api.types.is_datetime64_any_dtype(dtype):
        return texts
    dates = pd.to_datetime(texts, errors="coerce", format="ISO8601")
    wrong = texts[dates.isna() & texts.notna()]
    if len(wrong):
        raise DataError(
            f"a date must be like 2024-05-31 or 2024-05-31T12:00:00, however column"
            f" {column.name!r} holds {str(wrong.iloc[0])!r:.40}"
        )
    return dates


def _numbers(cells: list[Any]) -> pd.Series[Any]:
    """Return numbers; whole ones that no float can tell apart stay as they came.

    So does text, which the model reads or refuses.
    """
    if any(isinstance(cell, str) for cell in cells):
        return pd.Series(cells, dtype=object)
    if not any(type(cell) is int and abs(cell) > EXACT for cell in cells):
        return pd.Series(cells, dtype=float)
    if any(
        isinstance(cell, float) or not -EDGE <= (cell or 0) < EDGE for cell in cells
    ):
        return pd.Series(cells, dtype=object)
    whole = pd.Series(cells, dtype="Int64")
    return whole if whole.hasnans else whole.astype("int64")


class StrictMessage(BaseModel):
    """A message with no other fields than those it names.

    Attributes:
        most_values: Of its JSON, all lists and objects included.
        row: What its rows are checked by, if it has any.
    """

    most_values: ClassVar[int] = 2 * MOST_IDS + 1000
    row: ClassVar[type[BaseModel] | None] = None

    model_config = ConfigDict(extra="forbid")


class NumberPrediction(BaseModel):
    """A predicted number, and the interval that holds the truth."""

    prediction: float | None
    interval: tuple[float | None, float | None]
    typicality: float | None = Field(
        description="share of known rows that are at least as far from all others"
    )


class ClassPrediction(BaseModel):
    """A predicted class, the probabilities of all, and the set that holds the truth."""

    prediction: Value
    probabilities: dict[str, float]
    set: list[Value]
    typicality: float | None


class Predictions(BaseModel):
    """A prediction for each row, and the version of the model that made them."""

    version: str
    predictions: list[NumberPrediction | ClassPrediction]


class Candidate(BaseModel):
    """A row that may be retrieved."""

    id: int
    label: Value | None
    row: dict[str, Any]


class Candidates(BaseModel):
    """Rows that may be retrieved."""

    rows: list[Candidate]


class Neighbor(Candidate):
    """A candidate that was retrieved, and its effect on the prediction."""

    weight: float
    effect: float
    distance: float | None
    correction: float | None = None


class Others(BaseModel):
    """The neighbours that are not listed, summed up."""

    count: int
    weight: float
    effect: float


class Member(BaseModel):
    """A network of the model, how much it counts, and what it says of a row."""

    recipe: str
    weight: float
    prediction: float = Field(
        description="a number, or its probability of the class that is predicted"
    )


class Origin(BaseModel):
    """Where a prediction came from."""

    usual: float | None
    alone: float | None
    share: float
    members: list[Member]
    neighbors: list[Neighbor]
    others: Others


class NumberExplanation(NumberPrediction, Origin):
    """A predicted number, and where it came from."""


class ClassExplanation(ClassPrediction, Origin):
    """A predicted class, and where it came from."""


class Explanations(BaseModel):
    """Where the prediction for each row came from."""

    version: str
    explanations: list[NumberExplanation | ClassExplanation]


class ChangeResult(BaseModel):
    """The candidates that a change concerned, and the state after it."""

    ids: list[int]
    n_candidates: int
    version: str
    doubt: Annotated[str | None, Field(description="why the labels may be wrong")] = (
        None
    )


class Relabelling(StrictMessage):
    """Other labels for candidates, in the order of their ids."""

    ids: Ids
    labels: Annotated[list[Label], Field(min_length=1, max_length=MOST_IDS), FailFast()]


class Removal(StrictMessage):
    """Candidates to remove."""

    ids: Ids


class Place(BaseModel):
    """Columns that are degrees on Earth."""

    latitude: str
    longitude: str


class ModelInfo(BaseModel):
    """What a client must know of the model."""

    version: str
    task: Literal["regression", "classification"]
    target: str | None
    classes: list[Value] | None
    n_candidates: int
    n_members: int
    context_size: int
    tabr: str = Field(description="version of the service")
    rights: Literal["read", "write"]
    coverage: float
    columns: list[Column]
    place: Place | None


class Compaction(BaseModel):
    """The model file that holds all changes."""

    version: str
    file: str


class PastChange(BaseModel):
    """Who changed what, and when."""

    seq: int
    kind: str
    ids: str  # such as "3-5,9"
    n: int
    who: str | None
    at: float


class History(BaseModel):
    """Changes in order; the next page begins after the last of them."""

    changes: list[PastChange]


class Problem(BaseModel):
    """The reason of a refusal, in one sentence or field by field."""

    detail: str | list[dict[str, Any]]
    outcome: Literal["not made", "unknown"] | None = None  # of a change that failed


# What became of a change that was not answered with its result.
NOT_MADE = {
    "detail": "the change could not be kept, so it was not made: try again later",
    "outcome": "not made",
}
UNKNOWN = {
    "detail": "whether the change was made is not known: send it again with the same"
    " Idempotency-Key; without one, look first whether it is there",
    "outcome": "unknown",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return refusals by their statuses, for OpenAPI."""
    return {status: {"model": Problem} for status in statuses}


class Requests:
    """The requests that hold rows, checked column by column."""

    def __init__(self, schema: Schema, most_rows: int) -> None:
        """Make them for the columns of a model."""
        cells: dict[str, Any] = {
            f"column_{k}": (_cell_type(column) | None, Field(alias=column.name))
            for k, column in enumerate(schema.columns)
        }
        for k, name in enumerate(schema.others):
            cells[f"other_{k}"] = (Any, Field(default=None, alias=name, exclude=True))
        message = partial(create_model, __base__=StrictMessage)
        row: Any = message("Row", **cells)

        def list_of(item: Any, most: int = most_rows) -> Any:
            length = Field(min_length=1, max_length=most)
            return Annotated[list[item], length, FailFast()], ...

        rows, labels = list_of(row), list_of(Label)
        few_rows = list_of(row, min(most_rows, MOST_EXPLAINED))
        coverage, top = (Coverage, COVERAGE), (Annotated[int, Field(ge=1, le=1000)], 12)
        self.query = message("Query", rows=rows, coverage=coverage)
        self.question = message("Question", rows=few_rows, coverage=coverage, top=top)
        self.addition = message("Addition", rows=rows, labels=labels)
        n_values = most_rows * (len(cells) + EXTRA_CELLS) + 1000
        made: list[Any] = [self.query, self.question, self.addition]
        for request in made:
            request.row, request.most_values = row, min(n_values, MOST_VALUES)


def _cell_type(column: Column) -> Any:
    """Return the type of a cell that is not missing."""
    if column.cell == "number":
        return Number
    if column.cell == "flag":
        return Flag
    # A category may look like a number or a flag to whoever sends it.
    return Text | Flag | Number if column.kind != "date" else Text

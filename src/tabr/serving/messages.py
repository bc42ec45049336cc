"""Requests and answers of the service, made for the columns of its model."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StrictBool,
    StrictInt,
    create_model,
)
from pydantic import StrictStr as Text

from tabr.serving.schema import ColumnInfo, Schema

Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Label = Number | StrictBool | Text
Coverage = Annotated[float, Field(gt=0, lt=1)]
MOST_IDS = 10_000
Ids = Annotated[
    list[Annotated[StrictInt, Field(ge=0, lt=2**63)]],
    Field(min_length=1, max_length=MOST_IDS),
]


class Strictly(BaseModel):
    """A message that holds nothing but what it names."""

    model_config = ConfigDict(extra="forbid")


class Interval(BaseModel):
    """Of a number: what is predicted, and between what it lies."""

    prediction: float | None
    interval: tuple[float | None, float | None]
    typicality: float | None = Field(
        description="share of known rows that are at least as far from all others"
    )


class Classes(BaseModel):
    """Of a class: what is predicted, how likely each is, and which may be true."""

    prediction: bool | float | str
    probabilities: dict[str, float]
    set: list[bool | float | str]
    typicality: float | None


class Predictions(BaseModel):
    """What is predicted for each row, by which version of the memory."""

    version: str
    predictions: list[Interval | Classes]


class Neighbor(BaseModel):
    """A row of the memory, and what it did to a prediction."""

    id: int
    label: bool | float | str | None
    weight: float
    effect: float
    distance: float | None
    correction: float | None = None
    row: dict[str, Any]


class Others(BaseModel):
    """The neighbours that are not listed, together."""

    count: int
    weight: float
    effect: float


class Receipt(BaseModel):
    """Where a prediction came from."""

    usual: float | None
    alone: float | None
    share: float
    neighbors: list[Neighbor]
    others: Others


class IntervalReceipt(Interval, Receipt):
    """A predicted number, and where it came from."""


class ClassesReceipt(Classes, Receipt):
    """A predicted class, and where it came from."""


class Explanations(BaseModel):
    """Where the prediction for each row came from."""

    version: str
    explanations: list[IntervalReceipt | ClassesReceipt]


class Changed(BaseModel):
    """What a change of the memory has led to."""

    ids: list[int]
    n_candidates: int
    version: str


class Relabelling(Strictly):
    """Other labels for candidates, in the order of their ids."""

    ids: Ids
    labels: Annotated[list[Label], Field(min_length=1, max_length=MOST_IDS)]


class Removal(Strictly):
    """Candidates to forget."""

    ids: Ids


class Candidate(BaseModel):
    """A row of the memory."""

    id: int
    label: bool | float | str | None
    row: dict[str, Any]


class Candidates(BaseModel):
    """Rows of the memory."""

    rows: list[Candidate]


class Column(BaseModel):
    """A column of a row, and what is usual in it."""

    name: str
    kind: Literal["numeric", "binary", "categorical", "date"] | None
    levels: list[bool | float | str] | None
    low: float | None
    high: float | None
    median: float | None
    example: bool | float | str | None


class Place(BaseModel):
    """Columns that are degrees on Earth."""

    latitude: str
    longitude: str


class About(BaseModel):
    """What a client must know of the model."""

    version: str
    task: Literal["regression", "classification"]
    target: str | None
    classes: list[bool | float | str] | None
    n_candidates: int
    n_members: int
    context_size: int
    tabr: str = Field(description="version of the service")
    rights: Literal["read", "write"]
    coverage: float
    columns: list[Column]
    place: Place | None


class Compacted(BaseModel):
    """The model file that holds all changes."""

    version: str
    file: str


class Problem(BaseModel):
    """What went wrong, in one sentence."""

    detail: str | list[dict[str, Any]]


class Requests:
    """The requests that hold rows, checked column by column."""

    def __init__(self, schema: Schema, most_rows: int, coverage: float) -> None:
        """Make them for the columns of a model."""
        fields: dict[str, Any] = {
            f"column_{k}": (_cell(column) | None, Field(alias=column.name))
            for k, column in enumerate(schema.columns)
        }
        for k, name in enumerate(schema.others):
            fields[f"other_{k}"] = (Any, Field(default=None, alias=name, exclude=True))
        row = create_model("Row", __config__=ConfigDict(extra="forbid"), **fields)
        rows = Annotated[list[row], Field(min_length=1, max_length=most_rows)]  # type: ignore[valid-type]
        labels = Annotated[list[Label], Field(min_length=1, max_length=most_rows)]
        strictly = ConfigDict(extra="forbid")
        self.query: type[BaseModel] = create_model(
            "Query",
            __config__=strictly,
            rows=(rows, ...),
            coverage=(Coverage, coverage),
        )
        few = Annotated[list[row], Field(min_length=1, max_length=min(most_rows, 256))]  # type: ignore[valid-type]
        self.question: type[BaseModel] = create_model(
            "Question",
            __config__=strictly,
            rows=(few, ...),
            coverage=(Coverage, coverage),
            top=(Annotated[int, Field(ge=1, le=1000)], 12),
        )
        self.addition: type[BaseModel] = create_model(
            "Addition", __config__=strictly, rows=(rows, ...), labels=(labels, ...)
        )


def _cell(column: ColumnInfo) -> Any:
    """Return the type of a cell; None says that it is missing."""
    if column.cell == "number":
        return Number
    if column.cell == "flag":
        return StrictBool
    # A category may look like a number or a flag to whoever sends it.
    return Text | StrictBool | Number if column.kind != "date" else Text

"""Whole tables as bodies of requests and answers: CSV, or an Arrow stream."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tabr.errors import DataError
from tabr.serving import arrow_stream, bodies
from tabr.serving.bounds import Bounds
from tabr.tables.csv import ColumnType, read_csv, to_csv
from tabr.tables.frame import column_index

CSV, ARROW = "text/csv", "application/vnd.apache.arrow.stream"
_TEXT, _BYTES = {"type": "string"}, {"type": "string", "format": "binary"}
_CONTENT = {CSV: {"schema": _TEXT}, ARROW: {"schema": _BYTES}}
BODY = {"requestBody": {"required": True, "content": _CONTENT}}  # for OpenAPI
ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {CSV: {}, ARROW: {}}, "description": "a table"}
}

_SEPARATORS = ",;\t"
_HEADER = 1 << 20  # bytes
_LINES = 4  # of a row, at most on the mean
_CHUNK = 2000  # rows that are written before other threads get their turn


def media_type(request: Request) -> str:
    """Return the format of a request's body, one of the two."""
    bodies.check_plain(request)
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in (CSV, ARROW):
        raise HTTPException(
            415, f"a table must come as {CSV} or {ARROW}, however: {media!r:.80}"
        )
    return media


def read(
    content: bytes, media: str, bounds: Bounds, types: Mapping[str, ColumnType]
) -> pd.DataFrame:
    """Return the table of a body, where CSV is read as the model knows its columns."""
    try:
        if media == CSV:
            _check_csv(content, bounds)
            frame = read_csv(content, types)
        else:
            frame = arrow_stream.read(content, bounds)
    except DataError:
        raise
    except Exception as error:  # whatever their readers make of hostile bytes
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "empty"
        raise DataError(f"the table cannot be read as {media}: {reason:.400}") from None
    bounds.check_frame(frame)
    return frame.set_axis(column_index(frame.columns), axis=1)


def _check_csv(content: bytes, bounds: Bounds) -> None:
    """Refuse what would become a huge table, by its lines and separators.

    Quotes are not looked at, so that none can hide a separator.
    """
    n_lines = max(content.count(b"\n"), content.count(b"\r")) + 1
    if n_lines > _LINES * bounds.rows:  # a cell may have several
        bounds.check_rows(n_lines)
    n_signs = max(content.count(sign.encode()) for sign in _SEPARATORS)
    bounds.check_cells(n_signs + n_lines)
    begin = content[:_HEADER].decode("utf-8-sig", "replace")
    for sign in _SEPARATORS:
        text = io.StringIO(begin, newline="")
        names = next(filter(None, csv.reader(text, delimiter=sign)), [])
        bounds.check_columns(len(names))
        if len(content) > _HEADER and text.tell() == len(begin):
            raise DataError(
                f"the header may have at most {_HEADER} bytes, however it has more:"
                " shorten the names"
            )


def write(predictions: pd.DataFrame, media: str) -> Response:
    """Return predictions as the table of an answer."""
    if media == CSV:
        return Response(to_csv(predictions), media_type=CSV)
    sink = io.BytesIO()
    arrow = pa.Table.from_pandas(predictions, preserve_index=False)
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    return Response(sink.getvalue(), media_type=ARROW)


def to_frame(predictions: list[dict[str, Any]]) -> pd.DataFrame:
    """Return predictions as a table."""
    return pd.DataFrame(map(_cells, predictions))


def _cells(prediction: dict[str, Any]) -> dict[str, Any]:
    """Return a prediction as a row: a number with its interval, or a class."""
    if "interval" in prediction:
        cells = dict(zip(("low", "high"), prediction["interval"], strict=True))
    else:
        shares = prediction["probabilities"].items()
        cells = {f"probability of {name}": share for name, share in shares}
    return {
        "prediction": prediction["prediction"],
        **cells,
        "typicality": prediction["typicality"],
    }

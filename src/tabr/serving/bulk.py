"""Whole tables as bodies of requests and answers: CSV, or an Arrow stream."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from tabr.errors import DataError
from tabr.tables.csv import ColumnType, read_csv, to_csv
from tabr.tables.frame import column_index

CSV, ARROW = "text/csv", "application/vnd.apache.arrow.stream"
_TEXT, _BYTES = {"type": "string"}, {"type": "string", "format": "binary"}
_CONTENT = {CSV: {"schema": _TEXT}, ARROW: {"schema": _BYTES}}
BODY = {"requestBody": {"required": True, "content": _CONTENT}}  # for OpenAPI
ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {CSV: {}, ARROW: {}}, "description": "a table"}
}


def media_type(request: Request) -> str:
    """Return the format of a request's body, one of the two."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in (CSV, ARROW):
        raise DataError(
            f"a table must come as {CSV} or {ARROW}, however: {media!r:.80}"
        )
    return media


def read(
    content: bytes, media: str, most_rows: int, types: Mapping[str, ColumnType]
) -> pd.DataFrame:
    """Return the table of a body, where CSV is read as the model knows its columns."""
    try:
        if media == CSV:
            frame = read_csv(content, types)
        else:
            with pa.ipc.open_stream(pa.BufferReader(content)) as stream:
                column_index(stream.schema.names)
                frame = stream.read_all().to_pandas()
    except (ValueError, pa.ArrowException, OSError, EOFError, IndexError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "empty"
        raise DataError(f"the table cannot be read as {media}: {reason:.400}") from None
    if len(frame) > most_rows:
        raise DataError(
            f"a table may have at most {most_rows} rows, however {len(frame)} came"
        )
    return frame


def write(predictions: list[dict[str, Any]], media: str) -> Response:
    """Return predictions as the table of an answer."""
    frame = pd.DataFrame(map(_cells, predictions))
    if media == CSV:
        return Response(to_csv(frame), media_type=CSV)
    sink = io.BytesIO()
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    return Response(sink.getvalue(), media_type=ARROW)


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

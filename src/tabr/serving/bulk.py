"""Whole tables in one request: CSV, or an Arrow stream, and the same back."""

from __future__ import annotations

import io
from typing import Annotated, Any

import pandas as pd
import pyarrow as pa
from fastapi import FastAPI, Query, Request, Response

from tabr.errors import DataError
from tabr.serving import messages
from tabr.serving.guards import Limits
from tabr.serving.service import Service
from tabr.text import plain_list

CSV, ARROW = "text/csv", "application/vnd.apache.arrow.stream"
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            CSV: {"schema": {"type": "string"}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


def media_type(request: Request) -> str:
    """Return the format of a request's body, one of the two."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in (CSV, ARROW):
        raise DataError(
            f"a table must come as {CSV} or {ARROW}, however: {media!r:.80}"
        )
    return media


def read(content: bytes, media: str, most_rows: int) -> pd.DataFrame:
    """Return the table of a body."""
    try:
        if media == CSV:
            frame = pd.read_csv(io.BytesIO(content), encoding="utf-8")
        else:
            with pa.ipc.open_stream(pa.BufferReader(content)) as stream:
                frame = stream.read_all().to_pandas()
    except (ValueError, pa.ArrowException, OSError, EOFError, IndexError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "empty"
        raise DataError(f"the table cannot be read as {media}: {reason:.200}") from None
    if len(frame) > most_rows:
        raise DataError(
            f"a table may have at most {most_rows} rows, however {len(frame)} came"
        )
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def write(frame: pd.DataFrame, media: str) -> Response:
    """Return a table as an answer."""
    if media == CSV:
        return Response(frame.to_csv(index=False), media_type=CSV)
    sink = io.BytesIO()
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    return Response(sink.getvalue(), media_type=ARROW)


def add_routes(app: FastAPI, service: Service, limits: Limits) -> None:
    """Add the routes of tables to an app."""
    served = service.served
    tables = {"content": {CSV: {}, ARROW: {}}, "description": "a table"}

    @app.post(
        "/v1/predict/table",
        response_class=Response,
        responses={**messages.problems(), 200: tables},
        openapi_extra=_BODY,
    )
    async def predict(
        request: Request,
        coverage: Annotated[float, Query(gt=0, lt=1)] = messages.COVERAGE,
    ) -> Response:
        """Predict the rows of a table; the answer has predictions and their limits."""
        media, content = media_type(request), await request.body()

        def work() -> Response:
            frame = read(content, media, limits.bulk_rows)
            _, predictions = served.predict(frame, [coverage] * len(frame))
            return write(pd.DataFrame(map(_cells, predictions)), media)

        return await service.read(work)

    @app.post(
        "/v1/candidates/table",
        status_code=201,
        responses=messages.problems(),
        openapi_extra=_BODY,
    )
    async def add(
        request: Request,
        target: Annotated[str, Query(description="the column of labels", min_length=1)],
    ) -> messages.ChangeResult:
        """Add the labelled rows of a table to the candidates."""
        media, content = media_type(request), await request.body()

        def work() -> messages.ChangeResult:
            frame = read(content, media, limits.bulk_rows)
            if target not in frame:
                raise DataError(f"the table must have the column {target!r:.80}")
            labels = plain_list(frame.pop(target))
            frame = served.model.preprocessor_.match(frame, caller="The model")
            return served.add(served.schema.to_rows(frame), labels)

        return await service.change(work)


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

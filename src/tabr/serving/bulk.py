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


def read(content: bytes, media: str, most_rows: int) -> pd.DataFrame:
    """Read the table of a body."""
    kind = media.partition(";")[0].strip().lower()
    if kind not in (CSV, ARROW):
        raise DataError(f"a table must come as {CSV} or {ARROW}, however: {kind!r:.80}")
    try:
        if kind == CSV:
            frame = pd.read_csv(io.BytesIO(content), encoding="utf-8")
        else:
            with pa.ipc.open_stream(pa.BufferReader(content)) as stream:
                frame = stream.read_all().to_pandas()
    except (ValueError, pa.ArrowException, OSError, EOFError, IndexError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "empty"
        raise DataError(f"the table cannot be read as {kind}: {reason:.200}") from None
    if len(frame) > most_rows:
        raise DataError(
            f"a table may have at most {most_rows} rows, however {len(frame)} came"
        )
    return frame.set_axis([str(name) for name in frame.columns], axis=1)


def written(table: dict[str, list[Any]], media: str) -> Response:
    """Return a table in the format of the request."""
    frame = pd.DataFrame(table)
    if media.partition(";")[0].strip().lower() == CSV:
        return Response(frame.to_csv(index=False), media_type=CSV)
    sink = io.BytesIO()
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    return Response(sink.getvalue(), media_type=ARROW)


def add_routes(app: FastAPI, service: Any, limits: Limits) -> None:
    """Add the routes of tables."""
    served = service.served
    problems: dict[int | str, dict[str, Any]] = {
        status: {"model": messages.Problem}
        for status in (400, 401, 403, 408, 409, 413, 422, 503)
    }

    @app.post(
        "/v1/predict/table",
        response_class=Response,
        responses={
            **problems,
            200: {"content": {CSV: {}, ARROW: {}}, "description": "a table"},
        },
        openapi_extra=_BODY,
    )
    async def predict(
        request: Request, coverage: Annotated[float, Query(gt=0, lt=1)] = 0.9
    ) -> Response:
        """Predict the rows of a table; the answer has predictions and their limits."""
        media = request.headers.get("content-type", "")
        content = await request.body()

        def work() -> Response:
            frame = read(content, media, limits.bulk_rows)
            _, answers = served.predict(frame, [coverage] * len(frame))
            return written(columns(answers), media)

        answer: Response = await service.explain(work)
        return answer

    @app.post(
        "/v1/candidates/table",
        status_code=201,
        response_model=messages.Changed,
        responses=problems,
        openapi_extra=_BODY,
    )
    async def add(
        request: Request,
        target: Annotated[str, Query(description="the column of labels", min_length=1)],
    ) -> dict[str, Any]:
        """Remember the labelled rows of a table."""
        media = request.headers.get("content-type", "")
        content = await request.body()

        def work() -> dict[str, Any]:
            frame = read(content, media, limits.bulk_rows)
            if target not in frame:
                raise DataError(f"the table must have the column {target!r:.80}")
            labels = plain_list(frame.pop(target).tolist())
            rows = served.schema.to_rows(served.matched(frame))
            done: dict[str, Any] = served.add(rows, labels)._asdict()
            return done

        answer: dict[str, Any] = await service.change(work)
        return answer


def columns(answers: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return answers as columns: numbers with their interval, or classes."""
    table: dict[str, list[Any]] = {"prediction": [a["prediction"] for a in answers]}
    if answers and "interval" in answers[0]:
        table["low"] = [a["interval"][0] for a in answers]
        table["high"] = [a["interval"][1] for a in answers]
    elif answers:
        for name in answers[0]["probabilities"]:
            table[f"probability of {name}"] = [
                a["probabilities"][name] for a in answers
            ]
    table["typicality"] = [a["typicality"] for a in answers]
    return table

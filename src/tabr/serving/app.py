"""The routes of the service, and the statuses of its refusals.

Annotations are evaluated here, as FastAPI reads those of requests, which are made for
the columns of a model.
"""

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from fastapi import FastAPI, Header, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tabr import __version__
from tabr.errors import CellTypeError, DataError, UnknownIdError
from tabr.serving import bodies, bulk, messages
from tabr.serving.access.origins import Origins
from tabr.serving.access.tokens import Tokens
from tabr.serving.bounds import BYTES_PER_CELL, EXTRA_COLUMNS, Bounds
from tabr.serving.guards import Guard, Limits
from tabr.serving.served_model import ServedModel
from tabr.serving.service import Compacting, Service
from tabr.serving.store.changes import KeyReused
from tabr.serving.store.connection import OutcomeUnknown, StoreError
from tabr.text import plain_list, short

logger = logging.getLogger("tabr.serving")

FEW = 32  # predictions that are written at once, without a thread
CHUNK = 2048  # rows of a table that are predicted together
MOST_LETTERS = 200  # of a name in a refusal
PAGE = Path(__file__).with_name("page")

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="a name of the request: sent again, it is not done again",
    ),
]


def create_app(
    served: ServedModel,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    *,
    origins: Origins | None = None,
    compacting: Compacting | None = None,
) -> FastAPI:
    """Return the service of a model, as an ASGI app.

    It may be asked under the names of `origins`; None are those of this machine.
    Changes become a model file as `compacting` says. When the app ends, the model is
    closed.
    """
    tokens, limits = tokens or Tokens(), limits or Limits()
    service = Service(served, compacting or Compacting())
    app = FastAPI(
        title="tabr",
        version=__version__,
        summary="Predictions that can name the rows they came from.",
        lifespan=service.lifespan,
        docs_url=None,
        redoc_url=None,
        responses=messages.problems(400, 401, 403, 408, 413, 415, 421, 422, 503),
    )
    app.state.service = service
    app.router.route_class = bodies.route_class(service.parse)
    requests = messages.Requests(served.schema, limits.rows)
    _add_questions(app, service, requests)
    _add_changes(app, service, requests)
    _add_tables(app, service, _bounds(service, limits))
    _add_pages(app, service)
    _add_refusals(app)
    app.add_middleware(
        Guard,
        tokens=tokens,
        origins=origins or Origins(),
        limits=limits,
        metrics=service.metrics,
    )
    return app


def _bounds(service: Service, limits: Limits) -> Bounds:
    """Return how much a table may hold."""
    schema = service.served.schema
    return Bounds(
        rows=limits.bulk_rows,
        columns=len(schema.columns) + len(schema.others) + EXTRA_COLUMNS,
        cells=limits.body_bytes // BYTES_PER_CELL,
        n_bytes=limits.body_bytes,
    )


def _json(name: str, items: Sequence[Any], **more: str) -> Response:
    """Return an answer, written item by item so that other threads get their turn."""
    dump = partial(json.dumps, allow_nan=False)
    head = "".join(f"{dump(k)}: {dump(v)}, " for k, v in more.items())
    text = f"{{{head}{dump(name)}: [{', '.join(map(dump, items))}]}}"
    return Response(text, media_type="application/json")


def _client(request: Request) -> str | None:
    """Return the name of the client's token, if it has one."""
    name = request.scope.get("state", {}).get("client")
    return None if name is None else str(name)


def _add_questions(app: FastAPI, service: Service, r: messages.Requests) -> None:
    served = service.served

    @app.get("/v1/model", response_model=messages.ModelInfo)
    async def model(request: Request) -> dict[str, Any]:
        """Return the columns of a row, the number of candidates and the version."""
        rights = request.state.rights
        return {**served.about(), "rights": rights, "coverage": messages.COVERAGE}

    @app.post("/v1/predict", response_model=messages.Predictions)
    async def predict(query: r.query) -> Response:  # type: ignore[name-defined]
        """Predict rows, each with an interval or a set of classes."""
        rows = [(row, query.coverage) for row in query.rows]
        answers = await service.predictions.ask(rows)
        predictions = [prediction for _, prediction in answers]
        write = partial(_json, "predictions", predictions, version=answers[0][0])
        return write() if len(rows) <= FEW else await service.read(write)

    @app.post("/v1/explain", response_model=messages.Explanations)
    async def explain(question: r.question) -> Response:  # type: ignore[name-defined]
        """Predict rows, with the effect of each neighbour on the prediction."""

        def work() -> Response:
            frame = served.schema.to_frame(question.rows)
            coverage, top = question.coverage, question.top
            version, explanations = served.explain(frame, coverage, top)
            return _json("explanations", explanations, version=version)

        return await service.read(work)

    @app.get("/v1/candidates", response_model=messages.Candidates)
    async def candidates(
        n: Annotated[int, Query(ge=1, le=1000, description="how many")] = 20,
    ) -> Response:
        """Return candidates, spread evenly over all."""
        return await service.read(lambda: _json("rows", served.sample(n)))


def _add_changes(app: FastAPI, service: Service, r: messages.Requests) -> None:
    served, problems = service.served, messages.problems(404, 409, 504)

    @app.post("/v1/candidates", status_code=201, responses=problems)
    async def add(
        request: Request,
        addition: r.addition,  # type: ignore[name-defined]
        key: Key = None,
    ) -> messages.ChangeResult:
        """Add labelled rows to the candidates; predictions use them at once."""
        _check_labels("row", addition.rows, addition.labels)
        rows, who = addition.rows, _client(request)
        return await service.change(served.add, rows, addition.labels, key, who)

    @app.patch("/v1/candidates", responses=problems)
    async def relabel(
        request: Request, change: messages.Relabelling, key: Key = None
    ) -> messages.ChangeResult:
        """Give candidates other labels."""
        _check_labels("id", change.ids, change.labels)
        who = _client(request)
        return await service.change(served.relabel, change.ids, change.labels, key, who)

    @app.delete("/v1/candidates", responses=problems)
    async def remove(
        request: Request, removal: messages.Removal, key: Key = None
    ) -> messages.ChangeResult:
        """Remove candidates."""
        who = _client(request)
        return await service.change(served.remove, removal.ids, key, who)

    @app.get("/v1/changes", response_model=messages.History)
    async def changes(
        after: Annotated[int, Query(ge=0, le=2**53, description="a number")] = 0,
        n: Annotated[int, Query(ge=1, le=1000, description="how many")] = 100,
    ) -> dict[str, Any]:
        """Return who changed what and when, after the change of a number."""
        entries = await service.read(served.store.history, after, n)
        return {"changes": [entry._asdict() for entry in entries]}

    @app.post("/v1/compact", responses=messages.problems(409, 504))
    async def compact(key: Key = None) -> messages.Compaction:
        """Write a model file that holds all changes."""
        return await service.compact(key)


def _add_tables(app: FastAPI, service: Service, bounds: Bounds) -> None:
    served = service.served

    @app.post(
        "/v1/predict/table",
        response_class=Response,
        responses=bulk.ANSWER,
        openapi_extra=bulk.BODY,
    )
    async def predict(
        request: Request,
        coverage: Annotated[float, Query(gt=0, lt=1)] = messages.COVERAGE,
    ) -> Response:
        """Predict the rows of a table; the answer has predictions and their limits."""
        media, content = bulk.media_type(request), await request.body()
        types = served.schema.types
        frame = await service.parse(bulk.read, content, media, bounds, types)
        state = served.state

        def work(start: int) -> pd.DataFrame:
            rows = frame.iloc[start : start + CHUNK]
            _, predictions = served.predict(rows, [coverage] * len(rows), state)
            return bulk.to_frame(predictions)

        parts = []
        for start in range(0, len(frame) or 1, CHUNK):  # explanations are made between
            parts.append(await service.read(work, start))
            if await request.is_disconnected():
                raise HTTPException(400, "the client left")
            request.state.go_on()
        return await service.read(bulk.write, pd.concat(parts), media)

    @app.post(
        "/v1/candidates/table",
        status_code=201,
        openapi_extra=bulk.BODY,
        responses=messages.problems(409, 504),
    )
    async def add(
        request: Request,
        target: Annotated[str, Query(description="the column of labels", min_length=1)],
        key: Key = None,
    ) -> messages.ChangeResult:
        """Add the labelled rows of a table to the candidates."""
        media, content = bulk.media_type(request), await request.body()
        who, schema = _client(request), served.schema
        types = {**schema.types, target: schema.target_type}
        frame = await service.parse(bulk.read, content, media, bounds, types)

        def work() -> messages.ChangeResult:
            if target not in frame:
                raise DataError(f"the table must have the column {target!r:.80}")
            labels = plain_list(frame.pop(target))
            preprocessor = served.model.preprocessor_
            rows = preprocessor.match(frame, caller="The model")
            preprocessor.encode(rows)  # refuses what JSON hides, as infinite numbers
            return served.add(schema.to_rows(rows), labels, key, who)

        return await service.change(work)


def _check_labels(word: str, items: Sequence[Any], labels: Sequence[Any]) -> None:
    if len(items) != len(labels):
        raise DataError(
            f"each {word} needs one label, however {len(items)} {word}s and"
            f" {len(labels)} labels came"
        )


def _add_pages(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def alive() -> dict[str, str]:
        """Return that the process answers."""
        return {"status": "ok"}

    @app.get("/readyz", include_in_schema=False)
    async def ready() -> JSONResponse:
        """Return whether requests may come, changes too; or what is wrong."""
        if not service.ready:
            return JSONResponse({"status": "starting"}, 503)
        if trouble := await service.health.trouble():
            body = {"status": "not ready", "reason": f"{trouble}; predictions go on"}
            return JSONResponse(body, 503)
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        """Return counters for Prometheus."""
        headers = {"content-type": CONTENT_TYPE_LATEST}
        return Response(generate_latest(service.metrics.registry), headers=headers)

    @app.get("/", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def page(request: Request) -> FileResponse:
        """Return the page for people, or the one for programmers."""
        is_docs = request.url.path == "/docs"
        return FileResponse(PAGE / ("docs.html" if is_docs else "index.html"))

    app.mount("/static", StaticFiles(directory=PAGE), name="static")


def _add_refusals(app: FastAPI) -> None:
    """Give each error a status and one sentence, and never a trace."""

    def with_status(status: int) -> Callable[[Request, Exception], JSONResponse]:
        return lambda request, error: JSONResponse({"detail": str(error)}, status)

    app.add_exception_handler(DataError, with_status(422))
    app.add_exception_handler(CellTypeError, with_status(422))
    app.add_exception_handler(UnknownIdError, with_status(404))
    app.add_exception_handler(KeyReused, with_status(409))

    @app.exception_handler(StoreError)
    async def not_kept(request: Request, error: StoreError) -> JSONResponse:
        """Answer what became of the change; where the store is stays in the log."""
        logger.error("%s", error)
        if isinstance(error, OutcomeUnknown):
            return JSONResponse(messages.UNKNOWN, 504)
        if request.method == "GET":
            return JSONResponse({"detail": "the store cannot be read: try again"}, 503)
        return JSONResponse(messages.NOT_MADE, 503)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        """Name the mistakes and their places; the values are not sent back."""
        detail = [
            {"loc": [*map(_place, e["loc"])], "msg": e["msg"], "type": e["type"]}
            for e in error.errors()[: bodies.MOST_PROBLEMS]
        ]
        # Its frames hold the body and itself, which only a rare collection would find.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return JSONResponse({"detail": detail}, 422)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        """Keep the trace in the log."""
        logger.error("unexpected %s", type(error).__name__, exc_info=error)
        return JSONResponse({"detail": "something went wrong here; see the log"}, 500)


def _place(part: str | int) -> str | int:
    """Return a name or a number that says where a mistake is, as an answer may hold it.

    A name is the client's: it may be long, or no text that can be encoded.
    """
    if isinstance(part, int):
        return part
    return short(part.encode("utf-8", "backslashreplace").decode(), MOST_LETTERS)

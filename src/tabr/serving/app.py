"""The service: routes, and what each of them asks of the memory.

Annotations are evaluated here, as FastAPI reads those of requests, which are made for
the columns of a model.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles

from tabr import __version__
from tabr.errors import DataError
from tabr.serving import bulk, messages
from tabr.serving.batching import Batcher
from tabr.serving.guards import Guard, Limits, Tokens
from tabr.serving.metrics import Metrics
from tabr.serving.served_model import Answered, ServedModel, UnknownIds
from tabr.serving.store import KeyReused, StoreError

logger = logging.getLogger("tabr.serving")

PAGE = Path(__file__).with_name("page")
COVERAGE = 0.9
CATCH_UP_SECONDS = 1.0  # between looks at what others did to a shared store

Result = TypeVar("Result")
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
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": messages.Problem}
    for status in (400, 401, 403, 408, 413, 422, 503)
}
CHANGES: dict[int | str, dict[str, Any]] = {
    **PROBLEMS,
    404: {"model": messages.Problem},
    409: {"model": messages.Problem},
}


def create_app(
    served: ServedModel,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    *,
    compact_at_end: bool = True,
) -> FastAPI:
    """Return the service of a memory, as an ASGI app.

    Args:
        served: The model in use; it is closed when the app ends.
        tokens: Who may do what.
        limits: How much a request may ask for.
        compact_at_end: Whether changes become a model file when the app ends.
    """
    tokens, limits = tokens or Tokens(), limits or Limits()
    service = _Service(served, compact_at_end)
    app = FastAPI(
        title="tabr",
        version=__version__,
        summary="Predictions that can name the rows they came from.",
        lifespan=service.lifespan,
        docs_url=None,
        redoc_url=None,
    )
    requests = messages.Requests(served.schema, limits.rows, COVERAGE)
    _add_questions(app, service, requests)
    _add_changes(app, service, requests)
    bulk.add_routes(app, service, limits)
    _add_rest(app, service)
    _add_errors(app, service)
    app.add_middleware(Guard, tokens=tokens, limits=limits)
    service.metrics.watch(app)
    return app


class _Service:
    """What requests share: the memory, and the threads that work for them."""

    def __init__(self, served: ServedModel, compact_at_end: bool) -> None:
        self.served, self.compact_at_end = served, compact_at_end
        self.metrics = Metrics(served)
        self.predictions = Batcher(self._predict)
        self._others = ThreadPoolExecutor(1, "explanations")
        self._changes = ThreadPoolExecutor(1, "changes")
        self.ready = False

    def _predict(self, asked: Sequence[tuple[Any, float]]) -> list[Any]:
        """Answer rows that each come with a coverage."""
        frame = self.served.schema.to_frame([row for row, _ in asked])
        self.metrics.batch_rows.observe(len(asked))
        coverages = [coverage for _, coverage in asked]
        version, answers = self.served.predict(frame, coverages)
        return [(version, answer) for answer in answers]

    async def explain(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Do what takes longer than a prediction."""
        return await _in(self._others, work, *arguments)

    async def change(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Change the memory; changes wait for one another."""
        return await _in(self._changes, work, *arguments)

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Look after a shared store while the app runs; then compact and close."""
        look = asyncio.create_task(self._keep_up())
        self.ready = True
        try:
            yield
        finally:
            self.ready = False
            look.cancel()
            await self.change(self._close)
            self.predictions.close()
            self._others.shutdown(wait=False, cancel_futures=True)
            self._changes.shutdown(wait=False)

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(CATCH_UP_SECONDS)
            try:
                await self.change(self.served.catch_up)
            except Exception as error:  # the store may come back
                logger.warning("the store cannot be read: %s", error)

    def _close(self) -> None:
        try:
            if self.compact_at_end and self.served.n_uncompacted:
                self.served.compact()
        except Exception as error:  # nothing is lost: the store has all changes
            logger.warning("changes were not compacted: %s", error)
        finally:
            self.served.close()


async def _in(
    thread: ThreadPoolExecutor, work: Callable[..., Result], *arguments: Any
) -> Result:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(thread, partial(work, *arguments))


def _rows(request: Any) -> list[dict[str, Any]]:
    """Return the rows of a request by the names of their columns."""
    return [row.model_dump(by_alias=True) for row in request.rows]


def _add_questions(app: FastAPI, service: _Service, r: messages.Requests) -> None:
    served = service.served

    @app.get("/v1/model", response_model=messages.About, responses=PROBLEMS)
    async def model(request: Request) -> dict[str, Any]:
        """Return the columns of a row, the size of the memory and its version."""
        rights = request.state.rights
        return {**served.about(), "rights": rights, "coverage": COVERAGE}

    @app.post("/v1/predict", response_model=messages.Predictions, responses=PROBLEMS)
    async def predict(query: r.query) -> JSONResponse:  # type: ignore[name-defined]
        """Predict rows, each with an interval or a set of classes."""
        asked = [(row, query.coverage) for row in _rows(query)]
        answers = await service.predictions.ask(asked)
        predictions = [answer for _, answer in answers]
        return JSONResponse({"version": answers[0][0], "predictions": predictions})

    @app.post("/v1/explain", response_model=messages.Explanations, responses=PROBLEMS)
    async def explain(question: r.question) -> JSONResponse:  # type: ignore[name-defined]
        """Predict rows, and say what each neighbour did to the prediction."""
        frame = served.schema.to_frame(_rows(question))
        how = question.coverage, question.top
        version, answers = await service.explain(served.explain, frame, *how)
        return JSONResponse({"version": version, "explanations": answers})

    @app.get("/v1/candidates", response_model=messages.Candidates, responses=PROBLEMS)
    async def candidates(
        n: Annotated[int, Query(ge=1, le=1000, description="how many")] = 20,
    ) -> dict[str, Any]:
        """Return rows of the memory, spread evenly over it."""
        return {"rows": await service.explain(served.sample, n)}


def _add_changes(app: FastAPI, service: _Service, r: messages.Requests) -> None:
    served = service.served
    how: dict[str, Any] = {"response_model": messages.Changed, "responses": CHANGES}

    @app.post("/v1/candidates", status_code=201, **how)
    async def add(addition: r.addition, key: Key = None) -> dict[str, Any]:  # type: ignore[name-defined]
        """Remember labelled rows; predictions use them at once."""
        if len(addition.rows) != len(addition.labels):
            raise DataError(
                f"each row needs one label, however {len(addition.rows)} rows and"
                f" {len(addition.labels)} labels came"
            )
        done = await service.change(served.add, _rows(addition), addition.labels, key)
        return _changed(done)

    @app.patch("/v1/candidates", **how)
    async def relabel(change: messages.Relabelling, key: Key = None) -> dict[str, Any]:
        """Give candidates other labels."""
        if len(change.ids) != len(change.labels):
            raise DataError(
                f"each id needs one label, however {len(change.ids)} ids and"
                f" {len(change.labels)} labels came"
            )
        work = served.relabel, change.ids, change.labels, key
        return _changed(await service.change(*work))

    @app.delete("/v1/candidates", **how)
    async def remove(removal: messages.Removal, key: Key = None) -> dict[str, Any]:
        """Forget candidates."""
        return _changed(await service.change(served.remove, removal.ids, key))

    @app.post("/v1/compact", response_model=messages.Compacted, responses=PROBLEMS)
    async def compact() -> dict[str, Any]:
        """Write a model file that holds all changes."""
        path = await service.change(served.compact)
        return {"version": served.version, "file": path.name}


def _changed(done: Answered) -> dict[str, Any]:
    return done._asdict()


def _add_rest(app: FastAPI, service: _Service) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def alive() -> dict[str, str]:
        """Say that the process answers."""
        return {"status": "ok"}

    @app.get("/readyz", include_in_schema=False)
    async def ready() -> JSONResponse:
        """Say whether requests may come."""
        status = "ready" if service.ready else "starting"
        return JSONResponse({"status": status}, 200 if service.ready else 503)

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        """Return counters for Prometheus."""
        return Response(*service.metrics.page())

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        """Return the page for people."""
        return FileResponse(PAGE / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        """Return the page for programmers."""
        return FileResponse(PAGE / "docs.html")

    app.mount("/static", StaticFiles(directory=PAGE), name="static")


def _add_errors(app: FastAPI, service: _Service) -> None:
    """Give each error a status and one sentence, and never a trace."""

    def say(status: int) -> Callable[[Request, Any], JSONResponse]:
        def handle(request: Request, error: Any) -> JSONResponse:
            text = error.args[0] if isinstance(error, KeyError) else str(error)
            return JSONResponse({"detail": text}, status)

        return handle

    app.add_exception_handler(DataError, say(422))
    app.add_exception_handler(UnknownIds, say(404))
    app.add_exception_handler(KeyReused, say(409))

    @app.exception_handler(StoreError)
    async def not_kept(request: Request, error: StoreError) -> JSONResponse:
        """Say that nothing was changed; where the store is stays in the log."""
        logger.error("%s", error)
        text = "the change could not be kept, so it was not made: try again later"
        return JSONResponse({"detail": text}, 503)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        """Name what is wrong and where; what came is not sent back."""
        detail = [
            {"loc": list(e["loc"]), "msg": e["msg"], "type": e["type"]}
            for e in error.errors()
        ]
        return JSONResponse({"detail": detail[:100]}, 422)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        """Keep the trace in the log."""
        logger.error("unexpected %s", type(error).__name__, exc_info=error)
        return JSONResponse({"detail": "something went wrong here; see the log"}, 500)

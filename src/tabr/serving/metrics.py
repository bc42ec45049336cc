"""Counters for Prometheus."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fastapi import FastAPI
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from tabr.serving.served_model import ServedModel

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Requests by route and status, their seconds, batches, the size of the memory."""

    def __init__(self, served: ServedModel) -> None:
        """Begin at zero; each app has a registry of its own."""
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tabr_requests", "Requests.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "tabr_request_seconds",
            "Seconds of a request.",
            ["path"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.batch_rows = Histogram(
            "tabr_batch_rows",
            "Rows that were predicted together.",
            buckets=ROWS,
            registry=self.registry,
        )
        size = Gauge("tabr_candidates", "Rows of the memory.", registry=self.registry)
        size.set_function(lambda: len(served.model.candidates_))
        changes = Gauge("tabr_changes", "Changes applied.", registry=self.registry)
        changes.set_function(lambda: served.applied)

    def watch(self, app: FastAPI) -> None:
        """Count the requests of an app."""
        app.add_middleware(_Counting, metrics=self)

    def page(self) -> tuple[bytes, int, dict[str, str]]:
        """Return the body, status and headers of the answer."""
        body = generate_latest(self.registry)
        return body, 200, {"content-type": CONTENT_TYPE_LATEST}


class _Counting:
    """Counts requests by their route, so that no path of a client's becomes a label."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, answer)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", None) or "other"
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - start)

"""Counters for Prometheus."""

from __future__ import annotations

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.responses import Response
from starlette.types import Scope

from tabr.serving.served_model import ServedModel

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """Requests by route and status, their seconds, batches, the size of the model."""

    def __init__(self, served: ServedModel) -> None:
        """Begin at zero; each app has its own registry."""
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "tabr_requests", "Requests.", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "tabr_request_seconds",
            "Seconds of a request.",
            ["path"],
            buckets=SECONDS,
            registry=registry,
        )
        self.batch_rows = Histogram(
            "tabr_batch_rows",
            "Rows that were predicted together.",
            buckets=ROWS,
            registry=registry,
        )
        size = Gauge("tabr_candidates", "Rows of the memory.", registry=registry)
        size.set_function(lambda: len(served.model.candidates_))
        changes = Gauge("tabr_changes", "Changes applied.", registry=registry)
        changes.set_function(lambda: served.applied)

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request by its route, so that no path of a client's is a label."""
        route = getattr(scope.get("route"), "path", None) or "other"
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def page(self) -> Response:
        """Return all counters as Prometheus reads them."""
        body = generate_latest(self.registry)
        return Response(body, headers={"content-type": CONTENT_TYPE_LATEST})

"""Cut the wire between services and their database, most often at a commit.

Two services share a PostgreSQL. In each round one commit is cut, before it arrives or
before its answer comes back; or the wire hangs there; or all connections are cut at
any moment. In some rounds nobody is let through for a while afterwards.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.serve import make_model
from reliability.clients import Clients, Service, has_held, remembered
from reliability.trials import Trial
from reliability.wire import Wire

LONGEST_WAIT = 10.0  # seconds for a commit to cut
LONGEST_OUTAGE = 15.0  # seconds; longer than a service looks for the truth


def disturb(wire: Wire, draw: random.Random) -> str:
    """Cut, or let hang, once; return the name of what was done."""
    n_before = wire.n_cut
    wire.dies = draw.random() < 0.25
    wire.hangs = draw.random() < 0.3
    if draw.random() < 0.2:
        wire.is_dead = wire.dies
        wire.end_all()
        name = "cuts at any moment"
    else:
        when = wire.cut = draw.choice(("before", "after"))
        end = time.monotonic() + LONGEST_WAIT
        while wire.n_cut == n_before and time.monotonic() < end:
            time.sleep(0.01)
        wire.cut = None
        name = f"{'hangs' if wire.hangs else 'cuts'} {when} a commit"
    if wire.is_dead or wire.hangs:
        time.sleep(draw.uniform(0.1, LONGEST_OUTAGE))
    wire.is_dead = False
    wire.end_all()
    return name


def cuts(
    path: Path, rows: Sequence[Any], url: str, n_rounds: int, n_clients: int
) -> dict[str, Any]:
    """Return what came of cuts under clients of two services."""
    place, draw = urlsplit(url), random.Random(0)
    assert place.hostname is not None and place.port is not None
    wire = Wire(place.hostname, place.port)
    store = url.replace(f":{place.port}/", f":{wire.port}/")
    services = [Service(path, "--store", store) for _ in range(2)]
    clients = Clients(services, rows, n_clients, seed=2)
    done: dict[str, int] = {}
    try:
        for _ in range(n_rounds):
            time.sleep(draw.uniform(0.05, 0.5))
            name = disturb(wire, draw)
            done[name] = done.get(name, 0) + 1
    finally:
        ledger = clients.finish()
        for service in services:
            service.kill()
        wire.close()
    counts = ledger.verdict(*remembered(path, url))
    return {"rounds": n_rounds, **dict(sorted(done.items())), **counts}


def run(n_rounds: int, n_clients: int) -> list[Trial]:
    """Return the trial of cuts."""
    from tests.databases import server  # real, on this machine alone

    with tempfile.TemporaryDirectory() as folder, server() as address:
        path = Path(folder) / "demo.tabr"
        rows = make_model(path, 600)
        url = address.replace("+psycopg", "")
        counts = cuts(path, rows, url, n_rounds, n_clients)
    tried = (
        "Cut the wire between two services and their PostgreSQL, or let it hang, most"
        f" often exactly at a commit, while {n_clients} clients add rows and compact,"
        " half of them with keys, who try again until they are acknowledged; then read"
        " the database."
    )
    return [Trial("Cuts", tried, counts, has_held(counts))]

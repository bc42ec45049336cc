"""Kill services at random moments while clients change the candidates; fill the disk.

One service, then two on one file of SQLite. A killed service starts again at once. The
last part lets the files of the service grow no further (RLIMIT_FSIZE).
"""

from __future__ import annotations

import random
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serve import make_model
from reliability.clients import (
    FIRST_LABEL,
    Clients,
    Service,
    added,
    has_held,
    remembered,
)
from reliability.trials import Trial

LONGEST = 1.5  # seconds between a start and a kill


def kills(
    path: Path, rows: Sequence[Any], n_kills: int, n_clients: int, n_services: int = 1
) -> dict[str, Any]:
    """Return what came of kills under clients; all services share a file."""
    store, draw = path.with_name("killed"), random.Random(n_services)
    options = ("--store", str(store))
    services = [Service(path, *options) for _ in range(n_services)]
    clients = Clients(services, rows, n_clients, seed=n_services)
    try:
        for _ in range(n_kills):
            time.sleep(draw.uniform(0.05, LONGEST))
            service = draw.choice(services)
            service.kill()
            service.start()
        time.sleep(0.5)
    finally:
        ledger = clients.finish()
        for service in services:
            service.kill()
    return {"kills": n_kills, **ledger.verdict(*remembered(path, store))}


def full_disk(path: Path, rows: Sequence[Any]) -> dict[str, Any]:
    """Return what the service does while its files cannot grow, and afterwards."""
    store = path.with_name("killed")
    service = Service(path, "--store", str(store))
    pid, unlimited = service.process.pid, resource.RLIM_INFINITY
    size = max(file.stat().st_size for file in store.iterdir())
    number = n_refused = 0
    for number in range(5):
        assert added(service, rows[0], number, None)[0] == 201
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, unlimited))
    words, number = "", number + 1
    while n_refused < 5 and number < 5000:
        answer = added(service, rows[0], number, f"change-{number}")
        assert answer is not None
        if answer[0] == 201:
            number += 1
        else:
            assert answer[0] == 503 and answer[1]["outcome"] == "not made", answer
            n_refused, words = n_refused + 1, answer[1]["detail"]
    predict = {"rows": list(rows[:1])}
    status, _ = service.request("POST", "/v1/predict", predict)
    compacted = service.request("POST", "/v1/compact", None)
    ready = service.request("GET", "/readyz", None)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
    after = added(service, rows[0], number, f"change-{number}")[0]
    service.kill()
    labels, _ = remembered(path, store)
    updates = np.sort(labels[labels >= FIRST_LABEL]) - FIRST_LABEL
    is_exact = np.array_equal(updates, np.arange(number + 1))
    return {
        "refused": n_refused,
        "said": words,
        "a prediction meanwhile": status,
        "a compaction meanwhile": compacted[0],
        "/readyz meanwhile": ready[0],
        "a change afterwards": after,
        "exactly the acknowledged are there": "yes" if is_exact else "no",
    }


def run(n_rounds: int, n_clients: int) -> list[Trial]:
    """Return the trials of kills and of the full disk."""
    trials = []
    for n_services, name in ((1, "one service"), (2, "two services on one file")):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "demo.tabr"
            rows = make_model(path, 600)
            counts = kills(path, rows, n_rounds, n_clients, n_services)
        tried = (
            f"Kill {name} (SIGKILL) at random moments while {n_clients} clients add"
            " rows and compact, half of them with keys, who try again until they are"
            " acknowledged; then read the store by another process."
        )
        trials.append(Trial(f"Kills: {name}", tried, counts, has_held(counts)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demo.tabr"
        counts = full_disk(path, make_model(path, 600))
    tried = "Let the files of a running service grow no further, then further again."
    is_exact = counts["exactly the acknowledged are there"] == "yes"
    held = is_exact and counts["a prediction meanwhile"] == 200
    return [*trials, Trial("A full disk", tried, counts, held)]

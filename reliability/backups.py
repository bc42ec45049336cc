"""Back a running service up at random moments, and restore what came of it."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.serve import make_model
from reliability.clients import FIRST_LABEL, Clients, Service, remembered
from reliability.trials import Trial
from tabr.serving.backup import back_up, restore


def backups(
    path: Path, rows: Sequence[Any], n_rounds: int, n_clients: int
) -> dict[str, Any]:
    """Return what restored services had, of what was acknowledged before."""
    store, draw = path.with_name("kept"), random.Random(0)
    service = Service(path, "--store", str(store))
    clients = Clients([service], rows, n_clients, seed=3)
    taken: list[tuple[Path, set[int]]] = []
    try:
        for k in range(n_rounds):
            time.sleep(draw.uniform(0.1, 1.0))
            before = dict(clients.ledger.told)
            made = {n for n, (outcome, _) in before.items() if outcome == "made"}
            file = path.with_name(f"backup-{k}")
            back_up(path, store, file)
            taken.append((file, made))
    finally:
        ledger = clients.finish()
        service.end()
    labels, ids = remembered(path, store)
    whole = dict(zip(ids.tolist(), labels.tolist(), strict=True))
    n_missing = n_no_prefix = n_restored = 0
    for k, (file, made) in enumerate(taken):
        model = path.with_name(f"restored-{k}.tabr")
        restore(file, model, None)
        labels, ids = remembered(model, f"{model}.memory")
        there = set((labels[labels >= FIRST_LABEL] - FIRST_LABEL).astype(int).tolist())
        n_missing += len(made - there)
        # Rows are only added, so a prefix of the changes has the first of all ids.
        has_first = ids.tolist() == sorted(whole)[: len(ids)]
        is_same = all(whole[i] == y for i, y in zip(ids, labels, strict=True))
        n_no_prefix += not (has_first and is_same)
        n_restored += 1
    acknowledged = sum(outcome == "made" for outcome, _ in ledger.told.values())
    return {
        "backups": len(taken),
        "restored": n_restored,
        "changes acknowledged": acknowledged,
        "acknowledged before the backup, and not in it": n_missing,
        "not a prefix of the changes": n_no_prefix,
    }


def run(n_rounds: int, n_clients: int) -> list[Trial]:
    """Return the trial of backups."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demo.tabr"
        counts = backups(path, make_model(path, 600), n_rounds, n_clients)
    tried = (
        f"Back a service up at random moments while {n_clients} clients add rows and"
        " compact, restore each backup, and compare it with what was acknowledged"
        " before it began."
    )
    held = counts["restored"] == counts["backups"] and not (
        counts["acknowledged before the backup, and not in it"]
        or counts["not a prefix of the changes"]
    )
    return [Trial("Backups under load", tried, counts, held)]

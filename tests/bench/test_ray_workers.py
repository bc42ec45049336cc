import os
from pathlib import Path

import pytest

from tabr.bench.ray_workers import RayPool
from tabr.bench.results import Plan, read, result_path
from tabr.bench.runs import Item, items_of, run_all
from tabr.bench.tasks.catalog import select
from tabr.bench.workers import Place

from .tables import TINY, write_churn

pytest.importorskip("ray", reason="pip install 'tabr[ray]'")

PLANS = [Plan("tabr-s", "trial", TINY), Plan("mlp", "trial", {"max_epochs": 2})]


class Crash(int):
    """A seed that ends the process that reads it."""

    def __reduce__(self):
        return os._exit, (7,)


def test_two_ray_workers_give_what_one_process_gives(tmp_path: Path):
    write_churn(tmp_path)
    (task,) = select(["churn"])
    items = items_of([task], 2, plans=PLANS)
    place = Place("cpu", workers=2)

    def team(n: int) -> RayPool:
        return RayPool(n, tmp_path, place)

    crash = [Item(task, Crash(9), PLANS[0])]
    summary = run_all(crash + items, tmp_path, tmp_path / "ray", place=place, team=team)
    assert (summary.n_done, summary.n_failed) == (4, 1)
    assert run_all(items, tmp_path, tmp_path / "one", place=Place("cpu")).n_done == 4
    for item in items:
        names = "test", "val", "params", "best_epoch", "threads"
        found = [
            [getattr(read(result_path(out, task, item.seed, item.plan)), name)]
            for out in (tmp_path / "ray", tmp_path / "one")
            for name in names
        ]
        assert found[: len(names)] == found[len(names) :]

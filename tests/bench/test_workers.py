import os
from pathlib import Path

import pytest

from tabr.bench.benchmark import run_all
from tabr.bench.results import Plan, read
from tabr.bench.runs import Run, SeedCounts, runs_of
from tabr.bench.tasks.catalog import select
from tabr.bench.workers import Resources

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
    runs = runs_of([task], SeedCounts(2), PLANS)
    crash = [Run(task, Crash(9), PLANS[0])]
    cluster, one = Resources("cpu", workers=2, ray="local"), Resources("cpu")
    summary = run_all(crash + runs, tmp_path, tmp_path / "ray", cluster)
    assert (summary.n_done, summary.n_failed) == (4, 1)
    assert run_all(runs, tmp_path, tmp_path / "one", one).n_done == 4
    for run in runs:
        results = [read(run.path(tmp_path / name)) for name in ("ray", "one")]
        for name in ("test", "val", "params", "best_epoch", "threads"):
            assert getattr(results[0], name) == getattr(results[1], name)

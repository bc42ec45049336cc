"""Where the parameters of a run come from."""

from __future__ import annotations

import pytest

from tabr.bench.methods import METHODS, Setting
from tabr.bench.parameters import has_tuned, parameters
from tabr.bench.tasks.catalog import TASKS, select
from tabr.errors import DataError

(CALIFORNIA,) = select(["california"])


def test_defaults_are_the_methods_own_but_for_the_batch_size() -> None:
    assert parameters(CALIFORNIA, "mlp", "default") == {"batch_size": 256}
    assert parameters(CALIFORNIA, "knn", "default") == {}
    trial = parameters(CALIFORNIA, "mlp", "trial", {"width": 8})
    assert trial == {"batch_size": 256, "width": 8}


def test_published_configurations_are_what_the_constructors_take() -> None:
    n_made = 0
    for task in TASKS:
        for name, entry in METHODS.items():
            if not has_tuned(task, name) or task.kind not in entry.method.outcomes:
                continue
            params = parameters(task, name, "tuned")
            assert not set(params) & set(entry.fixed)
            entry.make(Setting(task.kind, device="cpu"), 0, **params)
            n_made += 1
    assert n_made > 600


def test_tuned_means_published() -> None:
    with pytest.raises(DataError, match="take --config default"):
        parameters(select(["why/wine"])[0], "saint", "tuned")
    with pytest.raises(DataError, match="a method must be one of knn"):
        parameters(CALIFORNIA, "nothing", "tuned")
    assert parameters(CALIFORNIA, "knn", "tuned") == {}  # it tunes itself


def test_presets_of_ours_choose_their_own_batches() -> None:
    (wine,) = select(["why/wine"])[:1]
    assert parameters(wine, "tabr-s", "default") == {"batch_size": 32}
    for name in ("tabr-d", "tabr-best"):
        assert parameters(wine, name, "default") == {}

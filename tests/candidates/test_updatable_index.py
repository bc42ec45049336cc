"""Candidates that come and go, on a GPU as on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tabr import TabRRegressor, Where
from tabr.search import Filter
from tabr.search.filter import among
from tests.test_fitted import IGNORE, RULE, SMALL, check_allowed, table

gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
on_gpu = pytest.param("cuda", marks=gpu)


def test_who_is_gone_is_forbidden_beside_any_rule() -> None:
    alive = torch.tensor([1, 0, 1, 1], dtype=torch.int32)
    whole = slice(0, 2), slice(0, 4)
    alone = among(alive, None, 2).allowed(*whole)
    assert alone.tolist() == [[True, False, True, True]] * 2
    codes = torch.tensor([[0, 1, 2, 3]], dtype=torch.int32)
    low = torch.tensor([[1, 0]], dtype=torch.int32)
    high = torch.tensor([[2, 0]], dtype=torch.int32)
    rules = Filter(codes, low, high, 0, 1)
    both = among(alive, rules, 2).allowed(*whole)
    assert both.tolist() == [[False, False, True, False], [True, False, False, False]]


@pytest.mark.parametrize("device", [on_gpu])
@pytest.mark.parametrize("rule", [None, RULE])
def test_a_gpu_follows_updates_as_a_cpu_does(
    device: str, rule: Any, tmp_path: Path
) -> None:
    frame, y = table(600)
    model = TabRRegressor(**SMALL, ignore=IGNORE, candidates=rule).fit(frame, y)
    model.save(tmp_path / "m.tabr")
    models = [model, TabRRegressor.load(tmp_path / "m.tabr", device=device)]
    rows, _ = table(50, seed=1)
    more, labels = table(40, seed=2)
    for one in models:
        one.predict(rows)  # so that the index is there and is changed
        ids = one.add_candidates(more, labels)
        one.remove_candidates([*ids[:15], *one.candidates_.ids[:20]])
        one.relabel_candidates(ids[20:22], [3.0, 4.0])
        one.add_candidates(more[:5], labels[:5])
    here, there = (one.predict(rows) for one in models)
    np.testing.assert_allclose(there, here, rtol=1e-3, atol=1e-3)
    same = [one.neighbors(rows).ids for one in models]
    assert np.mean(np.sort(same[0], 1) == np.sort(same[1], 1)) > 0.99
    effects = [one.explain(rows[:5]).effects for one in models]
    np.testing.assert_allclose(effects[1], effects[0], atol=1e-3)


@pytest.mark.parametrize("device", [on_gpu])
def test_a_rule_holds_on_a_gpu_in_training_and_after_it(device: str) -> None:
    frame, y = table(800)
    how = {**SMALL, "device": device, "max_epochs": 8}
    model = TabRRegressor(**how, ignore=IGNORE, candidates=RULE).fit(frame, y)
    rows, _ = table(60, seed=1)
    assert check_allowed(model, rows) > 100
    free = Where(lambda row, other: row["town"] == other["town"], ["town"])
    slow = TabRRegressor(**how, ignore=IGNORE, candidates=free).fit(frame, y)
    near = slow.candidates_.look_up(slow.neighbors(rows).ids[:, 0])
    assert (near.town.to_numpy() == rows.town.to_numpy()).all()

"""The memory plan: what is known before a fit begins."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tabr import TabRRegressor
from tabr.candidates.exact_index import held_bytes
from tabr.config import NetworkConfig, Recipe, TrainingConfig
from tabr.tables.shape import DataShape
from tabr.training.memory_plan import MemoryPlan, free_bytes, plan_memory

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device"
)


def plan(
    device: torch.device = CPU,
    *,
    n: int = 100_000,
    n_validation: int = 10_000,
    n_num: int = 50,
    context_size: int = 96,
    batch_size: int = 512,
    n_members: int = 1,
    encoder_blocks: int = 0,
    limit: int | None = None,
) -> MemoryPlan:
    network = NetworkConfig(encoder_blocks=encoder_blocks)
    recipe = Recipe(network, TrainingConfig(batch_size=batch_size), context_size)
    shape = DataShape(n_num, 0, (), "regression", 0)
    return plan_memory(recipe, shape, n, n_validation, n_members, device, limit)


def test_more_of_anything_needs_more() -> None:
    base = plan(limit=None).device_bytes
    for name, value in {
        "n": 200_000,
        "n_validation": 100_000,
        "n_num": 100,
        "context_size": 200,
        "batch_size": 2048,
        "encoder_blocks": 1,
    }.items():
        assert plan(**{name: value}, limit=2**50).device_bytes > base, name
    one, two = (plan(encoder_blocks=k, limit=2**50).device_bytes for k in (1, 2))
    hidden = NetworkConfig().hidden
    assert two - one > 4 * 3 * hidden * 512 * 96  # activations of a block, of all pairs


@pytest.mark.parametrize("encoder_blocks", [0, 1])
def test_candidates_of_a_fitted_model_on_a_cpu_are_counted(encoder_blocks: int) -> None:
    how = {"width": 8, "max_epochs": 1, "preset": "paper", "device": "cpu"}
    how |= {"n_members": 3, "encoder_blocks": encoder_blocks}
    model = TabRRegressor(**how).fit(*table(3000))
    held = 0
    for member in model.members_:
        index = model.candidates_.index_of(member.network)
        here = sum(x.nbytes for x in (index.points, *index.rated))
        assert here == held_bytes(*index.points.shape)
        held += here
    assert held < model.memory_plan_.device_bytes
    one, many = (plan(n_members=k, limit=2**50).device_bytes for k in (1, 60))
    assert many >= 60 * held_bytes(110_000, 50) > one


def test_what_cannot_work_is_refused_with_figures_and_a_remedy() -> None:
    with pytest.raises(MemoryError, match=r"100,000 rows.* GiB .*0\.00.*memory_limit"):
        plan(limit=1_000_000)


def test_free_memory_is_known_here() -> None:
    free = free_bytes(CPU)
    assert free is None or 2**26 < free < 2**50


def table(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32)
    return x, x[:, 0] + np.sin(x[:, 1])


def test_a_fitted_model_tells_its_plan() -> None:
    model = TabRRegressor(width=8, max_epochs=1, device="cpu").fit(*table())
    assert model.memory_plan_.device_bytes > 0
    assert "GiB on the device" in str(model.memory_plan_)


def test_a_limit_that_is_too_low_leaves_the_estimator_unfitted() -> None:
    model = TabRRegressor(width=8, max_epochs=1, device="cpu", memory_limit=1000)
    with pytest.raises(MemoryError, match="memory_limit"):
        model.fit(*table())
    assert not hasattr(model, "members_")


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="memory_limit >= 1"):
        TabRRegressor(memory_limit=0).fit(*table())


@pytest.mark.gpu
@needs_gpu
def test_scarcity_first_parts_members_then_moves_candidates() -> None:
    device = torch.device("cuda")
    plenty = plan(device, n_members=5, limit=2**40)
    assert plenty.members_at_a_time == 5
    assert not plenty.candidates_on_host
    seen = []
    for limit in np.geomspace(plenty.device_bytes, 2**20, 60).astype(int).tolist():
        try:
            one = plan(device, n_members=5, limit=limit)
        except MemoryError:
            break
        assert one.device_bytes <= limit
        seen.append((one.candidates_on_host, -one.members_at_a_time))
    assert seen == sorted(seen)
    assert seen[-1][0]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("parameters", [{}, {"encoder_blocks": 1}])
def test_candidates_in_host_memory_give_the_same_model(parameters: dict) -> None:
    x, y = table(3000)
    # Near ties may come in another order, and dropout falls on others then.
    common = {"dropout": 0.0, "context_dropout": 0.0, "max_epochs": 3, **parameters}
    common |= {"device": "cuda", "random_state": 0, "preset": "paper"}
    here = TabRRegressor(**common).fit(x, y)
    device = torch.device("cuda")
    shape = {"n": 2400, "n_validation": 600, "n_num": 5, **parameters}
    needed = plan(device, **shape, batch_size=256, limit=2**40).device_bytes
    limits = np.geomspace(needed, needed / 100, 200).astype(int).tolist()
    for limit in limits:  # the largest that leaves no room for candidates
        there = TabRRegressor(**common, memory_limit=limit)
        try:
            chosen = plan(device, **shape, batch_size=256, limit=limit)
        except MemoryError:
            pytest.fail("nothing between all on the device and nothing at all")
        if chosen.candidates_on_host:
            break
    there.fit(x, y)
    assert there.memory_plan_.candidates_on_host
    assert there.candidates_.rows.num.device.type == "cpu"
    close = {"rtol": 1e-3, "atol": 1e-3}
    np.testing.assert_allclose(there.predict(x), here.predict(x), **close)


@pytest.mark.gpu
@needs_gpu
def test_the_plan_is_near_the_truth_and_not_below_it() -> None:
    x = np.random.default_rng(0).normal(size=(300_000, 40)).astype(np.float32)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    params = {"preset": "paper", "max_epochs": 4, "time_limit": 20}
    model = TabRRegressor(**params, device="cuda").fit(x, x[:, 0])
    peak = torch.cuda.max_memory_allocated() - before
    assert peak <= model.memory_plan_.device_bytes <= 4 * peak

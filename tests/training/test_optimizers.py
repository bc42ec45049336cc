"""Who is decayed and who is spared, and what a step does."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from tabr.config import TrainingConfig
from tabr.network.labels import NumberLabel
from tabr.training.optimizers import AdamW, decay_groups


def test_paper_mode_decays_everything_and_fixed_mode_spares_some() -> None:
    network = nn.ModuleDict(
        {"linear": nn.Linear(3, 4), "norm": nn.LayerNorm(4), "label": NumberLabel(4)}
    )
    (everything,) = decay_groups(network, "paper")
    assert len(everything["params"]) == 6
    decayed, spared = decay_groups(network, "fixed")
    assert [id(p) for p in decayed["params"]] == [id(network["linear"].weight)]
    assert spared["weight_decay"] == 0
    assert len(spared["params"]) == 5


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.gpu,
                pytest.mark.skipif(
                    not torch.cuda.is_available(), reason="needs a CUDA device"
                ),
            ],
        ),
    ],
)
@pytest.mark.parametrize(
    "options", [{}, {"betas": (0.8, 0.95)}, {"gradient_clip": 0.05}]
)
def test_steps_are_those_of_torch(device: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(40, 500), nn.ReLU(), nn.LayerNorm(500))
    network.append(nn.Linear(500, 1)).append(nn.Linear(1, 1)).to(device)
    twin = copy.deepcopy(network)
    config = TrainingConfig(learning_rate=0.01, weight_decay=0.1, **options)
    ours_ = AdamW(network, config)
    groups = decay_groups(twin, config.mode)
    theirs = torch.optim.AdamW(groups, lr=0.01, betas=config.betas, weight_decay=0.1)
    for number in range(5):
        x = torch.randn(64, 40, device=device)
        if number == 3:
            ours_.set_rate(0.5)
            for group in theirs.param_groups:
                group["lr"] = 0.005
        for module, update in ((network, ours_.step), (twin, theirs.step)):
            module.zero_grad()
            module[:4](x).square().mean().backward()  # the last layer has no gradient
            if module is twin and config.gradient_clip is not None:
                nn.utils.clip_grad_norm_(twin.parameters(), config.gradient_clip)
            update()
    for ours, other in zip(network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, other)


def test_an_optimizer_does_not_bring_the_compiler_along() -> None:
    code = (
        "import sys, torch; from tabr.config import TrainingConfig; "
        "from tabr.training.optimizers import AdamW; "
        "AdamW(torch.nn.Linear(2, 1), TrainingConfig()).step(); "
        "print('torch._dynamo' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"


def test_the_average_is_a_mean_over_more_steps_as_there_are_more() -> None:
    torch.manual_seed(0)
    network = nn.Linear(3, 2)
    optimizer = AdamW(network, TrainingConfig(0.1, weight_average=2.0), 5)
    expected = [p.detach().clone() for p in network.parameters()]
    for number in range(1, 30):
        network.zero_grad()
        network(torch.randn(8, 3)).square().mean().backward()
        optimizer.step()
        decay = min(0.9, (1 + number) / (10 + number))
        for mean, value in zip(expected, network.parameters(), strict=True):
            mean.mul_(decay).add_(value.detach(), alpha=1 - decay)
    average = optimizer.average
    assert average is not None
    before = [p.detach().clone() for p in network.parameters()]
    with average.applied():
        for value, mean in zip(network.parameters(), expected, strict=True):
            torch.testing.assert_close(value.detach(), mean)
    assert all(map(torch.equal, before, (p.detach() for p in network.parameters())))

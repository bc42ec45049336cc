"""Who is decayed and who is spared, and what a step does."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn

from tabr.config import TrainingConfig
from tabr.network.labels import NumberLabel
from tabr.training.optimizers import adamw, decay_groups


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
def test_steps_are_those_of_torch(device: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(40, 500), nn.ReLU(), nn.LayerNorm(500))
    network.append(nn.Linear(500, 1)).append(nn.Linear(1, 1)).to(device)
    twin = copy.deepcopy(network)
    config = TrainingConfig(learning_rate=0.01, weight_decay=0.1)
    step = adamw(network, config)
    theirs = torch.optim.AdamW(
        decay_groups(twin, config.mode), lr=0.01, weight_decay=0.1
    )
    for _ in range(5):
        x = torch.randn(64, 40, device=device)
        for module, update in ((network, step), (twin, theirs.step)):
            module.zero_grad()
            module[:4](x).square().mean().backward()  # the last layer has no gradient
            update()
    for ours, other in zip(network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, other)


def test_an_optimizer_does_not_bring_the_compiler_along() -> None:
    code = (
        "import sys, torch; from tabr.config import TrainingConfig; "
        "from tabr.training.optimizers import adamw; "
        "adamw(torch.nn.Linear(2, 1), TrainingConfig())(); "
        "print('torch._dynamo' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"

"""Who is decayed and who is spared."""

from __future__ import annotations

from torch import nn

from tabr.network import NumberLabel
from tabr.optimizers import decay_groups


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

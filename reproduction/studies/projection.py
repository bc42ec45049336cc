"""What T adds along the label's direction: the paper's analysis of values.

For numbers W_Y maps labels to a line. What T(k - k_i) adds along it is a correction of
the neighbour's label; a trained model is asked again with that part left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from reproduction.studies.units import (
    Model,
    Record,
    Unit,
    loader,
    make_method,
    score_of,
)
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import Task
from tabr.network.labels import NumberLabel
from tabr.network.tabr import TabR

TABLES = ("california", "house", "diamond", "black-friday")
N_RANDOM = 8  # directions


@contextmanager
@torch.no_grad()
def left_out(network: TabR, direction: Tensor) -> Iterator[None]:
    """Leave the projection of T on a direction (d,) out, for a while.

    T's last layer is linear without a bias and its outputs are only summed: projecting
    its weight projects all of them.
    """
    assert network.difference_value is not None
    weight = network.difference_value.second.weight
    before = weight.clone()
    unit = direction.double()
    unit = unit / unit.norm().clamp_min(torch.finfo(unit.dtype).tiny)
    projected = weight.double() - torch.outer(unit, unit @ weight.double())
    weight.copy_(projected)
    try:
        yield
    finally:
        weight.copy_(before)


def asked_network(model: Model) -> TabR:
    """Return the network that predictions come from: on a CPU a copy in float64."""
    (member,) = model.members_
    return model.candidates_.index_of(member.network).network


def label_direction(network: TabR) -> Tensor:
    """Return the direction (d,) of the line of labels."""
    assert isinstance(network.label_value, NumberLabel)
    return network.label_value.weight.detach()[:, 0]


def random_directions(n: int, like: Tensor, seed: int) -> Tensor:
    """Return n directions of any orientation, (n, d)."""
    drawn = np.random.RandomState(seed).standard_normal((n, len(like)))
    return torch.from_numpy(drawn).to(like)


def projection(
    tables: Sequence[str], folder: Path, seeds: Sequence[int], params: Record
) -> Iterator[Unit]:
    """Yield models of TabR-S with the published tuned parameters.

    NOTE[DIFF]: the paper's text names the defaults, but the scores of its table are
    those of the tuned models.
    """
    loaded = loader(folder)

    def run(task: Task, seed: int) -> Iterator[Record]:
        parts = loaded(task)
        method = make_method(task, parts, seed, "tabr-s", "tuned", params)
        method.fit(parts.train, parts.val)
        network = asked_network(method.estimator)

        def score_without(direction: Tensor) -> float:
            with left_out(network, direction):
                return score_of(task, parts.test, method)

        label = label_direction(network)
        by_chance = [
            score_without(direction)
            for direction in random_directions(N_RANDOM, label, seed)
        ]
        yield {
            "test": round(score_of(task, parts.test, method), 6),
            "without_random": round(float(np.mean(by_chance)), 6),
            "worst_random": round(max(by_chance), 6),
            "without_label": round(score_without(label), 6),
        }

    for task in select(tables):
        for seed in seeds:
            yield Unit({"table": task.name, "seed": seed}, partial(run, task, seed))

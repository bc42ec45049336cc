"""The two forms of a training step that are compared: the plain one and ours.

Both train TabR-S with its defaults on the same random rows. Each function returns what
is timed: indices of a batch (b,) -> a tensor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.plain import PlainTabRS
from benchmarks.timing import M, Size
from tabr.config import NetworkConfig, TrainingConfig
from tabr.device.cuda_graphs import GraphedFunction, Lane
from tabr.network.rows import Rows
from tabr.network.tabr import TabR
from tabr.search import Neighbors
from tabr.tables.shape import DataShape
from tabr.training.contexts import Contexts, TrainingRows
from tabr.training.loop import Loss, make_step
from tabr.training.losses import BatchLoss
from tabr.training.optimizers import AdamW

VISITED = 64  # batches that come again and again, so that rows have last neighbours


class Table(NamedTuple):
    """Input vectors x (n, d_in) and labels y (n,), and where steps are captured."""

    x: Tensor
    y: Tensor
    lane: Lane

    @property
    def n_bytes(self) -> int:
        return self.x.nbytes + self.y.nbytes


def random_table(size: Size, device: torch.device) -> Table:
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn(size.n, size.d_in, generator=generator, device=device)
    y = torch.randn(size.n, generator=generator, device=device)
    return Table(x, y, Lane(device))


def batches(size: Size, device: torch.device) -> Iterator[Tensor]:
    """Yield indices of full batches, round after round the same ones."""
    order = torch.randperm(size.n, generator=torch.Generator().manual_seed(0))
    full = order[: min(size.n // size.b, VISITED) * size.b].to(device)
    return itertools.cycle(full.split(size.b))


# --- the plain form ---------------------------------------------------------------


def plain_step(table: Table) -> Loss:
    """One step, eager as its authors ran it."""
    network, config = _plain_network(table), TrainingConfig()
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )

    def step(batch: Tensor) -> Tensor:
        x, y, _ = _others(table, batch)
        optimizer.zero_grad()
        prediction = network(table.x[batch], x, y, M)
        loss = (prediction - table.y[batch]).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def plain_search(table: Table) -> Loss:
    """The part of it that finds neighbours; the keys of all candidates belong to it."""
    network = _plain_network(table)

    @torch.no_grad()
    def search(batch: Tensor) -> Tensor:
        keys = network.key(network.encoder(_others(table, batch).x))
        return network.search(network.key(network.encoder(table.x[batch])), keys, M)

    return search


def _plain_network(table: Table) -> PlainTabRS:
    return PlainTabRS(table.x.shape[1], NetworkConfig()).to(table.x.device)


def _others(table: Table, batch: Tensor) -> Table:
    """All candidates but the batch."""
    mask = torch.ones(len(table.y), dtype=torch.bool, device=batch.device)
    mask[batch] = False
    return table._replace(x=table.x[mask], y=table.y[mask])


def in_tf32(make: Callable[[Table], Loss]) -> Callable[[Table], Loss]:
    """Return a form whose products round their factors to TF32."""

    def make_rounded(table: Table) -> Loss:
        call = make(table)

        def rounded(batch: Tensor) -> Tensor:
            before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("high")
            try:
                return call(batch)
            finally:
                torch.set_float32_matmul_precision(before)

        return rounded

    return make_rounded


# --- ours -------------------------------------------------------------------------


def our_contexts(table: Table) -> Contexts:
    none = table.x[:, :0]
    rows = Rows(table.x, none, none.long())
    shape = DataShape(table.x.shape[1], 0, (), "regression", 0)
    network = TabR(NetworkConfig(), shape).to(table.x.device)
    return Contexts(network, TrainingRows(rows, table.y), M)


def freeze_by_chance(contexts: Contexts) -> None:
    """Freeze contexts without a search.

    A frozen step's work does not depend on who the neighbours are.
    """
    n, device = len(contexts.labels), contexts.labels.device
    position = torch.randint(n, (n, M), device=device)
    contexts.frozen = Neighbors(position, torch.ones_like(position, dtype=torch.bool))


def step_of(contexts: Contexts, lane: Lane) -> GraphedFunction:
    """One step, by the code that training runs: on a GPU a captured graph."""
    loss = BatchLoss(contexts, "regression")
    update = AdamW(contexts.network, TrainingConfig()).step
    return make_step(contexts.network, loss, lane, update)


def our_step(table: Table) -> Loss:
    return step_of(our_contexts(table), table.lane)


def our_search(table: Table, remember: bool = True) -> Loss:
    """Contexts alone, without gradients; on a GPU captured as in a step."""
    contexts = our_contexts(table)
    if not remember:
        contexts.last.positions = None

    @torch.no_grad()
    def search(batch: Tensor) -> Tensor:
        return contexts.of(batch).labels

    return GraphedFunction(search, table.lane)


def our_first_search(table: Table) -> Loss:
    """The same for rows that have no last neighbours, as in a first epoch."""
    return our_search(table, remember=False)


def our_frozen_step(table: Table) -> Loss:
    """All of a step but the search."""
    contexts = our_contexts(table)
    freeze_by_chance(contexts)
    return step_of(contexts, table.lane)


FORMS: Mapping[str, Mapping[str, Callable[[Table], Loss]]] = {
    "plain": {"step": plain_step, "search": plain_search},
    "plain-tf32": {"step": in_tf32(plain_step), "search": in_tf32(plain_search)},
    "tabr": {
        "step": our_step,
        "search": our_search,
        "first_search": our_first_search,
        "learning": our_frozen_step,
    },
}

"""Fit one TabR: the contexts of training rows, the loss and the validation."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tabr.config import NetworkConfig, Task, TrainingConfig
from tabr.network import Context, Metric, TabR
from tabr.retrieval import PointIndex, candidate_points, no_memory, predict, remembered
from tabr.rows import Rows
from tabr.search import Neighbors
from tabr.training import History, Loss, fit_network, seeded


class Contexts:
    """Neighbours of training rows among the training rows, never themselves."""

    def __init__(self, network: TabR, rows: Rows, labels: Tensor, m: int) -> None:
        """Make points that no training step can change once and for all."""
        self.network, self.rows, self.labels, self.m = network, rows, labels, m
        self.fixed: PointIndex | None = None
        if network.points_are_inputs:
            self.fixed = PointIndex(network, candidate_points(network, rows))
        self.frozen: Neighbors | None = None
        self.last = no_memory(len(labels), min(m, len(labels)), labels.device)

    def of(self, batch: Tensor, metric: Metric | None = None) -> Context:
        """Return the context of the rows at batch (b,), differentiable.

        The network's present metric may be given by a caller who has it already.
        """
        every: Tensor | None = None
        if self.fixed is not None:
            every = self.fixed.points
        elif self.rows.n_rows <= len(batch) * self.m:
            # All candidates cost no more than all neighbours of the batch.
            every = self.network.points(self.rows)
        if self.frozen is not None:
            index, found = self.frozen.position[batch], self.frozen.found[batch]
        else:
            index, found = self._search(self.index(every, metric), batch)
        points = self._encode(index) if every is None else every[index]
        return Context(points, self.labels[index], found)

    def freeze(self) -> None:
        """Search once more for all rows; from now on their neighbours stay."""
        index = self.index()
        batches = torch.arange(len(self.labels), device=self.labels.device).split(4096)
        found = [self._search(index, batch) for batch in batches]
        self.frozen = Neighbors(
            *(torch.cat(parts) for parts in zip(*found, strict=True))
        )

    def index(
        self, every: Tensor | None = None, metric: Metric | None = None
    ) -> PointIndex:
        """Return all rows, searchable under today's metric."""
        if self.fixed is not None:
            self.fixed.refresh(metric)
            return self.fixed
        if every is None:
            every = candidate_points(self.network, self.rows)
        return PointIndex(self.network, every.detach(), metric)

    def _search(self, index: PointIndex, batch: Tensor) -> Neighbors:
        points = index.points[batch]
        if self.last is None:
            return index.neighbors(points, self.m, exclude=batch)
        found = index.neighbors(points, self.m, batch, last=self.last[batch])
        self.last[batch] = remembered(found)
        return found

    def _encode(self, index: Tensor) -> Tensor:
        """Return differentiable points (b, m, p) of the rows at index (b, m)."""
        if index.device.type != "cpu":  # `unique` would wait for the device
            return self.network.points(self.rows.take(index))
        distinct, inverse = index.unique(return_inverse=True)
        return self.network.points(self.rows.take(distinct))[inverse]


def row_losses(prediction: Tensor, labels: Tensor, task: Task) -> Tensor:
    """Return the loss of each row: prediction (b, outputs), labels (b,) -> (b,)."""
    if task == "regression":
        return (prediction.squeeze(-1) - labels).square()
    if task == "binary":
        logit = prediction.squeeze(-1)
        target = labels.to(logit.dtype)
        return F.binary_cross_entropy_with_logits(logit, target, reduction="none")
    return F.cross_entropy(prediction, labels, reduction="none")


def make_loss(contexts: Contexts, task: Task, weights: Tensor | None = None) -> Loss:
    """Return what training minimises: row indices (b,) -> their mean loss."""
    network, rows, labels = contexts.network, contexts.rows, contexts.labels

    def loss(batch: Tensor) -> Tensor:
        metric = network.metric()
        context = contexts.of(batch, metric)
        prediction = network(rows.take(batch), context, metric).prediction
        losses = row_losses(prediction, labels[batch], task)
        return (losses if weights is None else losses * weights[batch]).mean()

    return loss


def fit_tabr(
    config: NetworkConfig,
    training: TrainingConfig,
    task: Task,
    n_classes: int,
    rows: Rows,
    labels: Tensor,
    weights: Tensor | None,
    cardinalities: tuple[int, ...],
    m: int,
    validation: Rows,
    score: Callable[[Tensor], float],
    *,
    seed: int,
    description: str | None = None,
) -> tuple[TabR, History]:
    """Build a network and train it.

    Args:
        config: Shape of the network.
        training: How it is trained.
        task: Which loss.
        n_classes: Classes, or 0.
        rows: Training rows, who are also the candidates.
        labels: Their encoded labels (n,).
        weights: Weights (n,) of their losses, of mean one; None weighs all alike.
        cardinalities: Levels of each categorical column.
        m: Neighbours of a row.
        validation: Validation rows.
        score: The score of predictions (n_validation, outputs), larger is better.
        seed: The same seed gives the same network on the same device.
        description: Title of a progress bar; None shows none.
    """
    device = labels.device
    with seeded(seed, device) as generator:
        n_num, n_bin = rows.num.shape[1], rows.bin.shape[1]
        network = TabR(config, n_num, n_bin, cardinalities, task, n_classes).to(device)
        contexts = Contexts(network, rows, labels, m)
        last = no_memory(validation.n_rows, min(m, len(labels)), device)

        def validate() -> float:
            index = contexts.index()
            output, _ = predict(index, labels, validation, m, last)
            return score(output.prediction)

        history = fit_network(
            network,
            make_loss(contexts, task, weights),
            validate,
            len(labels),
            training,
            generator=generator,
            freeze=contexts.freeze,
            description=description,
        )
    return network, history

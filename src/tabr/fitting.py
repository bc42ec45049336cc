"""Fit TabR: the contexts of training rows, the loss and the validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tabr.config import NetworkConfig, Task, TrainingConfig
from tabr.graphs import Lane
from tabr.network import Context, Metric, TabR
from tabr.retrieval import PointIndex, candidate_points, no_memory, predict, remembered
from tabr.rows import Rows, take
from tabr.search import Neighbors
from tabr.tagging import TaggedRows
from tabr.training import History, Job, Loss, fit_networks, seeded


class Contexts:
    """Neighbours of training rows among the training rows, never themselves."""

    def __init__(
        self,
        network: TabR,
        rows: Rows,
        labels: Tensor,
        m: int,
        recall_target: float | None = None,
        tagged: TaggedRows | None = None,
    ) -> None:
        """Make points that no training step can change once and for all.

        What a rule allows the rows comes as `tagged`.
        """
        self.network, self.rows, self.labels, self.m = network, rows, labels, m
        self.recall_target, self.tagged = recall_target, tagged
        self.fixed: PointIndex | None = None
        if network.points_are_inputs:
            self.fixed = PointIndex(network, candidate_points(network, rows))
        self.frozen: Neighbors | None = None
        self.everybody = len(labels) > m and tagged is None  # has m neighbours
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
            every = self.network.points(self.rows.to(self.labels.device))
        if self.frozen is not None:
            index, found = self.frozen.position[batch], self.frozen.found[batch]
        else:
            index, found = self._search(self.index(every, metric), batch)
        known = None if self.everybody else found
        points = self._encode(index) if every is None else take(every, index)
        return Context(points, self.labels[index], known)

    def freeze(self) -> None:
        """Search once more for all rows; from now on their neighbours stay."""
        index = self.index()
        found = [self._search(index, batch) for batch in self._all()]
        self.frozen = Neighbors(
            *(torch.cat(parts) for parts in zip(*found, strict=True))
        )

    @torch.no_grad()
    def weighted(self) -> tuple[Tensor, Tensor]:
        """Return all rows' neighbours and their weights, both (n, m)."""
        index, parts = self.index(), []
        for batch in self._all():
            if self.frozen is None:
                position, found = self._search(index, batch)
            else:
                position, found = (part[batch] for part in self.frozen)
            points = take(index.points, position)
            context = Context(points, self.labels[position], found)
            output = self.network(self.rows.take(batch), context, index.metric)
            parts.append((position, output.weights))
        positions, weights = zip(*parts, strict=True)
        return torch.cat(positions), torch.cat(weights)

    def _all(self) -> tuple[Tensor, ...]:
        every = torch.arange(len(self.labels), device=self.labels.device)
        return tuple(every.split(4096))

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
        last = None if self.last is None else self.last[batch]
        found = index.neighbors(
            take(index.points, batch),
            self.m,
            exclude=batch,
            rules=None if self.tagged is None else self.tagged.rules(batch),
            last=last,
            recall_target=self.recall_target,
        )
        if self.last is not None:
            known = found.position.int() if self.everybody else remembered(found)
            self.last[batch] = known
        return found

    def _encode(self, index: Tensor) -> Tensor:
        """Return differentiable points (b, m, p) of the rows at index (b, m)."""
        if index.device.type != "cpu":  # `unique` would wait for the device
            return self.network.points(self.rows.take(index))
        distinct, inverse = index.unique(return_inverse=True)
        return self.network.points(self.rows.take(distinct))[inverse]


class ContextChange:
    """Records how much contexts change from epoch to epoch: the paper's Delta-context.

    For a row it is the weight of neighbours that are new, plus the growth, if any, of
    the total weight of those that stayed.
    """

    def __init__(self, contexts: Contexts) -> None:
        """Remember nothing yet."""
        self.contexts = contexts
        self.before: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def __call__(self, history: History) -> None:
        """Find all contexts anew, and compare them with those of the last call."""
        now = self.contexts.weighted()
        if self.before is not None:
            parts = zip(*(t.split(4096) for t in (*self.before, *now)), strict=True)
            total = sum(float(context_change(*part).sum()) for part in parts)
            history.context_change.append(total / len(now[0]))
        self.before = now


def context_change(
    old: Tensor, old_weights: Tensor, new: Tensor, new_weights: Tensor
) -> Tensor:
    """Return Delta-context (b,) from neighbours and their weights, all (b, m)."""
    # A neighbour that was not found has no weight and matches nobody.
    same = (new[:, :, None] == old[:, None]) & (old_weights > 0)[:, None]
    now = (new_weights * same.any(2)).sum(1)
    then = (old_weights * same.any(1)).sum(1)
    return new_weights.sum(1) - now + (now - then).clamp_min(0)


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
    seeds: Sequence[int],
    tagged: tuple[TaggedRows, TaggedRows] | None = None,
    n_together: int | None = None,
    rows_at_a_time: int | None = None,
    on_epoch: Callable[[int, History], None] | None = None,
    description: str | None = None,
) -> list[tuple[TabR, History]]:
    """Build networks and train them: on a GPU side by side, elsewhere one by one.

    Args:
        config: Shape of the networks.
        training: How they are trained.
        task: Which loss.
        n_classes: Classes, or 0.
        rows: Training rows, who are also the candidates.
        labels: Their encoded labels (n,).
        weights: Weights (n,) of their losses, of mean one; None weighs all alike.
        cardinalities: Levels of each categorical column.
        m: Neighbours of a row.
        validation: Validation rows.
        score: The score of predictions (n_validation, outputs), larger is better.
        seeds: One for each network: the same seed gives the same network on the same
            device, whoever is trained beside it.
        tagged: What a rule allows the training and the validation rows.
        n_together: Networks trained side by side on a GPU; None means all.
        rows_at_a_time: Rows of a chunk of predictions; None leaves it to the device.
        on_epoch: Called after each epoch with a network's place in `seeds` and its
            history so far.
        description: Title of a progress bar; None shows none.
    """
    device = labels.device
    own, others = (None, None) if tagged is None else tagged

    def build(number: int, generator: torch.Generator) -> tuple[TabR, Job]:
        seed = seeds[number]
        n_num, n_bin = rows.num.shape[1], rows.bin.shape[1]
        # Candidates that are kept elsewhere make a step wait for the host.
        captures = rows.num.device == device
        if tagged is not None:
            captures = captures and all(part.captures for part in tagged)
        lane = Lane(device, seed, captures=captures)
        with lane:
            shape = config, n_num, n_bin, cardinalities, task, n_classes
            network = TabR(*shape).to(device)
            contexts = Contexts(network, rows, labels, m, training.recall_target, own)
            last = no_memory(validation.n_rows, min(m, len(labels)), device)

        def evaluate() -> Tensor:
            output, _ = predict(
                contexts.index(),
                labels,
                validation,
                m,
                last,
                training.recall_target,
                rows_at_a_time,
                others,
            )
            return output.prediction

        loss = make_loss(contexts, task, weights)
        change = ContextChange(contexts) if training.record_context else None

        def watch(history: History) -> None:
            if change is not None:
                change(history)
            if on_epoch is not None:
                on_epoch(number, history)

        return network, Job(
            network, loss, evaluate, score, generator, lane, contexts.freeze, watch
        )

    # On a CPU random numbers are drawn from one stream: one network at a time.
    size = (n_together or len(seeds)) if device.type == "cuda" else 1
    everybody = range(len(seeds))
    groups = [everybody[i : i + size] for i in range(0, len(seeds), size)]
    fitted: list[tuple[TabR, History]] = []
    for number, group in enumerate(groups, 1):
        title = description
        if description is not None and len(groups) > 1:
            title = f"{description} {number} of {len(groups)}"
        built = []
        with seeded(seeds[group[0]], device):
            for k in group:
                torch.default_generator.manual_seed(seeds[k])
                built.append(build(k, torch.Generator().manual_seed(seeds[k])))
            jobs = [job for _, job in built]
            histories = fit_networks(jobs, len(labels), training, description=title)
        networks = (network for network, _ in built)
        fitted += zip(networks, histories, strict=True)
        if any(history.stopped == "interrupted" for history in histories):
            break
    return fitted

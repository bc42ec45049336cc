"""Fit TabR: build networks, and train them as one or one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tabr.candidates.device_rules import TaggedRows
from tabr.candidates.point_index import LastNeighbors
from tabr.config import Recipe
from tabr.device.cuda_graphs import Lane
from tabr.network.rows import Rows
from tabr.network.tabr import TabR
from tabr.prediction.predict import predict
from tabr.tables.shape import DataShape
from tabr.training.contexts import ContextChange, Contexts, TrainingRows
from tabr.training.loop import History, Job, fit_networks, seeded
from tabr.training.losses import BatchLoss
from tabr.training.memory_plan import MemoryPlan
from tabr.training.stacked_networks import StackedLosses, part_storage, share_storage

OnEpoch = Callable[[int, History], None]


@dataclass(frozen=True)
class ValidationRows:
    """The rows that decide when training stops; n of them.

    Attributes:
        rows: The rows; they may be kept in host memory.
        score: The score of outputs (n, outputs), larger is better.
        tagged: What a rule allows the rows; None allows all.
    """

    rows: Rows
    score: Callable[[Tensor], float]
    tagged: TaggedRows | None = None


@dataclass
class Member:
    """One fitted network of an ensemble, and how its training went."""

    network: TabR
    history: History


def fit_tabr(
    recipe: Recipe,
    shape: DataShape,
    train: TrainingRows,
    validation: ValidationRows,
    seeds: Sequence[int],
    *,
    plan: MemoryPlan | None = None,
    on_epoch: OnEpoch | None = None,
    description: str | None = None,
) -> list[Member]:
    """Build networks and train them: on a GPU as one, elsewhere one by one.

    Args:
        recipe: What the networks are and how they are trained.
        shape: Columns and target.
        train: Training rows, who are also the candidates.
        validation: Rows to stop early by.
        seeds: One for each network: the same seed gives the same network on the same
            device, up to rounding whoever is trained beside it.
        plan: Networks trained and rows predicted at a time; None leaves it to the
            device.
        on_epoch: Called after each epoch with a network's place in `seeds` and its
            history so far.
        description: Title of a progress bar; None shows none.
    """
    rows_at_a_time = None if plan is None else plan.rows_at_a_time
    fit = _Fit(recipe, shape, train, validation, rows_at_a_time, on_epoch)
    members_at_a_time = len(seeds) if plan is None else plan.members_at_a_time
    # On a CPU random numbers are drawn from one stream: one network at a time.
    size = members_at_a_time if train.labels.device.type == "cuda" else 1
    numbered = list(enumerate(seeds))
    groups = [numbered[i : i + size] for i in range(0, len(seeds), size)]
    members: list[Member] = []
    for number, group in enumerate(groups, 1):
        title = description
        if description is not None and len(groups) > 1:
            title = f"{description} {number} of {len(groups)}"
        members += fit.group(group, title)
        if any(member.history.stopped == "interrupted" for member in members):
            break
    return members


@dataclass(frozen=True)
class _Fit:
    """What all members of a fit share."""

    recipe: Recipe
    shape: DataShape
    train: TrainingRows
    validation: ValidationRows
    rows_at_a_time: int | None
    on_epoch: OnEpoch | None

    def group(
        self, numbered: Sequence[tuple[int, int]], title: str | None
    ) -> list[Member]:
        """Train the networks of some numbers and seeds at the same time."""
        with seeded(numbered[0][1], self.train.labels.device):
            losses, jobs = zip(*(self.build(*pair) for pair in numbered), strict=True)
            lanes = [job.lane for job in jobs]
            networks = [loss.contexts.network for loss in losses]
            as_one = len(jobs) > 1 and lanes[0].captures
            if as_one:
                first, *others = lanes
                for lane in others:
                    first.follow(lane)
                with first:
                    share_storage(networks)
                for lane in others:
                    lane.follow(first)
            histories = fit_networks(
                jobs,
                len(self.train),
                self.recipe.training,
                joint=partial(_stacked, losses, lanes) if as_one else None,
                description=title,
            )
        if as_one:
            part_storage(networks)
        return [Member(*pair) for pair in zip(networks, histories, strict=True)]

    def build(self, number: int, seed: int) -> tuple[BatchLoss, Job]:
        """Return a network's loss and its training, not begun."""
        train, device = self.train, self.train.labels.device
        torch.default_generator.manual_seed(seed)
        # Candidates that are kept elsewhere make a step wait for the host.
        captures = train.rows.num.device == device and all(
            tagged is None or tagged.captures
            for tagged in (train.tagged, self.validation.tagged)
        )
        lane = Lane(device, seed, captures=captures)
        with lane:
            network = TabR(self.recipe.network, self.shape).to(device)
            contexts = Contexts(network, train, self.recipe.context_size)
            evaluate = self._evaluation(contexts)
        smoothing = self.recipe.training.label_smoothing
        loss = BatchLoss(contexts, self.shape.task, smoothing)
        return loss, Job(
            network,
            loss,
            evaluate,
            self.validation.score,
            torch.Generator().manual_seed(seed),
            lane,
            freeze=contexts.freeze,
            watch=self._watch(number, contexts),
        )

    def _evaluation(self, contexts: Contexts) -> Callable[[], Tensor]:
        """Return what predicts for the validation rows by the network as it is."""
        rows, tagged = self.validation.rows, self.validation.tagged
        m, device = contexts.m, contexts.labels.device
        last = LastNeighbors(rows.n_rows, min(m, len(self.train)), device)

        def evaluate() -> Tensor:
            output, _ = predict(
                contexts.index(),
                rows,
                m,
                tagged=tagged,
                last=last,
                rows_at_a_time=self.rows_at_a_time,
            )
            return output.prediction

        return evaluate

    def _watch(
        self, number: int, contexts: Contexts
    ) -> Callable[[History], None] | None:
        """Return what is called after each epoch, if anything is."""
        records = self.recipe.training.record_context
        change = ContextChange(contexts) if records else None
        if change is None and self.on_epoch is None:
            return None

        def watch(history: History) -> None:
            if change is not None:
                change(history)
            if self.on_epoch is not None:
                self.on_epoch(number, history)

        return watch


def _stacked(
    losses: Sequence[BatchLoss], lanes: Sequence[Lane], places: Sequence[int]
) -> StackedLosses:
    """Return the networks at these places, run as one."""
    return StackedLosses([losses[i] for i in places], [lanes[i] for i in places])

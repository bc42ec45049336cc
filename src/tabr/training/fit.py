"""Fit TabR: build networks, and train them as one or one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from tabr.candidates.device_rules import TaggedRows
from tabr.candidates.point_index import LastNeighbors
from tabr.config import Recipe
from tabr.device.cuda_graphs import Lane
from tabr.device.threads import whole_pieces
from tabr.network.rows import Rows
from tabr.network.tabr import TabR, points_are_inputs
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


@dataclass(frozen=True)
class MemberSpec:
    """What one member is made of.

    Attributes:
        recipe: What the network is and how it is trained.
        train: Rows to learn from, who are also the candidates.
        validation: Rows to stop early by.
        seed: The same seed gives the same network on the same device, up to rounding
            whoever is trained beside it.
        fold: Number of the part that is held out from it.
    """

    recipe: Recipe
    train: TrainingRows
    validation: ValidationRows
    seed: int = 0
    fold: int = 0

    def is_like(self, other: MemberSpec) -> bool:
        """Whether the two can be trained as one: all tensors have the same shapes."""
        sizes = len(self.train), len(other.train)
        few = min(sizes) <= self.recipe.context_size  # so many neighbours it has
        close = abs(sizes[0] - sizes[1]) <= (0 if few else 1)
        return self.recipe == other.recipe and close


@dataclass
class Member:
    """One fitted network of a model, and how its training went.

    Attributes:
        network: The network.
        history: What happened, epoch by epoch.
        recipe: The name of its recipe.
        fold: Number of the part that was held out from it.
        weight: Its weight in the mean of all, before they are made to sum to one.
    """

    network: TabR
    history: History
    recipe: str = Recipe.name
    fold: int = 0
    weight: float = 1.0


def fit_tabr(
    specs: Sequence[MemberSpec],
    shape: DataShape,
    *,
    plan: MemoryPlan | None = None,
    on_epoch: OnEpoch | None = None,
    description: str | None = None,
    deadline: float | None = None,
) -> list[Member]:
    """Build networks and train them: on a GPU as one, elsewhere one by one.

    An interruption, or the deadline, leaves the last ones out.

    Args:
        specs: What to train; those that are alike stand beside each other, and their
            rows and labels are the same tensors.
        shape: Columns and target.
        plan: Networks trained and rows predicted at a time; None leaves it to the
            device.
        on_epoch: Called after each epoch with a network's place in `specs` and its
            history so far.
        description: Title of a progress bar; None shows none.
        deadline: When to be done, as `time.perf_counter` tells it; None is never. One
            network is trained in any case.
    """
    fit = _Fit(shape, None if plan is None else plan.rows_at_a_time, on_epoch)
    # On a CPU random numbers are drawn from one stream: one network at a time.
    most = 1
    if specs[0].train.labels.device.type == "cuda":
        most = len(specs) if plan is None else plan.members_at_a_time
    groups = _groups(specs, most)
    members: list[Member] = []
    for number, group in enumerate(groups, 1):
        title = description
        if description is not None and len(groups) > 1:
            title = f"{description} {number} of {len(groups)}"
        left = None if deadline is None else deadline - time.perf_counter()
        if members and left is not None and left <= 0:
            break
        fitted = fit.group(group, title, left)
        reasons = {member.history.stopped for member in fitted}
        members += [m for m in fitted if not members or _is_whole(m, members)]
        if "interrupted" in reasons:
            break
    return members


def _groups(
    specs: Sequence[MemberSpec], most: int
) -> list[list[tuple[int, MemberSpec]]]:
    """Return numbered specs in groups of at most so many that are trained as one."""
    groups: list[list[tuple[int, MemberSpec]]] = []
    for number, spec in enumerate(specs):
        if not groups or len(groups[-1]) == most or not spec.is_like(groups[-1][0][1]):
            groups.append([])
        groups[-1].append((number, spec))
    return groups


def _is_whole(member: Member, earlier: Sequence[Member]) -> bool:
    """Whether a member may stand beside others: it was not ended too early."""
    if member.history.stopped not in ("time_limit", "interrupted"):
        return True
    epochs = [other.history.best_epoch + 1 for other in earlier]
    return 2 * len(member.history.score) >= min(epochs)


@dataclass(frozen=True)
class _Fit:
    """What all members of a fit share."""

    shape: DataShape
    rows_at_a_time: int | None
    on_epoch: OnEpoch | None

    def group(
        self,
        numbered: Sequence[tuple[int, MemberSpec]],
        title: str | None,
        seconds_left: float | None,
    ) -> list[Member]:
        """Train networks that are alike at the same time."""
        first_spec = numbered[0][1]
        train, training = first_spec.train, first_spec.recipe.training
        if seconds_left is not None:
            limit = max(seconds_left, 1e-3)
            if training.time_limit is not None:
                limit = min(limit, training.time_limit)
            training = replace(training, time_limit=limit)
        device = train.labels.device
        splits = device.type == "cpu" and points_are_inputs(
            first_spec.recipe.network, self.shape
        )
        with seeded(first_spec.seed, device), whole_pieces(splits):
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
                len(train),
                training,
                joint=partial(_stacked, losses, lanes) if as_one else None,
                description=title,
            )
        if as_one:
            part_storage(networks)
        return [
            Member(network, history, spec.recipe.name, spec.fold)
            for network, history, (_, spec) in zip(
                networks, histories, numbered, strict=True
            )
        ]

    def build(self, number: int, spec: MemberSpec) -> tuple[BatchLoss, Job]:
        """Return a network's loss and its training, not begun."""
        recipe, train, seed = spec.recipe, spec.train, spec.seed
        device = train.labels.device
        torch.default_generator.manual_seed(seed)
        # Candidates that are kept elsewhere make a step wait for the host.
        captures = train.rows.num.device == device and all(
            tagged is None or tagged.captures
            for tagged in (train.tagged, spec.validation.tagged)
        )
        lane = Lane(device, seed, captures=captures)
        with lane:
            network = TabR(recipe.network, self.shape).to(device)
            share = recipe.training.candidate_share
            contexts = Contexts(network, train, recipe.context_size, share)
            evaluate = self._evaluation(contexts, spec.validation)
        smoothing = recipe.training.label_smoothing
        loss = BatchLoss(contexts, self.shape.task, smoothing)
        return loss, Job(
            network,
            loss,
            evaluate,
            spec.validation.score,
            torch.Generator().manual_seed(seed),
            lane,
            freeze=contexts.freeze,
            watch=self._watch(number, contexts, recipe.training.record_context),
            positions=None if train.part is None else train.part.cpu(),
        )

    def _evaluation(
        self, contexts: Contexts, validation: ValidationRows
    ) -> Callable[[], Tensor]:
        """Return what predicts for the validation rows by the network as it is."""
        rows, tagged = validation.rows, validation.tagged
        m, device = contexts.m, contexts.labels.device
        last = LastNeighbors(rows.n_rows, min(m, len(contexts.data)), device)

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
        self, number: int, contexts: Contexts, records: bool
    ) -> Callable[[History], None] | None:
        """Return what is called after each epoch, if anything is."""
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

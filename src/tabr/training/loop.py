"""The one training loop, shared by TabR and every neural baseline."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from tabr.config import TrainingConfig
from tabr.device.cuda_graphs import GraphedFunction, Lane, run_in_lanes
from tabr.errors import ParameterError, TrainingError
from tabr.training.optimizers import AdamW, Stepper

Stop = Literal["patience", "max_epochs", "time_limit", "interrupted"]
_DROP = 0.1  # of the first step size
Loss = Callable[[Tensor], Tensor]  # row indices (b,) -> scalar


@dataclass
class History:
    """What happened, epoch by epoch; scores are of the validation rows.

    Attributes:
        loss: Mean training loss of each epoch.
        score: Validation score of each epoch, larger is better.
        seconds: Time since the start at the end of each epoch.
        context_change: Mean Delta-context of each epoch but the first, if asked for.
        best_epoch: The epoch (from 0) whose weights were kept.
        stopped: Why training ended.
    """

    loss: list[float] = field(default_factory=list)
    score: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    context_change: list[float] = field(default_factory=list)
    best_epoch: int = -1
    stopped: Stop = "patience"

    @property
    def best_score(self) -> float:
        """Return the score of the best epoch."""
        return self.score[self.best_epoch]


@dataclass
class Job:
    """A network to be trained in place.

    Attributes:
        network: Its parameters are trained; it ends in evaluation mode.
        loss: The mean loss of the training rows with these indices.
        evaluate: Predictions for the validation rows, by the network as it is.
        score: The score of such predictions, larger is better.
        generator: Draws the order of rows.
        lane: Where it happens.
        freeze: Called once, before epoch `freeze_after` of the config.
        watch: Called after each epoch, before the next; it may add to the history.
        optimizer: Takes the steps; None is AdamW as the config describes it. With
            another, a config that says more of AdamW than its defaults is refused.
        positions: Which of the training rows it learns from, (k,) on the CPU; None is
            all.
    """

    network: nn.Module
    loss: Loss
    evaluate: Callable[[], Tensor]
    score: Callable[[Tensor], float]
    generator: torch.Generator
    lane: Lane
    freeze: Callable[[], None] | None = None
    watch: Callable[[History], None] | None = None
    optimizer: Stepper | None = None
    positions: Tensor | None = None


class JointGradients(Protocol):
    """Networks that are run as one, each with a lane of its own beside a common one."""

    lane: Lane

    def gradients(self, batches: Tensor) -> Tensor:
        """Leave gradients in the networks; row indices (k, b) -> losses (k,)."""
        ...


def fit_networks(
    jobs: Sequence[Job],
    n_rows: int,
    config: TrainingConfig,
    *,
    joint: Callable[[Sequence[int]], JointGradients] | None = None,
    description: str | None = None,
) -> list[History]:
    """Train networks side by side until none improves; keep the best epoch of each.

    Args:
        jobs: What to train; each stops on its own.
        n_rows: Training rows, of whom a job may learn from a part.
        config: Optimizer, batches and when to stop.
        joint: Given places in `jobs`, how their steps are taken as one; None takes
            the steps of each job by themselves.
        description: Title of a progress bar; None shows none.
    """
    start = time.perf_counter()

    def out_of_time() -> bool:
        limit = config.time_limit
        return limit is not None and time.perf_counter() - start > limit

    runs = [_Run(job, n_rows, config, start) for job in jobs]
    if joint is None:
        steps: list[_Steps] = [_Alone(run) for run in runs]
    else:
        steps = [_AsOne(runs, joint)]
    bar = tqdm(desc=description, disable=description is None)
    with bar:
        try:
            for each in steps:
                each.start_epoch(bar, out_of_time)
            while steps:
                for each in steps:
                    for run in each.runs:
                        run.take_stock(out_of_time())
                        bar.set_postfix_str(_progress(runs))
                    each.leave_finished()
                    if each.runs:
                        each.start_epoch(bar, out_of_time)
                steps = [each for each in steps if each.runs]
        except KeyboardInterrupt:
            if not all(run.history.score for run in runs):
                raise
            for run in runs:
                if not run.finished:
                    run.history.stopped = "interrupted"
    for run in runs:
        run.keep_best()
    return [run.history for run in runs]


def _progress(runs: list[_Run]) -> str:
    begun = [run.history for run in runs if run.history.score]
    epoch = max(len(history.score) for history in begun) - 1
    if len(runs) == 1:
        history = begun[0]
        return (
            f"epoch {epoch}, score {history.score[-1]:.5g}, "
            f"best {history.best_score:.5g} at {history.best_epoch}"
        )
    n_left = sum(not run.finished for run in runs)
    mean = sum(history.best_score for history in begun) / len(begun)
    return f"epoch {epoch}, {n_left} of {len(runs)} improving, best {mean:.5g}"


def _check_settings_of_adamw(config: TrainingConfig) -> None:
    """Refuse what only AdamW follows, where another optimizer takes the steps."""
    usual = TrainingConfig()
    names = ("schedule", "weight_average", "gradient_clip", "betas")
    given = [
        f"{name}={getattr(config, name)!r}"
        for name in names
        if getattr(config, name) != getattr(usual, name)
    ]
    if given:
        raise ParameterError(
            f"{', '.join(names)} are settings of AdamW, however {', '.join(given)} came"
            " to a network with an optimizer of its own: leave them out"
        )


class _Run:
    """One job on its way."""

    def __init__(
        self, job: Job, n_rows: int, config: TrainingConfig, start: float
    ) -> None:
        if job.optimizer is not None:
            _check_settings_of_adamw(config)
        self.job, self.config, self.start = job, config, start
        self.n_rows = n_rows if job.positions is None else len(job.positions)
        # What an epoch leaves behind: parameters, and statistics of normalisations.
        self.state: list[Tensor] = list(job.network.state_dict().values())
        first = next(job.network.parameters())
        self.device = first.device
        self.history = History()
        self.finished = False
        self.n_drops_left = int(config.schedule == "drop")
        self.n_epochs_before_drop = 0
        self.best: list[Tensor] = []
        self.next_order: Tensor | None = None
        with job.lane:
            n_steps = -(-self.n_rows // config.batch_size)  # of an epoch
            self.optimizer: Stepper = job.optimizer or AdamW(
                job.network, config, n_steps
            )
            average = getattr(self.optimizer, "average", None)
            self.averaged = nullcontext if average is None else average.applied
            self.total = first.new_zeros(())
            # No circle of references: a graph's memory is to be freed with the run.
            averaged = self.averaged
            self.outputs = GraphedFunction(lambda _: _outputs(job, averaged), job.lane)
            self.nothing = torch.zeros(1, device=self.device)

    @property
    def freezes(self) -> bool:
        """Whether contexts are frozen before the next epoch."""
        epoch = len(self.history.score)
        return self.job.freeze is not None and epoch == self.config.freeze_after

    def begin(self) -> Tensor:
        """Begin an epoch; return the order of its rows."""
        job = self.job
        with job.lane:
            if job.freeze is not None and self.freezes:
                _set_mode(job.network, training=False)
                with self.averaged():
                    job.freeze()
            self._set_rate()
            self.total.zero_()
            order = self._draw_order() if self.next_order is None else self.next_order
            self.next_order = None
            return order

    def _set_rate(self) -> None:
        """Follow the schedule of step sizes; those of other optimizers are theirs."""
        epoch, most = len(self.history.score), self.config.max_epochs
        if self.config.schedule != "flat-cosine" or most is None:
            return
        share = 2 * epoch / most - 1  # of the second half that is over
        factor = 1.0 if share <= 0 else 0.5 * (1 + math.cos(math.pi * share))
        if isinstance(self.optimizer, AdamW):
            self.optimizer.set_rate(factor)

    @torch.no_grad()
    def _drop_rate(self) -> None:
        """Go back to the best weights, and on from there in smaller steps."""
        self.n_drops_left -= 1
        self.n_epochs_before_drop = len(self.history.score)
        with self.job.lane:
            torch._foreach_copy_(self.state, self.best)
            if isinstance(self.optimizer, AdamW):
                self.optimizer.set_rate(_DROP)
                if self.optimizer.average is not None:
                    self.optimizer.average.restart()

    def _draw_order(self) -> Tensor:
        order = torch.randperm(self.n_rows, generator=self.job.generator)
        if self.job.positions is not None:
            order = self.job.positions[order]
        if self.device.type == "cuda":
            order = order.pin_memory()  # no copy waits for the GPU then
        return order.to(self.device, non_blocking=True)

    def look_ahead(self) -> None:
        """Draw the next order while a GPU is busy."""
        with self.job.lane:
            self.next_order = self._draw_order()

    def end(self, n_seen: int) -> None:
        """Start the predictions after an epoch; a GPU delivers them later."""
        self.n_seen = n_seen
        with self.job.lane:
            self.prediction = self.outputs(self.nothing)

    def take_stock(self, out_of_time: bool) -> None:
        """Wait for what was asked for, and decide whether to go on."""
        history, epoch = self.history, len(self.history.score)
        with self.job.lane:
            loss = float(self.total) / self.n_seen
            if not math.isfinite(loss):
                raise TrainingError(
                    f"the loss of epoch {epoch} is not a finite number: "
                    "lower learning_rate, or look for extreme values in the table"
                )
            score = float(self.job.score(self.prediction))
            history.loss.append(loss)
            history.score.append(score)
            history.seconds.append(time.perf_counter() - self.start)
            if history.best_epoch < 0 or score > history.best_score:
                history.best_epoch = epoch
                with self.averaged():
                    self._remember()
            if self.job.watch is not None:
                _set_mode(self.job.network, training=False)
                with self.averaged():  # what is watched is what was scored
                    self.job.watch(history)
        reason = self._reason_to_stop(out_of_time)
        if reason == "patience" and self.n_drops_left:
            self._drop_rate()
        elif reason is not None:
            history.stopped, self.finished = reason, True

    def _reason_to_stop(self, out_of_time: bool) -> Stop | None:
        epoch, config = len(self.history.score) - 1, self.config
        since = max(self.history.best_epoch, self.n_epochs_before_drop - 1)
        if epoch - since > config.patience:
            return "patience"
        if config.max_epochs is not None and epoch + 1 >= config.max_epochs:
            return "max_epochs"
        return "time_limit" if out_of_time else None

    @torch.no_grad()
    def _remember(self) -> None:
        if not self.best:
            self.best = [torch.empty_like(value) for value in self.state]
        torch._foreach_copy_(self.best, self.state)

    @torch.no_grad()
    def keep_best(self) -> None:
        with self.job.lane:
            torch._foreach_copy_(self.state, self.best)
        self.job.network.zero_grad(set_to_none=True)
        self.job.network.eval()
        self.job.lane.wait()


@torch.no_grad()
def _outputs(job: Job, averaged: Callable[[], AbstractContextManager[Any]]) -> Tensor:
    """Return a job's predictions for the validation rows."""
    _set_mode(job.network, training=False)
    with averaged():
        return job.evaluate()


def _set_mode(network: nn.Module, *, training: bool) -> None:
    """Switch between training and evaluation; it takes time, if it is done often."""
    if network.training != training:
        network.train(training)


class _Steps(ABC):
    """Takes the steps of runs, epoch by epoch."""

    runs: list[_Run]
    lane: Lane
    take_step: GraphedFunction

    def start_epoch(self, bar: tqdm[Any], out_of_time: Callable[[], bool]) -> None:
        """Start an epoch and its predictions.

        A GPU delivers later: meanwhile others are started, and its lanes stay filled.
        """
        if any(run.freezes for run in self.runs):
            self.take_step.forget()
        orders = self._begin()
        n_seen = 0
        with self.lane:
            batches = orders.split(self.runs[0].config.batch_size, -1)
            bar.reset(len(batches))
            for batch in batches:
                self.take_step(batch)
                n_seen += batch.shape[-1]
                bar.update()
                if out_of_time():
                    break
        for run in self.runs:
            run.job.lane.follow(self.lane)
            run.end(n_seen)
        for run in self.runs:
            run.look_ahead()

    @abstractmethod
    def _begin(self) -> Tensor:
        """Begin an epoch; return the order of its rows, (n,) or (k, n)."""

    def leave_finished(self) -> None:
        """Leave out runs that are finished."""
        self.runs = [run for run in self.runs if not run.finished]


class _Alone(_Steps):
    """The steps of one run, in its lane."""

    def __init__(self, run: _Run) -> None:
        self.runs, self.lane, job = [run], run.job.lane, run.job
        with self.lane:
            self.take_step = make_step(
                job.network, job.loss, job.lane, run.optimizer.step, run.total
            )

    def _begin(self) -> Tensor:
        return self.runs[0].begin()


class _AsOne(_Steps):
    """The steps of runs that are taken as one."""

    def __init__(
        self, runs: list[_Run], joint: Callable[[Sequence[int]], JointGradients]
    ) -> None:
        self.runs, self.all_runs, self.joint = runs, runs, joint
        self._take_over(warm=False)

    def _take_over(self, *, warm: bool) -> None:
        """Prepare steps of the runs that are left."""
        places = [self.all_runs.index(run) for run in self.runs]
        of_all, runs = self.joint(places), self.runs
        lanes = [run.job.lane for run in runs]
        updates = [run.optimizer.step for run in runs]
        self.lane = of_all.lane

        def step(batches: Tensor) -> Tensor:
            for run in runs:
                _set_mode(run.job.network, training=True)
            losses = of_all.gradients(batches)

            def update(place: int) -> None:
                updates[place]()
                runs[place].total.add_(losses[place], alpha=batches.shape[1])

            run_in_lanes(of_all.lane, lanes, update)
            return losses

        self.take_step = GraphedFunction(step, of_all.lane, warm=warm)

    def _begin(self) -> Tensor:
        orders = [run.begin() for run in self.runs]
        for run in self.runs:
            self.lane.follow(run.job.lane)
        # Parts of unequal size: the larger ones leave out a few rows, others each time.
        n_rows = min(map(len, orders))
        with self.lane:
            return torch.stack([order[:n_rows] for order in orders])

    def leave_finished(self) -> None:
        n_before = len(self.runs)
        super().leave_finished()
        if 0 < len(self.runs) < n_before:
            self._take_over(warm=True)


def make_step(
    network: nn.Module,
    loss: Loss,
    lane: Lane,
    update: Callable[[], object],
    total: Tensor | None = None,
) -> GraphedFunction:
    """Return one step of training: row indices (b,) -> their loss before it.

    What has the gradients, `update` changes. The sum of the rows' losses is added to
    `total`.
    """

    def step(index: Tensor) -> Tensor:
        _set_mode(network, training=True)
        network.zero_grad(set_to_none=True)
        value = loss(index)
        value.backward()
        update()
        value = value.detach()
        if total is not None:
            total.add_(value, alpha=len(index))
        return value

    return GraphedFunction(step, lane)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[torch.Generator]:
    """Seed torch for a while and give the user's random state back afterwards.

    Yields a generator of its own for everything that takes one.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` seeds all GPUs
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)

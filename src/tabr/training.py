"""The one training loop, shared by TabR and every neural baseline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from tabr.config import Mode, TrainingConfig
from tabr.graphs import Graphed, Lane

Stop = Literal["patience", "max_epochs", "time_limit", "interrupted"]
Loss = Callable[[Tensor], Tensor]  # row indices (b,) -> scalar


_PIECE = 16_384  # numbers that a GPU's block updates in a few steps


class TrainingError(RuntimeError):
    """Training went wrong in a way that other parameters may mend."""


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


class Stepper(Protocol):
    """An optimizer: it reads the gradients of its parameters and changes them.

    On a GPU a step is captured, so that whatever changes from step to step must live
    in tensors.
    """

    def step(self) -> object:
        """Change the parameters once."""
        ...


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
        optimizer: Takes the steps; None is AdamW as the config describes it.
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


def fit_networks(
    jobs: Sequence[Job],
    n_rows: int,
    config: TrainingConfig,
    *,
    description: str | None = None,
) -> list[History]:
    """Train networks side by side until none improves; keep the best epoch of each.

    Args:
        jobs: What to train; each stops on its own.
        n_rows: Training rows.
        config: Optimizer, batches and when to stop.
        description: Title of a progress bar; None shows none.
    """
    start = time.perf_counter()

    def out_of_time() -> bool:
        limit = config.time_limit
        return limit is not None and time.perf_counter() - start > limit

    runs = [_Run(job, n_rows, config, start) for job in jobs]
    running = runs
    bar = tqdm(desc=description, disable=description is None)
    with bar:
        try:
            for run in running:
                run.ask(bar, out_of_time)
            while running:
                for run in running:
                    run.take_stock(out_of_time())
                    bar.set_postfix_str(_progress(runs))
                    if not run.finished:
                        run.ask(bar, out_of_time)
                running = [run for run in running if not run.finished]
        except KeyboardInterrupt:
            if not all(run.history.score for run in runs):
                raise
            for run in running:
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


class _Run:
    """One job on its way."""

    def __init__(
        self, job: Job, n_rows: int, config: TrainingConfig, start: float
    ) -> None:
        self.job, self.n_rows, self.config, self.start = job, n_rows, config, start
        # What an epoch leaves behind: parameters, and statistics of normalisations.
        self.state: list[Tensor] = list(job.network.state_dict().values())
        first = next(job.network.parameters())
        self.device = first.device
        self.history = History()
        self.finished = False
        self.best: list[Tensor] = []
        with job.lane:
            self.total = first.new_zeros(())
            self.take_step = make_step(
                job.network, job.loss, config, job.lane, self.total, job.optimizer
            )
            self.outputs = Graphed(lambda _: self._outputs(), job.lane)
            self.nothing = torch.zeros(1, device=self.device)

    @torch.no_grad()
    def _outputs(self) -> Tensor:
        return self.job.evaluate()

    def ask(self, bar: tqdm[Any], out_of_time: Callable[[], bool]) -> None:
        """Ask for an epoch and its predictions.

        A GPU answers later: meanwhile others are asked, and its lanes stay filled.
        """
        config, job = self.config, self.job
        with job.lane:
            if job.freeze is not None and (
                len(self.history.score) == config.freeze_after
            ):
                job.freeze()
                self.take_step.forget()
            job.network.train()
            self.total.zero_()
            self.seen = 0
            order = torch.randperm(self.n_rows, generator=job.generator)
            batches = order.to(self.device).split(config.batch_size)
            bar.reset(len(batches))
            for batch in batches:
                self.take_step(batch)
                self.seen += len(batch)
                bar.update()
                if out_of_time():
                    break
            job.network.eval()
            self.prediction = self.outputs(self.nothing)

    def take_stock(self, out_of_time: bool) -> None:
        """Wait for what was asked for, and decide whether to go on."""
        history, epoch = self.history, len(self.history.score)
        with self.job.lane:
            loss = float(self.total) / self.seen
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
                self._remember()
            if self.job.watch is not None:
                self.job.watch(history)
        reason = _reason_to_stop(history, self.config, out_of_time)
        if reason is not None:
            history.stopped, self.finished = reason, True

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


def make_step(
    network: nn.Module,
    loss: Loss,
    config: TrainingConfig,
    lane: Lane,
    total: Tensor | None = None,
    optimizer: Stepper | None = None,
) -> Graphed:
    """Return one step of training: row indices (b,) -> their loss before it.

    The sum of the rows' losses is added to `total`. Without an optimizer it is AdamW.
    """
    update = _adamw(network, config) if optimizer is None else optimizer.step

    def step(index: Tensor) -> Tensor:
        network.zero_grad(set_to_none=True)
        value = loss(index)
        value.backward()
        update()
        value = value.detach()
        if total is not None:
            total.add_(value, alpha=len(index))
        return value

    return Graphed(step, lane)


def _adamw(network: nn.Module, config: TrainingConfig) -> Callable[[], object]:
    """Return a step of AdamW."""
    device = next(network.parameters()).device
    groups = decay_groups(network, config.mode)
    pieces: list[tuple[Tensor, tuple[Tensor, ...]]] = []
    if device.type == "cuda":
        # One block of the fused optimizer takes one tensor: many small ones are faster.
        for group in groups:
            cut = [(p, p.detach().view(-1).split(_PIECE)) for p in group["params"]]
            group["params"] = [piece for _, parts in cut for piece in parts]
            pieces.extend(cut)
    optimizer = torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        fused=device.type in ("cpu", "cuda"),
        capturable=device.type == "cuda",
    )

    def update() -> None:
        for parameter, parts in pieces:
            if parameter.grad is not None:
                of_parts = parameter.grad.reshape(-1).split(_PIECE)
                for part, grad in zip(parts, of_parts, strict=True):
                    part.grad = grad
        optimizer.step()

    return update


def _reason_to_stop(
    history: History, config: TrainingConfig, out_of_time: bool
) -> Stop | None:
    epoch = len(history.score) - 1
    if epoch - history.best_epoch > config.patience:
        return "patience"
    if config.max_epochs is not None and epoch + 1 >= config.max_epochs:
        return "max_epochs"
    return "time_limit" if out_of_time else None


def decay_groups(network: nn.Module, mode: Mode) -> list[dict[str, Any]]:
    """Return AdamW's parameter groups: who is decayed and who is spared.

    NOTE[DIFF]: the paper's text spares biases, normalisations and label embeddings;
    its published runs decayed every parameter, and so does mode "paper".
    """
    if mode == "paper":
        return [{"params": list(network.parameters())}]
    decayed: list[nn.Parameter] = []
    spared: list[nn.Parameter] = []
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            spare = (
                parameter.ndim < 2
                or name == "bias"
                or getattr(module, "spared_from_decay", False)
            )
            (spared if spare else decayed).append(parameter)
    return [{"params": decayed}, {"params": spared, "weight_decay": 0.0}]


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

"""The one training loop, shared by TabR and every neural baseline."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from tabr.config import Mode, TrainingConfig

logger = logging.getLogger(__name__)

Stop = Literal["patience", "max_epochs", "time_limit", "interrupted"]
Loss = Callable[[Tensor], Tensor]  # row indices (b,) -> scalar

_EAGER_STEPS = 3  # steps of one batch size before it is captured as a CUDA graph


class TrainingError(RuntimeError):
    """Training went wrong in a way that other parameters may mend."""


@dataclass
class History:
    """What happened, epoch by epoch; scores are of the validation rows.

    Attributes:
        loss: Mean training loss of each epoch.
        score: Validation score of each epoch, larger is better.
        seconds: Time since the start at the end of each epoch.
        best_epoch: The epoch (from 0) whose weights were kept.
        stopped: Why training ended.
    """

    loss: list[float] = field(default_factory=list)
    score: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best_epoch: int = -1
    stopped: Stop = "patience"

    @property
    def best_score(self) -> float:
        """Return the score of the best epoch."""
        return self.score[self.best_epoch]


def fit_network(
    network: nn.Module,
    loss: Loss,
    score: Callable[[], float],
    n_rows: int,
    config: TrainingConfig,
    *,
    generator: torch.Generator,
    freeze: Callable[[], None] | None = None,
    description: str | None = None,
) -> History:
    """Train a network in place until it stops improving; keep its best epoch.

    Args:
        network: Its parameters are trained; it ends in evaluation mode.
        loss: The mean loss of the training rows with these indices.
        score: The validation score of the network as it is, larger is better.
        n_rows: Training rows.
        config: Optimizer, batches and when to stop.
        generator: Draws the order of rows.
        freeze: Called once, before epoch `config.freeze_after`.
        description: Title of a progress bar; None shows none.
    """
    parameters = list(network.parameters())
    device = parameters[0].device
    take_step = make_step(network, loss, config)
    history = History()
    best: list[Tensor] = []
    n_steps = math.ceil(n_rows / config.batch_size)
    bar = tqdm(total=n_steps, desc=description, disable=description is None)
    start = time.perf_counter()

    def out_of_time() -> bool:
        limit = config.time_limit
        return limit is not None and time.perf_counter() - start > limit

    with bar:
        try:
            while True:
                epoch = len(history.score)
                if freeze is not None and epoch == config.freeze_after:
                    freeze()
                    if isinstance(take_step, GraphedStep):
                        take_step.forget()
                bar.reset(n_steps)
                network.train()
                order = torch.randperm(n_rows, generator=generator).to(device)
                total = torch.zeros((), device=device, dtype=parameters[0].dtype)
                seen = 0
                for batch in order.split(config.batch_size):
                    total += take_step(batch) * len(batch)
                    seen += len(batch)
                    bar.update()
                    if out_of_time():
                        break
                mean_loss = float(total) / seen
                if not math.isfinite(mean_loss):
                    raise TrainingError(
                        f"the loss of epoch {epoch} is not a finite number: "
                        "lower learning_rate, or look for extreme values in the table"
                    )
                network.eval()
                value = float(score())
                history.loss.append(mean_loss)
                history.score.append(value)
                history.seconds.append(time.perf_counter() - start)
                if not best or history.score[-1] > history.best_score:
                    history.best_epoch = epoch
                    best = [p.detach().clone() for p in parameters]
                bar.set_postfix_str(
                    f"epoch {epoch}, score {history.score[-1]:.5g}, "
                    f"best {history.best_score:.5g} at {history.best_epoch}"
                )
                reason = _reason_to_stop(history, config, out_of_time())
                if reason is not None:
                    history.stopped = reason
                    break
        except KeyboardInterrupt:
            if not best:
                raise
            history.stopped = "interrupted"
    with torch.no_grad():
        for parameter, kept in zip(parameters, best, strict=True):
            parameter.copy_(kept)
            parameter.grad = None
    network.eval()
    return history


def make_step(network: nn.Module, loss: Loss, config: TrainingConfig) -> Loss:
    """Return a training step: row indices (b,) -> their loss before it, scalar."""
    device = next(network.parameters()).device
    optimizer = torch.optim.AdamW(
        decay_groups(network, config.mode),
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        fused=device.type in ("cpu", "cuda"),
        capturable=device.type == "cuda",
    )

    def step(index: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        value = loss(index)
        value.backward()
        optimizer.step()
        return value.detach()

    return GraphedStep(step) if device.type == "cuda" else step


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


class GraphedStep:
    """A training step as CUDA graphs, one for each batch size.

    Launching a step's many small kernels one by one takes longer than running them.
    The first steps of a size run eagerly, as capture needs warm caches; a step that
    cannot be captured stays eager.
    """

    def __init__(self, step: Loss) -> None:
        self.step = step
        self.forget()

    def forget(self) -> None:
        """Drop the graphs: what a step computes has changed."""
        self.graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self.n_eager: dict[int, int] = {}
        self.stream = torch.cuda.Stream()

    def __call__(self, index: Tensor) -> Tensor:
        """Take a step with the rows at index (b,)."""
        size = len(index)
        if size in self.graphs:
            graph, static_index, static_loss = self.graphs[size]
            static_index.copy_(index)
            graph.replay()
            return static_loss.clone()
        self.n_eager[size] = self.n_eager.get(size, 0) + 1
        if self.n_eager[size] == _EAGER_STEPS and self._capture(index):
            return self(index)
        # Warm-up must run on the stream that captures, as autograd remembers streams.
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            loss = self.step(index)
        torch.cuda.current_stream().wait_stream(self.stream)
        return loss

    def _capture(self, index: Tensor) -> bool:
        graph = torch.cuda.CUDAGraph()
        static_index = index.clone()
        try:
            torch.cuda.synchronize()
            with torch.cuda.graph(
                graph, stream=self.stream, capture_error_mode="thread_local"
            ):
                static_loss = self.step(static_index)
        except RuntimeError as error:
            torch.cuda.synchronize()
            logger.info("steps of %d rows stay eager: %s", len(index), error)
            return False
        self.graphs[len(index)] = graph, static_index, static_loss
        return True


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

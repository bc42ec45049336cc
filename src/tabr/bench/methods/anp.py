"""Attentive neural process, ANP (Kim et al., 2019).

A task is a set of rows, of which some have known labels: its context. Self-attention
over the context makes values, and the rows to be predicted look them up by attention
on the features alone. A second encoder sums the context up as a Gaussian, of which a
vector z is drawn. Looked-up value, z and features are decoded into a mean and a
variance. In training z comes from an encoding of all rows of the task, and the
divergence between the two Gaussians is a part of the loss.

As in the runs behind the paper's figures a step of training draws tasks of 10 to 500
training rows, as many as a batch has rows, predictions attend to a third of the
training rows, the learning rate rises for 4000 steps and falls afterwards, the bounded
output (0.1 and more) is the variance, and the divergence is summed over the tasks of a
step. Kim et al. take that output for the standard deviation and divide the divergence
by the number of rows.

NOTE[DIFF]: those runs drew z, the context and dropout masks anew for each prediction,
and rows into the context more than once. Here z is its mean, the context is drawn once
for each fit and nothing is dropped: a row's prediction is always the same. In training
on a GPU products are of bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tabr.bench.methods.anp_network import N_HEADS, Memory, Network
from tabr.bench.methods.base import Encoded, Setting, Trial
from tabr.bench.methods.neural import (
    NeuralMethod,
    Schema,
    optimizer_space,
    published_training,
)
from tabr.config import TrainingConfig
from tabr.errors import ParameterError
from tabr.metrics import Score
from tabr.network.rows import Rows
from tabr.tables.targets import Outcome
from tabr.training.optimizers import Stepper

_ATTENTION = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
FEWEST, MOST = 10, 500  # rows of a task in training


class WarmedAdamW:
    """AdamW whose learning rate rises for some steps and falls afterwards."""

    def __init__(
        self, network: nn.Module, config: TrainingConfig, warmup_steps: int
    ) -> None:
        """Begin at no rate at all."""
        self.highest_rate, self.warmup_steps = config.learning_rate, warmup_steps
        self.n_steps = 0
        self.adamw = torch.optim.AdamW(
            network.parameters(),
            weight_decay=config.weight_decay,
            fused=next(network.parameters()).device.type in ("cpu", "cuda"),
        )

    def step(self) -> None:
        """Apply the gradients at the rate of this step."""
        self.n_steps += 1
        progress = self.n_steps / self.warmup_steps
        for group in self.adamw.param_groups:
            group["lr"] = self.highest_rate * min(progress, progress**-0.5)
        self.adamw.step()


class ANP(NeuralMethod):
    """A neural process that attends from rows to training rows."""

    outcomes: ClassVar[tuple[Outcome, ...]] = ("regression",)
    captures: ClassVar[bool] = False  # each step has a number of rows of its own

    network: Network
    context: Tensor  # positions of training rows that predictions attend to
    memory: Memory | None

    def __init__(
        self,
        setting: Setting,
        seed: int,
        *,
        width: int = 128,
        n_self: int = 2,
        n_cross: int = 2,
        n_decoder: int = 3,
        context_share: float = 1 / 3,
        max_context: int = 32_768,
        warmup_steps: int = 4000,
        **training: Any,
    ) -> None:
        """Keep the shape.

        Args:
            setting: What table and machine decide.
            seed: Decides weights, tasks and the context of predictions.
            width: Width of all vectors; cut to a multiple of the four heads.
            n_self: Layers of self-attention in each encoder.
            n_cross: Layers of attention from rows to context.
            n_decoder: Hidden layers of the decoder.
            context_share: Share of the training rows that predictions attend to.
            max_context: The most of them.
            warmup_steps: Steps until the learning rate is at its height.
            training: What `NeuralMethod` takes; a batch is one of tasks.
        """
        super().__init__(setting, seed, **training)
        if not 0 < context_share <= 1:
            raise ParameterError(
                f"`0 < context_share <= 1` must hold, however: {context_share=}"
            )
        counts = {"max_context": max_context, "warmup_steps": warmup_steps}
        for name, count in counts.items():
            if count < 1:
                raise ParameterError(
                    f"`{name} >= 1` must hold, however: {name}={count!r}"
                )
        self.shape = width // N_HEADS * N_HEADS, n_self, n_cross, n_decoder
        self.context_share, self.max_context = context_share, max_context
        self.warmup_steps = warmup_steps

    @staticmethod
    def space(trial: Trial, **fixed: Any) -> dict[str, Any]:
        """Choose as in the paper's table for ANP."""
        return {
            "width": trial.suggest_int("width", 64, 384),
            "n_self": trial.suggest_int("n_self", 1, 2),
            "n_cross": trial.suggest_int("n_cross", 1, 2),
            "n_decoder": trial.suggest_int("n_decoder", 1, 3),
            **optimizer_space(trial),
        }

    @staticmethod
    def published(config: Mapping[str, Any]) -> dict[str, Any]:
        """Translate a published tuned configuration into the constructor's words."""
        model = config["model"]
        return {
            "width": model["d_hidden"],
            "n_self": model["num_self_attention_l"],
            "n_cross": model["num_cross_attention_l"],
            "n_decoder": model["num_layers_dec"],
            "max_context": config["eval_batch_size_context"],
            **published_training(config),
        }

    def build(self, schema: Schema) -> nn.Module:
        """Draw the context of predictions and return the network."""
        size = int(schema.n_train * self.context_share)
        size = max(1, min(size, self.max_context))
        self.context = torch.randperm(schema.n_train)[:size].to(self.device)
        return Network(schema, *self.shape)

    def optimizer(self) -> Stepper:
        """Return what takes the steps of the network."""
        return WarmedAdamW(self.network, self.training, self.warmup_steps)

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        self.memory = None
        super()._fit(train, val, score)
        with torch.no_grad():
            self.memory = self._remembered()

    def loss(self, index: Tensor) -> Tensor:
        """Return the loss of random tasks, whichever rows the loop would take."""
        n_rows, n_tasks = len(self.labels), self.training.batch_size
        n_context, n_task = task_sizes(n_rows)
        rows = torch.randint(n_rows, (n_tasks, n_task), device=self.device)
        x = self.network.input(self.rows.take(rows))
        with _fast(self.device):
            return self.network.loss(x, self.labels[rows], n_context)

    def outputs(self, rows: Rows) -> Tensor:
        """Return means (n, 1)."""
        assert self.memory is not None
        mean, _ = self.network(self.network.input(rows)[None], self.memory)
        out: Tensor = mean.squeeze(0)
        return out

    def _all_outputs(self, rows: Rows) -> Tensor:
        if self.memory is not None:
            return super()._all_outputs(rows)
        self.memory = self._remembered()  # one encoding for all chunks
        try:
            return super()._all_outputs(rows)
        finally:
            self.memory = None  # the network is still in training

    def _remembered(self) -> Memory:
        # One task: fast kernels of attention want four axes.
        index = self.context[None]
        x = self.network.input(self.rows.take(index))
        return self.network.remembered(x, self.labels[index])


@contextmanager
def _fast(device: torch.device) -> Iterator[None]:
    """Take bfloat16 for products on a GPU, and attention that is ready at once.

    The attention of cuDNN makes a plan for each new shape, which takes longer than the
    step; here each step has a shape of its own.
    """
    if device.type != "cuda":
        yield
        return
    with torch.autocast("cuda", torch.bfloat16), sdpa_kernel(_ATTENTION):
        yield


def task_sizes(n_rows: int) -> tuple[int, int]:
    """Draw how many rows the context of a task has, and how many the whole task."""
    most = max(2, min(MOST, n_rows // 2))
    n_context = int(torch.randint(min(FEWEST, most - 1), most, ()))
    return n_context, n_context + int(torch.randint(most - n_context, ()))

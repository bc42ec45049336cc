"""RealMLP with its tuned defaults, RealMLP-TD (Holzmüller et al., 2024).

An MLP in the neural tangent parametrisation on robustly scaled numbers and their
periodic embeddings, with a scale for each input, parametric activations and an
initialisation by training rows. Adam's learning rate goes up and down four times, and
dropout and weight decay fade in the second half, over a fixed number of epochs.

Scaling belongs to the method, so tables that others leave as they are are scaled too.

NOTE[DIFF]: the authors drop the last, smaller batch of an epoch; here it is used.
NOTE[DIFF]: of equal epochs the first is kept, and not the last.
NOTE[DIFF]: a value without a level is a zero embedding; the authors train one for it.
NOTE[DIFF]: the authors draw some choices of their space with unequal chances.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.bench.methods.base import Encoded, Floats, Setting, Trial
from tabr.bench.methods.neural import NeuralMethod, Schema
from tabr.bench.methods.realmlp_network import (
    Activation,
    Network,
    NumberKind,
    Scaler,
    Shape,
)
from tabr.metrics import Score
from tabr.network.rows import Rows
from tabr.tables.normalize import Normalization
from tabr.tables.preprocessor import Arrays

_ROWS = 10_000  # that the initialisation looks at


def four_cycles(time: Tensor) -> Tensor:
    """Return the learning rate's factor at a time from 0 to 1: four ups and downs.

    Each takes twice as long as the one before.
    """
    return 0.5 - 0.5 * (2 * math.pi * (1 + 15 * time).log2()).cos()


def flat_then_cosine(time: Tensor) -> Tensor:
    """Return one in the first half of the time, then a cosine down to zero."""
    return 0.5 + 0.5 * (math.pi * (2 * time - 1).clamp_min(0)).cos()


class ScheduledAdam:
    """Adam, and decay of what is not a bias, by rates that change with each step.

    The device holds the time and the rates, so that a CUDA graph can repeat a step.
    """

    def __init__(
        self, network: Network, learning_rate: float, weight_decay: float, n_steps: int
    ) -> None:
        """Give each kind of parameter its own multiple of the learning rate."""
        self.rates = learning_rate, weight_decay
        groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
        for name, parameter in network.named_parameters():
            groups.setdefault(_group(name), []).append(parameter)
        device = next(network.parameters()).device
        self.n_steps, self.step_number = n_steps, torch.zeros((), device=device)
        self.groups = [
            {"params": parameters, "lr": torch.zeros((), device=device)}
            for parameters in groups.values()
        ]
        self.factors = list(groups)
        self.adam = torch.optim.Adam(
            self.groups,
            lr=torch.zeros((), device=device),
            betas=(0.9, 0.95),
            fused=device.type in ("cpu", "cuda"),
            capturable=device.type == "cuda",
        )

    @property
    def time(self) -> Tensor:
        """Return how much of the training is done: from 0 to 1."""
        return self.step_number / self.n_steps

    @torch.no_grad()
    def step(self) -> None:
        """Apply the gradients."""
        learning_rate, weight_decay = self.rates
        rate = learning_rate * four_cycles(self.time)
        decay = weight_decay * flat_then_cosine(self.time)
        groups = zip(self.adam.param_groups, self.factors, strict=True)
        for group, (factor, decays) in groups:
            group["lr"].copy_(factor * rate)
            if decays:
                torch._foreach_mul_(group["params"], 1 - factor * rate * decay)
        self.adam.step()
        self.step_number.add_(1)


def _group(name: str) -> tuple[float, bool]:
    """Return a parameter's multiple of the learning rate, and whether it decays."""
    module, _, own = name.rpartition(".")
    if module == "numbers":
        return 0.1, True
    if own == "bias":
        return 0.1, False
    return {"scale": 6.0, "share": 0.1}.get(own, 1.0), True


class RealMLP(NeuralMethod):
    """A well-tempered MLP; learning rate and activation default by the outcome.

    Without them the learning rate is 0.2 for numbers and 0.04 for classes, and the
    activation is Mish or SELU.
    """

    normalization: ClassVar[Normalization] = "none"
    has_batches: ClassVar[bool] = False  # the authors have one size for all tables

    network: Network
    scaler: Scaler
    adam: ScheduledAdam
    bounds: tuple[Tensor, Tensor]  # of the training labels

    def __init__(
        self,
        setting: Setting,
        seed: int,
        *,
        numbers: NumberKind = "pbld",
        frequency_scale: float = 0.1,
        has_scale: bool = True,
        n_layers: int = 3,
        width: int = 256,
        activation: Activation | None = None,
        dropout: float = 0.15,
        label_smoothing: float = 0.1,
        learning_rate: float | None = None,
        weight_decay: float = 0.02,
        batch_size: int = 256,
        max_epochs: int = 256,
    ) -> None:
        """Keep the shape; all epochs are run, and the best is kept."""
        is_number = setting.outcome == "regression"
        if learning_rate is None:
            learning_rate = 0.2 if is_number else 0.04
        if activation is None:
            activation = "mish" if is_number else "selu"
        super().__init__(
            setting,
            seed,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            batch_size=batch_size,
            patience=max_epochs,
            max_epochs=max_epochs,
        )
        self.shape = Shape(
            numbers, frequency_scale, has_scale, n_layers, width, activation
        )
        self.dropout, self.label_smoothing = dropout, label_smoothing
        self.n_epochs = max_epochs

    @staticmethod
    def space(trial: Trial, **fixed: Any) -> dict[str, Any]:
        """Choose as the paper's random search did."""
        shapes = {"3 x 256": (3, 256), "5 x 64": (5, 64), "1 x 512": (1, 512)}
        n_layers, width = shapes[trial.suggest_categorical("layers", list(shapes))]

        def one_of(name: str, choices: list[Any]) -> Any:
            return trial.suggest_categorical(name, choices)

        return {
            "numbers": one_of("numbers", ["none", "pbld", "pl", "plr"]),
            "frequency_scale": trial.suggest_float(
                "frequency_scale", 0.05, 0.5, log=True
            ),
            "has_scale": one_of("has_scale", [True, False]),
            "n_layers": n_layers,
            "width": width,
            "activation": one_of("activation", ["relu", "selu", "mish"]),
            "dropout": one_of("dropout", [0.0, 0.15, 0.3]),
            "label_smoothing": one_of("label_smoothing", [0.0, 0.1]),
            "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.3, log=True),
            "weight_decay": one_of("weight_decay", [0.0, 0.02]),
        }

    def build(self, schema: Schema) -> nn.Module:
        """Return the network, initialised by training rows, and its optimizer."""
        self.bounds = self.labels.min(), self.labels.max()
        n_outputs = max(1, schema.n_classes)
        sizes = schema.n_num, schema.n_bin, self.scaler.large, n_outputs
        network = Network(*sizes, self.shape).to(self.device)
        some = torch.randperm(schema.n_train)[:_ROWS].to(self.device)
        network.adapt(self.rows.take(some))
        config = self.training
        n_steps = self.n_epochs * math.ceil(schema.n_train / config.batch_size)
        rates = config.learning_rate, config.weight_decay
        self.adam = ScheduledAdam(network, *rates, n_steps)
        return network

    def optimizer(self) -> ScheduledAdam:
        """Return what takes the steps of the network."""
        return self.adam

    def loss(self, index: Tensor) -> Tensor:
        """Return the mean loss of the training rows at index (b,), labels smoothed."""
        dropout = self.dropout * flat_then_cosine(self.adam.time)
        output = self.network(self.rows.take(index), dropout)
        labels = self.labels[index]
        if self.task == "regression":
            return F.mse_loss(output.squeeze(1), labels)
        return F.cross_entropy(output, labels, label_smoothing=self.label_smoothing)

    def outputs(self, rows: Rows) -> Tensor:
        """Return the outputs for rows; values stay within those of training."""
        output: Tensor = self.network(rows)
        if self.task == "regression":
            return output.clamp(*self.bounds)
        return output[:, 1:] - output[:, :1] if self.task == "binary" else output

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        self.scaler = Scaler.fit(train.arrays, self.preprocessor.cardinalities)
        train, val = (
            Encoded(self.scaler(part.arrays), part.labels) for part in (train, val)
        )
        super()._fit(train, val, score)

    def _predict(self, arrays: Arrays) -> Floats:
        return super()._predict(self.scaler(arrays))

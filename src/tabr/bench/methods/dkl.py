"""Deep kernel learning, DKL (Wilson et al., 2016).

A multilayer perceptron maps a row to two numbers, scaled into a square, and a Gaussian
process on that square gives the label. All parameters, the network's and the kernel's,
maximise the marginal likelihood of the training labels. Each step takes all rows, so
that a step is an epoch; early stopping decides by the mean prediction.

The model, its kernels and where they begin are those of GPyTorch's example of DKL,
which the paper's runs followed: a constant mean, a kernel that is a product over the
two axes ("rbf", or "sm", the spectral mixture), noise of variance 1e-4 and more.

NOTE[DIFF]: there the kernel is interpolated on a grid (KISS-GP), systems are solved by
conjugate gradients up to a tolerance, and the determinant is estimated from random
vectors. Here the grid is one of inducing points along each axis: the kernel is of low
rank, and for it everything is exact, in double precision and without chance. So the
library is not needed; the tests compare with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tabr.bench.methods.base import Encoded, Setting, Trial, zero_or
from tabr.bench.methods.dkl_network import Kernel, Network, Posterior
from tabr.bench.methods.neural import NeuralMethod, Schema
from tabr.errors import ParameterError
from tabr.metrics import Score
from tabr.network.rows import Rows
from tabr.tables.targets import Outcome


class DKL(NeuralMethod):
    """A Gaussian process on what a multilayer perceptron makes of rows."""

    outcomes: ClassVar[tuple[Outcome, ...]] = ("regression",)
    has_batches: ClassVar[bool] = False  # all rows are one
    captures: ClassVar[bool] = False  # one step an epoch: nothing to be gained

    network: Network
    posterior: Posterior | None

    def __init__(
        self,
        setting: Setting,
        seed: int,
        *,
        kernel: Kernel = "rbf",
        n_layers: int = 3,
        width: int = 384,
        dropout: float = 0.1,
        grid_size: int = 40,
        learning_rate: float = 0.005,
        weight_decay: float = 1e-5,
        patience: int = 16,
        max_epochs: int | None = None,
    ) -> None:
        """Keep the shape.

        Args:
            setting: What table and machine decide.
            seed: Decides weights and dropout.
            kernel: "rbf" or "sm".
            n_layers: Hidden layers.
            width: Their width.
            dropout: Dropout after each of them.
            grid_size: Inducing points along each of the two axes. Forty do for
                lengths of 0.1 and more on a square whose side is 1.9.
            learning_rate: Of all parameters, the kernel's too.
            weight_decay: Of all parameters, the kernel's too.
            patience: Epochs without a better validation score, until training ends.
            max_epochs: The most epochs.
        """
        super().__init__(
            setting,
            seed,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            patience=patience,
            max_epochs=max_epochs,
        )
        if kernel not in ("rbf", "sm"):
            raise ParameterError(f"kernel must be 'rbf' or 'sm', however: {kernel!r}")
        if grid_size < 2:
            raise ParameterError(f"`grid_size >= 2` must hold, however: {grid_size=}")
        self.kernel: Kernel = kernel
        self.shape = n_layers, width, dropout, grid_size

    @staticmethod
    def space(trial: Trial, **fixed: Any) -> dict[str, Any]:
        """Choose as in the paper's table for DKL."""
        chosen: dict[str, Any] = {
            "kernel": trial.suggest_categorical("kernel", ["rbf", "sm"]),
            "n_layers": trial.suggest_int("n_layers", 1, 4),
            "width": trial.suggest_int("width", 64, 768),
            "dropout": zero_or(trial, "dropout", 0.0, 0.5, log=False),
        }
        rate = trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True)
        decay = zero_or(trial, "weight_decay", 1e-6, 1e-3)
        return {**chosen, "learning_rate": rate, "weight_decay": decay}

    @staticmethod
    def published(config: Mapping[str, Any]) -> dict[str, Any]:
        """Translate a published tuned configuration into the constructor's words."""
        return {
            "kernel": config["kernel"],
            "n_layers": config["mlp"]["n_blocks"],
            "width": config["mlp"]["d_layer"],
            "dropout": config["mlp"]["dropout"],
            "learning_rate": config["lr"],
            "weight_decay": config["weight_decay"],
            "patience": config["patience"],
        }

    def build(self, schema: Schema) -> nn.Module:
        """Return the network."""
        return Network(schema, self.kernel, *self.shape)

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        self.posterior = None
        self.training = dataclasses.replace(self.training, batch_size=train.n_rows)
        super()._fit(train, val, score)
        with torch.no_grad():
            self.posterior = self._learned()

    def loss(self, index: Tensor) -> Tensor:
        """Return minus the log likelihood of all labels, for each row."""
        root = self.network.root(self.rows)
        return self.network.process.loss(root, self.labels.double()).float()

    def outputs(self, rows: Rows) -> Tensor:
        """Return posterior means (n, 1)."""
        assert self.posterior is not None
        root = self.network.root(rows)
        return (root @ self.posterior.weights + self.posterior.mean)[:, None]

    def _all_outputs(self, rows: Rows) -> Tensor:
        if self.posterior is not None:
            return super()._all_outputs(rows)
        self.posterior = self._learned()  # once for all chunks
        try:
            return super()._all_outputs(rows)
        finally:
            self.posterior = None  # the network is still in training

    def _learned(self) -> Posterior:
        root = self.network.root(self.rows)
        return self.network.process.posterior(root, self.labels.double())

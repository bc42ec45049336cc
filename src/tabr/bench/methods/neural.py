"""Methods that are networks: one training loop, theirs and TabR's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from tabr.bench.methods.base import (
    ArrayMethod,
    Encoded,
    Floats,
    Setting,
    Trial,
    zero_or,
)
from tabr.config import TrainingConfig
from tabr.device.cuda_graphs import Lane
from tabr.metrics import Score
from tabr.network.rows import Rows
from tabr.tables.preprocessor import Arrays
from tabr.tables.shape import DataShape
from tabr.training.loop import History, Job, fit_networks, seeded
from tabr.training.losses import row_losses
from tabr.training.optimizers import Stepper


@dataclass(frozen=True)
class Schema(DataShape):
    """What a network must know of a table to be built.

    Attributes:
        n_train: Training rows.
    """

    n_train: int


class NeuralMethod(ArrayMethod):
    """A network trained by AdamW until the validation score stops improving.

    A subclass writes `build` and `space`. One that reads other rows beside those it
    predicts also writes `loss` and `outputs`; it finds the training rows in `rows` and
    their labels in `labels`, both on `device`.

    NOTE[DIFF]: the paper spares biases and normalisations from weight decay; the runs
    behind its figures decayed all parameters, and so do these.
    """

    has_batches: ClassVar[bool] = True
    captures: ClassVar[bool] = True  # a step can be a CUDA graph
    rows_at_a_time: ClassVar[int] = 4096  # of a prediction

    network: nn.Module
    rows: Rows
    labels: Tensor
    history: History

    def __init__(
        self,
        setting: Setting,
        seed: int,
        *,
        learning_rate: float = 0.001,
        weight_decay: float = 1e-5,
        batch_size: int = 256,
        patience: int = 16,
        max_epochs: int | None = None,
    ) -> None:
        """Keep the parameters of the training, which all networks share."""
        super().__init__(setting, seed)
        self.training = TrainingConfig(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            batch_size=batch_size,
            patience=patience,
            max_epochs=max_epochs,
            mode="paper",
        )

    @abstractmethod
    def build(self, schema: Schema) -> nn.Module:
        """Return a new network, by default from `Rows` to outputs (b, n_outputs)."""

    def optimizer(self) -> Stepper | None:
        """Return what takes the steps of the network; None is AdamW."""
        return None

    # --- one step, one prediction ---------------------------------------------------

    def loss(self, index: Tensor) -> Tensor:
        """Return the mean loss of the training rows at index (b,)."""
        output = self.network(self.rows.take(index))
        return row_losses(output, self.labels[index], self.task).mean()

    def outputs(self, rows: Rows) -> Tensor:
        """Return the outputs (n, n_outputs) for rows, whoever else is asked about."""
        out: Tensor = self.network(rows)
        return out

    # --- the whole fit ----------------------------------------------------------------

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        self.rows = Rows.from_arrays(train.arrays, self.device)
        self.labels = torch.from_numpy(train.labels).to(self.device)
        validation = Rows.from_arrays(val.arrays, self.device)
        schema = Schema(
            n_num=train.arrays.num.shape[1],
            n_bin=train.arrays.bin.shape[1],
            cardinalities=self.preprocessor.cardinalities,
            task=self.task,
            n_classes=self.target.n_classes,
            n_train=train.n_rows,
        )
        with seeded(self.seed, self.device) as generator:
            lane = Lane(self.device, self.seed, captures=self.captures)
            with lane:
                self.network = self.build(schema).to(self.device)
            job = Job(
                self.network,
                self.loss,
                lambda: self._all_outputs(validation),
                lambda output: score(self.decoded(self._final(output))),
                generator,
                lane,
                watch=self._watch,
                optimizer=self.optimizer(),
            )
            (self.history,) = fit_networks([job], train.n_rows, self.training)
        self.best_epoch = self.history.best_epoch

    def _watch(self, history: History) -> None:
        if self.setting.on_epoch is not None:
            self.setting.on_epoch(len(history.score) - 1, history.score[-1])

    @torch.no_grad()
    def _predict(self, arrays: Arrays) -> Floats:
        rows = Rows.from_arrays(arrays, self.device)
        return self._final(self._all_outputs(rows))

    def _all_outputs(self, rows: Rows) -> Tensor:
        size = self.rows_at_a_time
        parts = [
            self.outputs(rows.take(slice(start, start + size)))
            for start in range(0, max(1, rows.n_rows), size)
        ]
        return torch.cat(parts)

    def _final(self, output: Tensor) -> Floats:
        """Network outputs (n, n_outputs) -> values (n,) or probabilities (n, c)."""
        output = output.double()
        if self.task == "regression":
            output = output.squeeze(-1)
        elif self.task == "binary":
            second = output.sigmoid()
            output = torch.cat([1 - second, second], 1)
        else:
            output = output.softmax(1)
        array: Floats = np.asarray(output.cpu().numpy())
        return array

    @property
    def n_parameters(self) -> int | None:
        """Return how many numbers were trained."""
        return sum(p.numel() for p in self.network.parameters())


def published_training(config: Mapping[str, Any]) -> dict[str, Any]:
    """Translate what all published configurations of networks have in common."""
    return {
        "learning_rate": config["optimizer"]["lr"],
        "weight_decay": config["optimizer"]["weight_decay"],
        "batch_size": config["batch_size"],
        "patience": config["patience"],
    }


def published_embedding(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Translate the embedding of numbers, without its kind."""
    names = {
        "embedding_width": "d_embedding",
        "n_frequencies": "n_frequencies",
        "frequency_scale": "frequency_scale",
    }
    config = config or {}
    return {ours: config[name] for ours, name in names.items() if name in config}


def optimizer_space(trial: Trial, highest_decay: float = 1e-4) -> dict[str, Any]:
    """Choose learning rate and weight decay as for all networks of the paper."""
    return {
        "learning_rate": trial.suggest_float("learning_rate", 3e-5, 1e-3, log=True),
        "weight_decay": zero_or(trial, "weight_decay", 1e-6, highest_decay),
    }

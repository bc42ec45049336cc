"""SAINT: attention between columns, then between rows (Somepalli et al., 2021).

The official network of kind "colrow", without pretraining, with the fix of the TabR
paper: a row attends to itself and to context rows of the training part, whoever else is
asked about. Rows of a context attend to each other. A training step draws a context
anew; predictions share one, drawn once by the seed.

The published numbers of parameters tell what was run: binary columns are numbers, one
width of heads serves columns and rows, and no token was added to read the answer from.
The official code reads the first token, here that of the first column. As there, a
shortcut begins after the normalisation.

NOTE[DIFF]: parts of the official network that only pretraining would use are left out:
they were counted in the published numbers, but never trained.

NOTE[DIFF]: how the paper's runs chose a context cannot be told from what is known. Here
it has as many rows as a batch.

NOTE[DIFF]: the official code has attention dropout as a parameter and never applies it.
Here it is applied; `published` leaves it out.

NOTE[DIFF]: the paper's table for tuning leaves out the width of heads, which its tuned
configurations have (2 to 47): it is chosen between 2 and 48.

NOTE[DIFF]: a category without a level is a zero vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tabr.bench.methods.base import Setting, Trial
from tabr.bench.methods.neural import (
    NeuralMethod,
    Schema,
    optimizer_space,
    published_training,
)
from tabr.bench.methods.saint_network import Network
from tabr.network.rows import Rows
from tabr.training.losses import row_losses


class SAINT(NeuralMethod):
    """SAINT; by default the paper's configuration for large tables."""

    context: Rows

    def __init__(
        self,
        setting: Setting,
        seed: int,
        *,
        depth: int = 4,
        width: int = 32,
        head_width: int = 48,
        hidden_factor: float = 4.0,
        attention_dropout: float = 0.0,
        dropout: float = 0.8,
        learning_rate: float = 1e-4,
        weight_decay: float = 0.01,
        **training: Any,
    ) -> None:
        """Keep the shape; `training` is what `NeuralMethod` takes."""
        training |= {"learning_rate": learning_rate, "weight_decay": weight_decay}
        super().__init__(setting, seed, **training)
        self.shape = depth, width, head_width, hidden_factor
        self.dropouts = attention_dropout, dropout

    def build(self, schema: Schema) -> nn.Module:
        """Draw the context of predictions and return the network."""
        n_context = min(self.training.batch_size, schema.n_train)
        index = torch.randperm(schema.n_train)[:n_context]
        self.context = self.rows.take(index.to(self.device))
        return Network(schema, *self.shape, *self.dropouts)

    def loss(self, index: Tensor) -> Tensor:
        """Return the mean loss of the training rows at index, in a new context."""
        shape = (self.context.n_rows,)
        others = torch.randint(self.rows.n_rows, shape, device=index.device)
        output = self.network(self.rows.take(index), self.rows.take(others))
        return row_losses(output, self.labels[index], self.task).mean()

    def outputs(self, rows: Rows) -> Tensor:
        """Return the outputs (n, n_outputs) for rows, in the same context for all."""
        out: Tensor = self.network(rows, self.context)
        return out

    @staticmethod
    def space(trial: Trial, **fixed: Any) -> dict[str, Any]:
        """Choose as in the paper's table for SAINT, and the width of heads."""
        return {
            "depth": trial.suggest_int("depth", 1, 4),
            "width": 4 * trial.suggest_int("width / 4", 1, 8),
            "head_width": trial.suggest_int("head_width", 2, 48),
            "hidden_factor": trial.suggest_float("hidden_factor", 2 / 3, 8 / 3),
            "attention_dropout": trial.suggest_float("attention_dropout", 0.0, 0.5),
            "dropout": trial.suggest_float("dropout", 0.0, 0.5),
            **optimizer_space(trial),
        }

    @staticmethod
    def published(config: Mapping[str, Any]) -> dict[str, Any]:
        """Translate a published tuned configuration into the constructor's words."""
        model = config["model"]
        return {
            "depth": model["depth"],
            "width": model["dim"],
            "head_width": model["dim_head"],
            "hidden_factor": model["ffn_mult"],
            "dropout": model["ff_dropout"],
            **published_training(config),
        }

"""MLP, on numbers as they are or on their embeddings (Gorishniy et al., 2022).

Blocks of Linear, ReLU and Dropout, then a linear output. MLP-LR, MLP-PLR and
MLP-PLR-lite embed each number first, as TabR does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from tabr.bench.methods.base import Setting, Trial, embedding_space, zero_or
from tabr.bench.methods.neural import (
    NeuralMethod,
    Schema,
    optimizer_space,
    published_embedding,
    published_training,
)
from tabr.config import EmbeddingConfig, EmbeddingKind
from tabr.network.embeddings import InputVector
from tabr.network.rows import Rows


class Network(nn.Module):
    """Rows (b) -> outputs (b, n_outputs)."""

    def __init__(
        self,
        schema: Schema,
        embedding: EmbeddingConfig | None,
        n_layers: int,
        width: int,
        dropout: float,
    ) -> None:
        """Make the layers as torch does by default."""
        super().__init__()
        self.input = InputVector(schema, embedding)
        widths = [self.input.width] + [width] * n_layers
        layers: list[nn.Module] = []
        for d_in, d_out in itertools.pairwise(widths):
            layers += [nn.Linear(d_in, d_out), nn.ReLU(), nn.Dropout(dropout)]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], schema.n_outputs))

    def forward(self, rows: Rows) -> Tensor:
        """Return values or logits."""
        out: Tensor = self.layers(self.input(rows))
        return out


class MLP(NeuralMethod):
    """A multilayer perceptron; `embedding` chooses how numbers come in."""

    def __init__(
        self,
        setting: Setting,
        seed: int,
        *,
        embedding: EmbeddingKind | None = None,
        n_layers: int = 3,
        width: int = 384,
        dropout: float = 0.1,
        embedding_width: int = 24,
        n_frequencies: int = 48,
        frequency_scale: float = 0.1,
        **training: Any,
    ) -> None:
        """Keep the shape; `training` is what `NeuralMethod` takes."""
        super().__init__(setting, seed, **training)
        self.shape = n_layers, width, dropout
        self.embedding: EmbeddingConfig | None = None
        if embedding is not None:
            self.embedding = EmbeddingConfig(
                embedding, embedding_width, n_frequencies, frequency_scale
            )

    def build(self, schema: Schema) -> nn.Module:
        """Return the network."""
        return Network(schema, self.embedding, *self.shape)

    @staticmethod
    def space(trial: Trial, **fixed: Any) -> dict[str, Any]:
        """Choose as in the paper's table for MLP, and for embeddings in its runs."""
        chosen: dict[str, Any] = {
            "n_layers": trial.suggest_int("n_layers", 1, 6),
            "width": trial.suggest_int("width", 64, 1024),
            "dropout": zero_or(trial, "dropout", 0.0, 0.5, log=False),
        }
        embedding = fixed.get("embedding")
        if embedding is None:
            return {**chosen, **optimizer_space(trial, highest_decay=1e-3)}
        chosen |= embedding_space(trial, embedding)
        return {**chosen, **optimizer_space(trial)}

    @staticmethod
    def published(config: Mapping[str, Any]) -> dict[str, Any]:
        """Translate a published tuned configuration."""
        backbone = config["model"]["backbone"]
        return {
            "n_layers": backbone["n_blocks"],
            "width": backbone["d_layer"],
            "dropout": backbone["dropout"],
            **published_embedding(config["model"]["num_embeddings"]),
            **published_training(config),
        }

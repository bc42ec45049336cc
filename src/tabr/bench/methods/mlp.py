"""MLP, on numbers as they are or on their embeddings (Gorishniy et al., 2022).

Blocks of Linear, ReLU and Dropout, then a linear output. MLP-LR, MLP-PLR and
MLP-PLR-lite embed each number first, as TabR does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from tabr.bench.methods.neural import (
    PUBLISHED_EMBEDDING,
    PUBLISHED_TRAINING,
    EmbeddedConfig,
    NeuralMethod,
)
from tabr.bench.methods.spaces import EMBEDDINGS, Integer, Space, Uniform, ZeroOr, rates
from tabr.network.embeddings import InputVector
from tabr.tables.shape import DataShape


@dataclass(frozen=True)
class Config(EmbeddedConfig):
    """The hidden layers."""

    n_layers: int = 3
    width: int = 384
    dropout: float = 0.1


def perceptron(schema: DataShape, config: Config) -> nn.Sequential:
    """Return a network from rows (b) to outputs (b, n_outputs)."""
    vector = InputVector(schema, config.numbers)
    widths = [vector.width] + [config.width] * config.n_layers
    layers: list[nn.Module] = []
    for d_in, d_out in itertools.pairwise(widths):
        layers += [nn.Linear(d_in, d_out), nn.ReLU(), nn.Dropout(config.dropout)]
    return nn.Sequential(vector, *layers, nn.Linear(widths[-1], schema.n_outputs))


class MLP(NeuralMethod):
    """A multilayer perceptron; `embedding` chooses how numbers come in."""

    config_type = Config
    search_space: ClassVar[Space] = {
        "n_layers": Integer(1, 6),
        "width": Integer(64, 1024),
        "dropout": ZeroOr(Uniform(0.0, 0.5)),
    }
    embedding_spaces: ClassVar[Mapping[str | None, Space]] = {
        None: rates(max_decay=1e-3),
        **{kind: {**space, **rates()} for kind, space in EMBEDDINGS.items()},
    }
    published_names: ClassVar[Mapping[str, str]] = {
        "n_layers": "model.backbone.n_blocks",
        "width": "model.backbone.d_layer",
        "dropout": "model.backbone.dropout",
        **PUBLISHED_EMBEDDING,
        **PUBLISHED_TRAINING,
    }

    def build(self, schema: DataShape) -> nn.Module:
        """Return the network."""
        return perceptron(schema, self.config)

"""ModernNCA: a soft vote of all training rows, near ones first (Ye et al., 2025).

Rows become points: numbers are embedded, then follow a linear layer and blocks of
BatchNorm, Linear, ReLU, Dropout, Linear. A candidate weighs softmax(-distance), and the
prediction is the weighted mean of labels: values, or one-hot classes. In training each
batch sees itself and a random share of all other rows, and no row sees itself.

The blocks have no residual connections, as in the authors' code.

NOTE[DIFF]: the authors scale numbers to mean zero and variance one; here they are
scaled as for every other network of the comparison.
NOTE[DIFF]: the authors compute in double precision; this is single precision, with
distances taken from the candidates' mean.
NOTE[DIFF]: the authors normalise a batch and its candidates apart, by the statistics of
each; here they are normalised together, so that a batch may be one row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.bench.methods.base import check_share
from tabr.bench.methods.neural import EmbeddedConfig, NeuralMethod
from tabr.bench.methods.spaces import Integer, LogUniform, Space, Uniform, ZeroOr, rates
from tabr.config import EmbeddingKind
from tabr.network.embeddings import InputVector
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape

_TINY = 1e-7  # added to probabilities before their logarithm
_ROWS = 16_384  # candidates encoded at a time
_CELLS = 1 << 27  # distances held at a time


@dataclass(frozen=True)
class Config(EmbeddedConfig):
    """The shape of the encoder, and the share of other rows that a batch sees."""

    embedding: EmbeddingKind | None = "plr-lite"
    embedding_width: int = 34
    n_frequencies: int = 77
    frequency_scale: float = 0.04431360576139521
    width: int = 128
    n_blocks: int = 0
    block_width: int = 512
    dropout: float = 0.1
    share: float = 0.5

    def __post_init__(self) -> None:
        """Check the share."""
        super().__post_init__()
        check_share(share=self.share)


def encoder(schema: DataShape, config: Config) -> nn.Sequential:
    """Return a network from rows (b) to points (b, width)."""
    vector, width = InputVector(schema, config.numbers), config.width
    layers: list[nn.Module] = [vector, nn.Linear(vector.width, width)]
    for _ in range(config.n_blocks):
        layers += [
            nn.BatchNorm1d(width),
            nn.Linear(width, config.block_width),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.block_width, width),
        ]
    if config.n_blocks:
        layers.append(nn.BatchNorm1d(width))
    return nn.Sequential(*layers)


class ModernNCA(NeuralMethod):
    """Soft nearest neighbours in a learned space.

    The defaults are those of the authors' benchmark, batches and patience included.
    """

    config_type = Config
    has_batches = False  # the authors have one size for all tables
    training_defaults = replace(
        NeuralMethod.training_defaults,
        learning_rate=0.01,
        weight_decay=2e-4,
        batch_size=1024,
        patience=20,
        max_epochs=200,
    )
    search_space: ClassVar[Space] = {
        "width": Integer(64, 1024),
        "block_width": Integer(64, 1024),
        "dropout": Uniform(0.0, 0.5),
        "share": Uniform(0.05, 0.6),
        **rates((1e-5, 0.1), max_decay=1e-3),
        "n_blocks": ZeroOr(Integer(0, 2), "has blocks"),
        "frequency_scale": LogUniform(0.005, 10.0),
        "n_frequencies": Integer(16, 96),
        "embedding_width": Integer(16, 64),
    }

    targets: Tensor  # (n, c): standardised numbers, or one-hot classes
    candidates: Tensor  # (n, width): the points of all training rows

    def build(self, schema: DataShape) -> nn.Module:
        """Return the encoder; make targets of the labels."""
        self.targets = self.labels[:, None]
        if self.task != "regression":
            self.targets = F.one_hot(self.labels, schema.n_classes).float()
        return encoder(schema, self.config)

    def loss(self, index: Tensor) -> Tensor:
        """Return the mean loss of the training rows at index (b,)."""
        candidates = torch.cat([index, self._others(index)])
        points = self.network(self.rows.take(candidates))
        near = closeness(points[: len(index)], points)
        near.fill_diagonal_(-torch.inf)  # the batch stands first: no row sees itself
        mean = near.softmax(1) @ self.targets[candidates]
        targets = self.targets[index]
        if self.task == "regression":
            return (mean - targets).square().mean()
        return -(mean + _TINY).log().mul(targets).sum(1).mean()

    def _others(self, index: Tensor) -> Tensor:
        """Return a random share of the rows not at index, each at most once."""
        # Drawn by the device and of a fixed number: a CUDA graph can repeat it.
        n_others = self.rows.n_rows - len(index)
        n_drawn = min(n_others, max(1, int(self.config.share * n_others)))
        lots = torch.rand(self.rows.n_rows, device=index.device)
        lots = lots.index_fill(0, index, 2.0)  # behind all others
        return lots.topk(n_drawn, largest=False, sorted=False).indices

    def prepare(self) -> None:
        """Encode the candidates, which all rows share."""
        n = self.rows.n_rows
        parts = (slice(start, start + _ROWS) for start in range(0, n, _ROWS))
        points = [self.network(self.rows.take(part)) for part in parts]
        self.candidates = torch.cat(points)
        self.rows_at_a_time = max(1, min(type(self).rows_at_a_time, _CELLS // n))

    def outputs(self, rows: Rows) -> Tensor:
        """Return the outputs (n, n_outputs) for rows by the vote of all candidates."""
        weights = closeness(self.network(rows), self.candidates).softmax(1)
        mean = weights @ self.targets
        if self.task == "regression":
            return mean
        return self.outputs_of((mean + _TINY).log())


def closeness(points: Tensor, candidates: Tensor) -> Tensor:
    """Return minus the Euclidean distances: (b, p), (n, p) -> (b, n)."""
    # Distances do not change, and rounding errors shrink.
    center = candidates.detach().mean(0)
    # One formula for any number of rows: that of a row must not depend on others.
    formula = "use_mm_for_euclid_dist"
    return -torch.cdist(points - center, candidates - center, compute_mode=formula)

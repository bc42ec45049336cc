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

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.bench.methods.base import Setting, Trial, zero_or
from tabr.bench.methods.neural import NeuralMethod, Schema
from tabr.config import EmbeddingConfig, EmbeddingKind
from tabr.errors import ParameterError
from tabr.network.embeddings import InputVector
from tabr.network.rows import Rows

_TINY = 1e-7  # added to probabilities before their logarithm
_ROWS = 16_384  # candidates encoded at a time
_CELLS = 1 << 27  # distances held at a time


class Encoder(nn.Module):
    """Rows (b) -> points (b, width)."""

    def __init__(
        self,
        schema: Schema,
        embedding: EmbeddingConfig | None,
        width: int,
        n_blocks: int,
        block_width: int,
        dropout: float,
    ) -> None:
        """Make the layers as torch does by default."""
        super().__init__()
        self.input = InputVector(schema, embedding)
        layers: list[nn.Module] = [nn.Linear(self.input.width, width)]
        for _ in range(n_blocks):
            layers += [
                nn.BatchNorm1d(width),
                nn.Linear(width, block_width),
                nn.ReLU(),
                nn.Dropout(dropout),
                nn.Linear(block_width, width),
            ]
        if n_blocks:
            layers.append(nn.BatchNorm1d(width))
        self.layers = nn.Sequential(*layers)

    def forward(self, rows: Rows) -> Tensor:
        """Return points."""
        points: Tensor = self.layers(self.input(rows))
        return points


class ModernNCA(NeuralMethod):
    """Soft nearest neighbours in a learned space.

    The defaults are those of the authors' benchmark, batches and patience included.
    """

    has_batches: ClassVar[bool] = False  # the authors have one size for all tables

    targets: Tensor  # (n, c): standardised numbers, or one-hot classes

    def __init__(
        self,
        setting: Setting,
        seed: int,
        *,
        embedding: EmbeddingKind | None = "plr-lite",
        width: int = 128,
        n_blocks: int = 0,
        block_width: int = 512,
        dropout: float = 0.1,
        share: float = 0.5,
        embedding_width: int = 34,
        n_frequencies: int = 77,
        frequency_scale: float = 0.04431360576139521,
        learning_rate: float = 0.01,
        weight_decay: float = 2e-4,
        batch_size: int = 1024,
        patience: int = 20,
        max_epochs: int | None = 200,
    ) -> None:
        """Keep the shape; `share` is that of the other rows which a batch sees."""
        super().__init__(
            setting,
            seed,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            batch_size=batch_size,
            patience=patience,
            max_epochs=max_epochs,
        )
        if not 0 < share <= 1:
            raise ParameterError(f"`0 < share <= 1` must hold, however: {share=}")
        self.shape = width, n_blocks, block_width, dropout
        self.share = share
        self.embedding: EmbeddingConfig | None = None
        if embedding is not None:
            self.embedding = EmbeddingConfig(
                embedding, embedding_width, n_frequencies, frequency_scale
            )

    @staticmethod
    def space(trial: Trial, **fixed: Any) -> dict[str, Any]:
        """Choose as the authors did in their benchmark."""
        chosen: dict[str, Any] = {
            "width": trial.suggest_int("width", 64, 1024),
            "block_width": trial.suggest_int("block_width", 64, 1024),
            "dropout": trial.suggest_float("dropout", 0.0, 0.5),
            "n_blocks": 0,
            "share": trial.suggest_float("share", 0.05, 0.6),
            "learning_rate": trial.suggest_float("learning_rate", 1e-5, 0.1, log=True),
            "weight_decay": zero_or(trial, "weight_decay", 1e-6, 1e-3),
        }
        if trial.suggest_categorical("has blocks", [False, True]):
            chosen["n_blocks"] = trial.suggest_int("n_blocks", 0, 2)
        if fixed.get("embedding", "plr-lite") is None:
            return chosen
        scale = trial.suggest_float("frequency_scale", 0.005, 10.0, log=True)
        return {
            **chosen,
            "n_frequencies": trial.suggest_int("n_frequencies", 16, 96),
            "frequency_scale": scale,
            "embedding_width": trial.suggest_int("embedding_width", 16, 64),
        }

    def build(self, schema: Schema) -> nn.Module:
        """Return the encoder; make targets of the labels."""
        self.targets = self.labels[:, None]
        if self.task != "regression":
            self.targets = F.one_hot(self.labels, schema.n_classes).float()
        return Encoder(schema, self.embedding, *self.shape)

    def loss(self, index: Tensor) -> Tensor:
        """Return the mean loss of the training rows at index (b,)."""
        candidates = torch.cat([index, self._others(index)])
        points = self.network(self.rows.take(candidates))
        near = closeness(points[: len(index)], points)
        near.fill_diagonal_(-torch.inf)  # the batch stands first: nobody sees itself
        mean = near.softmax(1) @ self.targets[candidates]
        own = self.targets[index]
        if self.task == "regression":
            return (mean - own).square().mean()
        return -(mean + _TINY).log().mul(own).sum(1).mean()

    def outputs(self, rows: Rows) -> Tensor:
        """Return the outputs (n, n_outputs) for rows by the vote of all candidates."""
        return self._voted(rows, self._candidates())

    # --- details --------------------------------------------------------------------

    def _others(self, index: Tensor) -> Tensor:
        """Draw a share of the rows that are not at index, each at most once.

        Drawn by the device and of a fixed number, so that a CUDA graph can repeat it.
        """
        n_others = self.rows.n_rows - len(index)
        n_drawn = min(n_others, max(1, int(self.share * n_others)))
        lots = torch.rand(self.rows.n_rows, device=index.device)
        lots = lots.index_fill(0, index, 2.0)  # behind all others
        return lots.topk(n_drawn, largest=False, sorted=False).indices

    def _candidates(self) -> Tensor:
        """Return the points (n, width) of all training rows."""
        n = self.rows.n_rows
        slices = (slice(start, start + _ROWS) for start in range(0, n, _ROWS))
        return torch.cat([self.network(self.rows.take(part)) for part in slices])

    def _all_outputs(self, rows: Rows) -> Tensor:
        candidates = self._candidates()  # once, whoever is asked about
        size = max(1, min(self.rows_at_a_time, _CELLS // len(candidates)))
        parts = [
            self._voted(rows.take(slice(start, start + size)), candidates)
            for start in range(0, max(1, rows.n_rows), size)
        ]
        return torch.cat(parts)

    def _voted(self, rows: Rows, candidates: Tensor) -> Tensor:
        weights = closeness(self.network(rows), candidates).softmax(1)
        mean = weights @ self.targets
        if self.task == "regression":
            return mean
        logits = (mean + _TINY).log()
        return logits[:, 1:] - logits[:, :1] if self.task == "binary" else logits


def closeness(points: Tensor, candidates: Tensor) -> Tensor:
    """Return minus the Euclidean distances: (b, p), (n, p) -> (b, n)."""
    # Distances do not change, and rounding errors shrink.
    center = candidates.detach().mean(0)
    # One formula for any number of rows: that of a row must not depend on others.
    formula = "use_mm_for_euclid_dist"
    return -torch.cdist(points - center, candidates - center, compute_mode=formula)

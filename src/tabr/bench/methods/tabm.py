"""TabM: many MLPs that share most of their weights (Gorishniy et al., 2025).

The network is the authors' package. Each member is trained by its own loss, and their
predictions are averaged: values, or probabilities. Numbers come in as they are, or by
the piecewise-linear embeddings of the paper.

Members see different batches, as in the paper's main variant: the rows of a member are
those of the batch, moved on by a number of its own, so that each member still sees
every row once an epoch.

NOTE[DIFF]: the authors draw a new order for each member and epoch; here members share
the epoch's order, each from another start.
NOTE[DIFF]: the authors compute in bfloat16; here it is single precision.
NOTE[DIFF]: the authors give a binary column two inputs; here it is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.bench.methods.neural import NeuralMethod
from tabr.bench.methods.spaces import Integer, LogUniform, Space, Uniform, ZeroOr
from tabr.config import TrainingConfig
from tabr.network.embeddings import OneHot
from tabr.network.rows import Rows
from tabr.optional import require
from tabr.tables.shape import DataShape


@dataclass(frozen=True)
class Config:
    """The shape of the network, by default the one that the authors suggest.

    Without `n_layers` there are three, or two after embeddings.
    """

    architecture: Literal["tabm", "tabm-mini"] = "tabm"
    embedding: Literal["piecewise-linear"] | None = None
    k: int = 32
    n_layers: int | None = None
    width: int = 512
    dropout: float = 0.1
    embedding_width: int = 16
    n_bins: int = 48
    shares_batches: bool = False


class Network(nn.Module):
    """Rows (b) or (b, k) -> outputs (b, k, n_outputs), one of each member.

    It is assembled from the authors' modules; the embedding is one of all numbers.
    """

    def __init__(
        self, schema: DataShape, config: Config, embedding: nn.Module | None
    ) -> None:
        super().__init__()
        tabm = require("tabm", extra="baselines")
        self.embedding = embedding
        self.one_hot = OneHot(schema.cardinalities)
        n_layers, k = config.n_layers, config.k
        if n_layers is None:
            n_layers = 3 if config.embedding is None else 2
        number = 1 if embedding is None else config.embedding_width
        # A member begins by scaling each column by a number of its own.
        columns = [number] * schema.n_num + [1] * schema.n_bin
        columns += schema.cardinalities
        self.view = tabm.EnsembleView(k=k)
        self.backbone = tabm.make_tabm_backbone(
            d_in=sum(columns),
            n_blocks=n_layers,
            d_block=config.width,
            dropout=config.dropout,
            k=k,
            arch_type=config.architecture,
            start_scaling_init="random-signs" if embedding is None else "normal",
            start_scaling_init_chunks=columns,
        )
        self.output = tabm.LinearEnsemble(config.width, max(1, schema.n_classes), k=k)

    def forward(self, rows: Rows) -> Tensor:
        """Return values or logits of each member."""
        num = rows.num
        if self.embedding is not None:
            embedded = self.embedding(num.reshape(-1, num.shape[-1]))
            num = embedded.reshape(*num.shape[:-1], -1)
        categories = self.one_hot(rows.cat).to(num.dtype)
        x = self.view(torch.cat([num, rows.bin, categories], -1))
        out: Tensor = self.output(self.backbone(x))
        return out


def piecewise_linear(num: Tensor, width: int, n_bins: int) -> nn.Module:
    """Return an embedding of numbers by their position between quantiles of num."""
    library = require("rtdl_num_embeddings", extra="baselines")
    quantiles = torch.linspace(0, 1, n_bins + 1).to(num)
    edges = [torch.quantile(column, quantiles).unique().cpu() for column in num.T]
    # A column without two values cannot be cut: any bin will do.
    edges = [e if len(e) > 1 else torch.cat([e, e + 1]) for e in edges]
    embedding: nn.Module = library.PiecewiseLinearEmbeddings(
        edges, width, activation=False, version="B"
    )
    assert isinstance(embedding.linear0, nn.Module)
    embedding.linear0.spared_from_decay = True  # type: ignore[assignment]
    return embedding


class TabM(NeuralMethod):
    """An ensemble in one network; `architecture` and `embedding` choose its variant.

    Like the authors' runs, and unlike those of the other networks, these spare biases
    from weight decay.
    """

    config_type = Config
    extra = "baselines"
    libraries = ("tabm", "rtdl_num_embeddings")
    training_defaults = TrainingConfig(
        learning_rate=0.002, weight_decay=3e-4, mode="fixed", gradient_clip=1.0
    )
    search_space: ClassVar[Space] = {
        "n_layers": Integer(1, 5),
        "width": Integer(4, 64, 16),
        "dropout": ZeroOr(Uniform(0.0, 0.5)),
        "learning_rate": LogUniform(1e-4, 3e-3),
        "weight_decay": ZeroOr(LogUniform(1e-4, 1e-1)),
    }
    embedding_spaces: ClassVar[Mapping[str | None, Space]] = {
        "piecewise-linear": {
            "n_layers": Integer(1, 4),
            "embedding_width": Integer(2, 8, 4),
            "n_bins": Integer(2, 128),
        }
    }

    starts: Tensor  # (k,), how far members are ahead of the batch

    def build(self, schema: DataShape) -> nn.Module:
        """Return the network; draw where each member starts."""
        config: Config = self.config
        self.starts = torch.randint(self.rows.n_rows, (config.k,)).to(self.device)
        embedding: nn.Module | None = None
        if config.embedding is not None and schema.n_num > 0:
            shape = config.embedding_width, config.n_bins
            embedding = piecewise_linear(self.rows.num, *shape)
        return Network(schema, config, embedding)

    def loss(self, index: Tensor) -> Tensor:
        """Return the mean over members of their mean losses."""
        shares_batches = self.config.shares_batches
        seen = index[:, None].expand(-1, self.config.k)
        if not shares_batches:
            seen = (seen + self.starts) % self.rows.n_rows
        output = self.network(self.rows.take(index if shares_batches else seen))
        labels = self.labels[seen].flatten()
        output = output.flatten(0, 1)
        if self.task == "regression":
            return F.mse_loss(output.squeeze(-1), labels)
        return F.cross_entropy(output, labels)

    def outputs(self, rows: Rows) -> Tensor:
        """Return the mean value, or the logits of the mean probabilities."""
        output: Tensor = self.network(rows)
        if self.task == "regression":
            return output.mean(1)
        return self.outputs_of(output.log_softmax(-1).logsumexp(1))

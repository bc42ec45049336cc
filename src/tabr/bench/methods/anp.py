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

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tabr.bench.methods.base import check_minimum, check_share
from tabr.bench.methods.layers import attend, join_heads, split_heads
from tabr.bench.methods.neural import PUBLISHED_TRAINING, NeuralMethod
from tabr.bench.methods.spaces import Integer, Space, rates
from tabr.config import TrainingConfig
from tabr.network.embeddings import InputVector
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape
from tabr.training.optimizers import Stepper

MIN_ROWS, MAX_ROWS = 10, 500  # of a task in training
N_HEADS = 4
DROPOUT = 0.1
RELU_GAIN = math.sqrt(2)
# The attention of cuDNN makes a plan for each new shape, which takes longer than the
# step; here each step has a shape of its own.
_KERNELS = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]

KeysValues = tuple[Tensor, Tensor]  # each (..., heads, n, d)


@dataclass(frozen=True)
class Config:
    """The layers of the network, and the context of predictions.

    There are `n_self` layers of self-attention in each encoder, `n_cross` from rows to
    context, and `n_decoder` hidden layers of the decoder. The width is cut to a
    multiple of the four heads. Predictions attend to a share of the training rows, at
    most `max_context`.
    """

    width: int = 128
    n_self: int = 2
    n_cross: int = 2
    n_decoder: int = 3
    context_share: float = 1 / 3
    max_context: int = 32_768
    warmup_steps: int = 4000

    def __post_init__(self) -> None:
        """Check the context and the warm-up."""
        check_share(context_share=self.context_share)
        check_minimum(1, max_context=self.max_context, warmup_steps=self.warmup_steps)


class Memory(NamedTuple):
    """A context as predictions need it: what each layer looks at, and z (..., w)."""

    layers: list[KeysValues]
    z: Tensor


class Gaussian(NamedTuple):
    """Independent normal distributions, one for each place of (..., width)."""

    mean: Tensor
    log_variance: Tensor

    def sample(self) -> Tensor:
        """Return a random vector, differentiable."""
        noise = torch.randn_like(self.mean)
        return self.mean + (self.log_variance / 2).exp() * noise

    def divergence(self, other: Gaussian) -> Tensor:
        """Return the Kullback-Leibler divergence from other, summed over all."""
        log_ratio = self.log_variance - other.log_variance
        shift = (self.mean - other.mean).square() / other.log_variance.exp()
        return (log_ratio.exp() + shift - 1 - log_ratio).sum() / 2


class Attention(nn.Module):
    """Rows (..., t, width) look at remembered rows -> (..., t, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.key = _linear(width, width, bias=False)
        self.value = _linear(width, width, bias=False)
        self.query = _linear(width, width, bias=False)
        self.output = _linear(2 * width, width)
        self.dropout = nn.Dropout(DROPOUT)
        self.norm = nn.LayerNorm(width)
        self.d_head = width // N_HEADS

    def remembered(self, keys: Tensor, values: Tensor) -> KeysValues:
        """Return rows (..., n, width) as they are looked at."""
        return self._heads(self.key, keys), self._heads(self.value, values)

    def forward(self, x: Tensor, memory: KeysValues | None = None) -> Tensor:
        """Return rows x with what they look up in memory, or else in each other."""
        keys, values = self.remembered(x, x) if memory is None else memory
        dropout = DROPOUT if self.training else 0.0
        query, scale = self._heads(self.query, x), self.d_head**-0.5
        mean = attend(query, keys, values, dropout=dropout, scale=scale)
        mean = join_heads(mean[..., : self.d_head])
        change = self.output(torch.cat([x, mean], -1))
        out: Tensor = self.norm(x + self.dropout(change))
        return out

    def _heads(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """Return (..., heads, n, d), where zeros fill d up to a multiple of eight."""
        # A GPU's memory-efficient kernels take no other widths.
        weight = layer.weight.unflatten(0, (N_HEADS, self.d_head))
        weight = F.pad(weight, (0, 0, 0, -self.d_head % 8)).flatten(0, 1)
        return split_heads(F.linear(x, weight), N_HEADS)


def pair_encoder(d_in: int, width: int, n_self: int) -> nn.Sequential:
    """Return self-attention from pairs of features and label to (..., n, width)."""
    attentions = (Attention(width) for _ in range(n_self))
    return nn.Sequential(_linear(d_in, width), *attentions)


class LatentEncoder(nn.Module):
    """Pairs of features and label (..., n, d) -> one Gaussian (..., width)."""

    def __init__(self, d_in: int, width: int, n_self: int) -> None:
        super().__init__()
        self.encoder = pair_encoder(d_in, width, n_self)
        self.hidden = _linear(width, width, RELU_GAIN)
        self.mean = _linear(width, width)
        self.log_variance = _linear(width, width)

    def forward(self, pairs: Tensor) -> Gaussian:
        """Return the Gaussian of the mean over rows."""
        x = self.hidden(self.encoder(pairs).mean(-2)).relu()
        return Gaussian(_full(self.mean(x)), _full(self.log_variance(x)))


class Network(nn.Module):
    """Features (..., t, d) and a context -> means and variances (..., t, 1)."""

    def __init__(self, schema: DataShape, config: Config) -> None:
        super().__init__()
        self.input = InputVector(schema, None)
        d, width = self.input.width, config.width // N_HEADS * N_HEADS
        self.latent = LatentEncoder(d + 1, width, config.n_self)
        self.values = pair_encoder(d + 1, width, config.n_self)
        self.key = _linear(d, width)
        self.query = _linear(d, width)
        layers = (Attention(width) for _ in range(config.n_cross))
        self.cross_attentions = nn.ModuleList(layers)
        self.target = _linear(d, width)
        hidden: list[nn.Module] = []
        for _ in range(config.n_decoder):
            hidden += [_linear(3 * width, 3 * width, RELU_GAIN), nn.ReLU()]
        self.decoder = nn.Sequential(*hidden, _linear(3 * width, 2))

    def loss(self, x: Tensor, labels: Tensor, n_context: int) -> Tensor:
        """Return the loss of tasks x (b, t, d), labels (b, t).

        The first rows of each are its context; all its rows are predicted.
        """
        pairs = torch.cat([x, labels[..., None]], -1)
        prior: Gaussian = self.latent(pairs[:, :n_context])
        posterior: Gaussian = self.latent(pairs)
        context = self._layers(x[:, :n_context], pairs[:, :n_context])
        mean, variance = self(x, Memory(context, posterior.sample()))
        error = labels[..., None] - mean
        fit: Tensor = (variance.log() + error.square() / variance).mean() / 2
        return fit + posterior.divergence(prior)

    def remembered(self, x: Tensor, labels: Tensor) -> Memory:
        """Return what predictions need of contexts x (..., n, d), labels (..., n)."""
        pairs = torch.cat([x, labels[..., None]], -1)
        return Memory(self._layers(x, pairs), self.latent(pairs).mean)

    def forward(self, x: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Return means and variances (..., t, 1) of rows x (..., t, d)."""
        value = self.query(x)
        for attention, layer in zip(self.cross_attentions, memory.layers, strict=True):
            value = attention(value, layer)
        z = memory.z[..., None, :].expand_as(value)
        output = self.decoder(torch.cat([value, z, self.target(x)], -1))
        mean, raw = _full(output).chunk(2, -1)
        return mean, 0.1 + 0.9 * F.softplus(raw)

    def _layers(self, x: Tensor, pairs: Tensor) -> list[KeysValues]:
        keys, values = self.key(x), self.values(pairs)
        return [
            cast(Attention, attention).remembered(keys, values)
            for attention in self.cross_attentions
        ]


def _linear(d_in: int, d_out: int, gain: float = 1.0, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(d_in, d_out, bias=bias)
    nn.init.xavier_uniform_(layer.weight, gain)
    return layer


def _full(x: Tensor) -> Tensor:
    """Return numbers of reduced precision in float32, before they are summed up."""
    return x.float() if x.dtype == torch.bfloat16 else x


class WarmedAdamW:
    """AdamW whose learning rate rises for some steps and falls afterwards."""

    def __init__(
        self, network: nn.Module, config: TrainingConfig, warmup_steps: int
    ) -> None:
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
    """A neural process that attends from rows to training rows; a batch is of tasks."""

    config_type = Config
    outcomes = ("regression",)
    captures = False  # each step has a number of rows of its own
    search_space: ClassVar[Space] = {
        "width": Integer(64, 384),
        "n_self": Integer(1, 2),
        "n_cross": Integer(1, 2),
        "n_decoder": Integer(1, 3),
        **rates(),
    }
    published_names: ClassVar[Mapping[str, str]] = {
        "width": "model.d_hidden",
        "n_self": "model.num_self_attention_l",
        "n_cross": "model.num_cross_attention_l",
        "n_decoder": "model.num_layers_dec",
        "max_context": "eval_batch_size_context",
        **PUBLISHED_TRAINING,
    }

    network: Network
    context: Tensor  # positions of training rows that predictions attend to
    memory: Memory

    def build(self, schema: DataShape) -> nn.Module:
        """Draw the context of predictions and return the network."""
        size = int(self.rows.n_rows * self.config.context_share)
        size = max(1, min(size, self.config.max_context))
        self.context = torch.randperm(self.rows.n_rows)[:size].to(self.device)
        return Network(schema, self.config)

    def optimizer(self) -> Stepper:
        """Return the optimizer of the network."""
        return WarmedAdamW(self.network, self.training, self.config.warmup_steps)

    def loss(self, index: Tensor) -> Tensor:
        """Return the loss of random tasks, whatever rows the loop chose."""
        n_rows, n_tasks = len(self.labels), self.training.batch_size
        n_context, n_task = task_sizes(n_rows)
        rows = torch.randint(n_rows, (n_tasks, n_task), device=self.device)
        x = self.network.input(self.rows.take(rows))
        is_cuda = self.device.type == "cuda"
        products = torch.autocast(self.device.type, torch.bfloat16, enabled=is_cuda)
        with products, sdpa_kernel(_KERNELS):
            return self.network.loss(x, self.labels[rows], n_context)

    def prepare(self) -> None:
        """Encode the context, which all rows share."""
        index = self.context[None]  # one task: fast kernels want four axes
        x = self.network.input(self.rows.take(index))
        self.memory = self.network.remembered(x, self.labels[index])

    def outputs(self, rows: Rows) -> Tensor:
        """Return means (n, 1)."""
        mean, _ = self.network(self.network.input(rows)[None], self.memory)
        out: Tensor = mean.squeeze(0)
        return out


def task_sizes(n_rows: int) -> tuple[int, int]:
    """Return random numbers of rows: of a task's context, and of the whole task."""
    most = max(2, min(MAX_ROWS, n_rows // 2))
    n_context = int(torch.randint(min(MIN_ROWS, most - 1), most, ()))
    return n_context, n_context + int(torch.randint(most - n_context, ()))

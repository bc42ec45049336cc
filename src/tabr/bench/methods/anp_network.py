"""The network of ANP: two encoders of a context, and a decoder."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.bench.methods.neural import Schema
from tabr.network.embeddings import InputVector

N_HEADS = 4
DROPOUT = 0.1
RELU_GAIN = math.sqrt(2)

KeysValues = tuple[Tensor, Tensor]  # both (..., heads, n, d)


class Memory(NamedTuple):
    """A context as predictions need it: what each layer looks at, and z (..., w)."""

    layers: list[KeysValues]
    z: Tensor


class Network(nn.Module):
    """Features (..., t, d) and a context -> means and variances (..., t, 1)."""

    def __init__(
        self, schema: Schema, width: int, n_self: int, n_cross: int, n_decoder: int
    ) -> None:
        """Make both encoders and the decoder."""
        super().__init__()
        self.input = InputVector(schema, None)
        d = self.input.width
        self.latent = LatentEncoder(d + 1, width, n_self)
        self.values = Encoder(d + 1, width, n_self)
        self.key = _linear(d, width)
        self.query = _linear(d, width)
        self.cross_attentions = nn.ModuleList(Attention(width) for _ in range(n_cross))
        self.target = _linear(d, width)
        hidden: list[nn.Module] = []
        for _ in range(n_decoder):
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
        mean, variance = self(x, Memory(context, posterior.drawn()))
        error = labels[..., None] - mean
        fit: Tensor = (variance.log() + error.square() / variance).mean() / 2
        return fit + posterior.divergence(prior)

    def remembered(self, x: Tensor, labels: Tensor) -> Memory:
        """Return what predictions need of contexts x (..., n, d), labels (..., n)."""
        pairs = torch.cat([x, labels[..., None]], -1)
        return Memory(self._layers(x, pairs), self.latent(pairs).mean)

    def forward(self, x: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Return means and variances (..., t, 1) of rows x (..., t, d)."""
        found = self.query(x)
        for attention, layer in zip(self.cross_attentions, memory.layers, strict=True):
            found = attention(found, layer)
        z = memory.z[..., None, :].expand_as(found)
        output = self.decoder(torch.cat([found, z, self.target(x)], -1))
        mean, raw = _full(output).chunk(2, -1)
        return mean, 0.1 + 0.9 * F.softplus(raw)

    def _layers(self, x: Tensor, pairs: Tensor) -> list[KeysValues]:
        keys, values = self.key(x), self.values(pairs)
        return [
            cast(Attention, attention).remembered(keys, values)
            for attention in self.cross_attentions
        ]


class Encoder(nn.Module):
    """Pairs of features and label (..., n, d) -> (..., n, width), by self-attention."""

    def __init__(self, d_in: int, width: int, n_self: int) -> None:
        """Make the layers."""
        super().__init__()
        self.pair = _linear(d_in, width)
        self.attentions = nn.ModuleList(Attention(width) for _ in range(n_self))

    def forward(self, pairs: Tensor) -> Tensor:
        """Let the rows look at each other."""
        x: Tensor = self.pair(pairs)
        for attention in self.attentions:
            x = attention(x)
        return x


class Gaussian(NamedTuple):
    """Independent normal distributions, one for each place of (..., width)."""

    mean: Tensor
    log_variance: Tensor

    def drawn(self) -> Tensor:
        """Draw once, differentiable."""
        noise = torch.randn_like(self.mean)
        return self.mean + (self.log_variance / 2).exp() * noise

    def divergence(self, other: Gaussian) -> Tensor:
        """Return the Kullback-Leibler divergence from other, summed over all."""
        log_ratio = self.log_variance - other.log_variance
        shift = (self.mean - other.mean).square() / other.log_variance.exp()
        return (log_ratio.exp() + shift - 1 - log_ratio).sum() / 2


class LatentEncoder(nn.Module):
    """Pairs of features and label (..., n, d) -> one Gaussian (..., width)."""

    def __init__(self, d_in: int, width: int, n_self: int) -> None:
        """Make the layers."""
        super().__init__()
        self.encoder = Encoder(d_in, width, n_self)
        self.hidden = _linear(width, width, RELU_GAIN)
        self.mean = _linear(width, width)
        self.log_variance = _linear(width, width)

    def forward(self, pairs: Tensor) -> Gaussian:
        """Take the mean over rows."""
        x = self.hidden(self.encoder(pairs).mean(-2)).relu()
        return Gaussian(_full(self.mean(x)), _full(self.log_variance(x)))


class Attention(nn.Module):
    """Rows (..., t, width) look at remembered rows -> (..., t, width)."""

    def __init__(self, width: int) -> None:
        """Make the layers."""
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
        """Add to the rows x what they find in memory, or else in each other."""
        keys, values = self.remembered(x, x) if memory is None else memory
        found = F.scaled_dot_product_attention(
            self._heads(self.query, x),
            keys,
            values,
            dropout_p=DROPOUT if self.training else 0.0,
            scale=self.d_head**-0.5,
        )
        found = found[..., : self.d_head].transpose(-3, -2).flatten(-2)
        change = self.output(torch.cat([x, found], -1))
        out: Tensor = self.norm(x + self.dropout(change))
        return out

    def _heads(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """Return (..., heads, n, d), where zeros fill d up to a multiple of eight.

        A GPU's memory-efficient kernels take no other widths.
        """
        weight = layer.weight.unflatten(0, (N_HEADS, self.d_head))
        weight = F.pad(weight, (0, 0, 0, -self.d_head % 8)).flatten(0, 1)
        heads: Tensor = F.linear(x, weight).unflatten(-1, (N_HEADS, -1))
        return heads.transpose(-3, -2)


def _linear(d_in: int, d_out: int, gain: float = 1.0, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(d_in, d_out, bias=bias)
    nn.init.xavier_uniform_(layer.weight, gain)
    return layer


def _full(x: Tensor) -> Tensor:
    """Return numbers of reduced precision in float32, before they are summed up."""
    return x.float() if x.dtype == torch.bfloat16 else x

"""Layers of TabR: residual blocks, the sum over neighbours in T, heads."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.config import NetworkConfig, Task
from tabr.device.random import Dropout
from tabr.network.hidden_sum import hidden_sum, shared_hidden_sum
from tabr.network.products import Linear, group_products, is_steady, total


class Block(nn.Module):
    """x + Dropout2(Linear(Dropout(ReLU(Linear(LayerNorm(x)))))).

    Shape: (..., d) -> (..., d).
    """

    def __init__(self, config: NetworkConfig, normalized: bool) -> None:
        """Leave out the LayerNorm where `normalized` is False."""
        super().__init__()
        d, hidden = config.width, config.hidden
        self.norm = nn.LayerNorm(d) if normalized else nn.Identity()
        self.first = Linear(d, hidden)
        self.dropout = Dropout(config.dropout)
        self.second = Linear(hidden, d)
        self.block_dropout = Dropout(config.block_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add to x what the block makes of it."""
        hidden = self.dropout(self.first(self.norm(x)).relu())
        out: Tensor = x + self.block_dropout(self.second(hidden))
        return out


class Difference(nn.Module):
    """T(k - k_i), summed over neighbours before its last layer."""

    def __init__(self, config: NetworkConfig) -> None:
        """Make both layers as torch does by default; the last has no bias."""
        super().__init__()
        self.first = Linear(config.width, config.hidden)
        self.second = Linear(config.hidden, config.width, bias=False)
        self.rate = config.dropout

    def forward(self, difference: Tensor, weight: Tensor, weights: Tensor) -> Tensor:
        """Differences (b, m, p) of points, weight (h, p) -> sum_i w_i T_i, (b, d).

        The hidden layer is computed in the precision of `weight`.
        """
        hidden = hidden_sum(
            difference.to(weight.dtype),
            weights.to(weight.dtype),
            weight,
            self.first.bias.to(weight.dtype),
            self.rate if self.training else 0.0,
            steady=is_steady(difference),
        )
        out: Tensor = self.second(hidden.to(difference.dtype))
        return out

    def shared(
        self,
        point: Tensor,
        points: Tensor,
        positions: Tensor,
        weight: Tensor,
        weights: Tensor,
    ) -> Tensor:
        """Return the same for points (b, p), and (n, p) at positions (b, m)."""
        hidden = shared_hidden_sum(
            point @ weight.T + self.first.bias,
            points @ weight.T,
            positions,
            weights,
            self.rate if self.training else 0.0,
        )
        out: Tensor = self.second(hidden)
        return out


class Heads(nn.Module):
    """Predictors that share all but signs (k, d) and a last layer each."""

    def __init__(self, k: int, d: int, n_outputs: int) -> None:
        """Draw signs, and last layers as torch draws linear ones."""
        super().__init__()
        self.signs = nn.Parameter(torch.empty(k, d))
        self.weight = nn.Parameter(torch.empty(k, d, n_outputs))
        self.bias = nn.Parameter(torch.empty(k, n_outputs))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -(d**-0.5), d**-0.5)
        nn.init.uniform_(self.signs, -1, 1)
        with torch.no_grad():
            self.signs.sign_()

    spared_from_decay = False

    def split(self, x: Tensor) -> Tensor:
        """Return x (b, d) as each head sees it, (b, k, d)."""
        return x[:, None] * self.signs

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of heads: (b, k, d) -> (b, k, outputs)."""
        return group_products(x, self.weight) + self.bias


def mean_output(outputs: Tensor, task: Task) -> Tensor:
    """Return outputs whose prediction is the mean of the heads' predictions.

    Shape: (b, k, outputs) -> (b, outputs). Of classes it is the mean of probabilities.
    """
    if task == "regression":
        return total(outputs, 1) / outputs.shape[1]
    if task == "binary":
        yes, no = F.logsigmoid(outputs), F.logsigmoid(-outputs)
        return _log_of_sum(yes) - _log_of_sum(no)
    return _log_of_sum(outputs.log_softmax(2))


def _log_of_sum(logs: Tensor) -> Tensor:
    """Return the logarithms (b, outputs) of sums over heads, (b, k, outputs)."""
    most = logs.amax(1)
    return total((logs - most[:, None]).exp(), 1).log() + most

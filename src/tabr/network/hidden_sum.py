"""The hidden layer of T, summed over a row's neighbours.

T's last layer is linear and has no bias, so only the weighted sum of its hidden
activations is needed: sum_i w_i Dropout(ReLU(W (p - p_i) + b)). That sum is (b, h)
while the activations are (b, m, h), by far the largest tensor of a training step.
On a CPU (`hidden_sum_cpu`) they are made in chunks that stay in cache, and made again
in the backward pass; on a GPU (`hidden_sum_triton`) Triton kernels make them in
registers and keep a bit of each; elsewhere torch does it in one go.

W (p - p_i) is W p - W p_i. Where points are wide and candidates fewer than pairs, on a
CPU they are multiplied once each, and pairs only subtract (`shared_hidden_sum`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tabr.device import member_axis
from tabr.device.devices import has_triton
from tabr.network import hidden_sum_cpu


def hidden_sum(
    difference: Tensor, weights: Tensor, weight: Tensor, bias: Tensor, dropout: float
) -> Tensor:
    """Return sum_i weights_i Dropout(ReLU(weight difference_i + bias)).

    Shapes: difference (b, m, p), weights (b, m), weight (h, p), bias (h) -> (b, h).
    """
    learns = dropout > 0 or torch.is_grad_enabled()
    kernel = _kernel(difference)
    if kernel is not None and (learns or not _is_little(difference, weight)):
        arguments = difference, weights, weight, bias, dropout
        if member_axis.n_members():
            return member_axis.for_all(kernel.apply, *arguments)
        out: Tensor = kernel.apply(*arguments)
        return out
    hidden = member_axis.dropout(F.linear(difference, weight, bias).relu(), dropout)
    return (weights[:, None] @ hidden).squeeze(1)


def shares(n: int, n_pairs: int, p: int, device: torch.device) -> bool:
    """Tell whether it pays to multiply all n candidates instead of all pairs."""
    wide = p > hidden_sum_cpu.NARROW and not member_axis.n_members()
    return device.type == "cpu" and wide and 2 * n <= n_pairs


def shared_hidden_sum(
    own: Tensor, every: Tensor, index: Tensor, weights: Tensor, dropout: float
) -> Tensor:
    """Return sum_i weights_i Dropout(ReLU(own - every[index_i])), if `shares`.

    It is the same sum, its products taken before: own (b, h) of the rows, with the
    bias, and every (n, h) of all candidates, of whom index (b, m) names the neighbours.
    """
    kernel: Any = hidden_sum_cpu.Shared
    out: Tensor = kernel.apply(own, every, index, weights, dropout)
    return out


def _is_little(difference: Tensor, weight: Tensor) -> bool:
    """Tell whether a CPU's cache holds all activations, so that chunks only cost."""
    b, m, _ = difference.shape
    n_bytes = b * m * len(weight) * difference.element_size()
    return difference.device.type == "cpu" and n_bytes <= hidden_sum_cpu.CACHE_BYTES


def _kernel(difference: Tensor) -> Any:
    """Return what can serve these points better than torch in one go, or None."""
    p = difference.shape[-1]
    if difference.device.type == "cpu":
        if member_axis.n_members():
            return None
        return (
            hidden_sum_cpu.Narrow if p <= hidden_sum_cpu.NARROW else hidden_sum_cpu.Wide
        )
    if difference.dtype != torch.float32 or not has_triton(difference.device):
        return None
    from tabr.network import hidden_sum_triton

    return hidden_sum_triton.HiddenSum if p <= hidden_sum_triton.WIDEST else None

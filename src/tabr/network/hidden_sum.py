"""The hidden layer of T, summed over a row's neighbours.

T's last layer is linear and has no bias, so only the weighted sum of its hidden
activations is needed: sum_i w_i Dropout(ReLU(W (p - p_i) + b)). That sum is (b, h)
while the activations are (b, m, h), by far the largest tensor of a training step.
On a CPU compiled loops (`hidden_sum_numba`, `sparse_numba`) make them a tile at a
time, or torch (`hidden_sum_cpu`) in chunks, both of which stay in cache, and they are
made again in the backward pass; on a GPU (`hidden_sum_triton`) Triton kernels make them
in registers and keep a bit of each; elsewhere torch makes them all at once.

W (p - p_i) is W p - W p_i. Where points are wide and candidates fewer than pairs, a CPU
multiplies each candidate once, and pairs only subtract (`shared_hidden_sum`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tabr.device.compiled import has_numba
from tabr.device.devices import has_triton
from tabr.device.member_axis import n_members, with_member_axis
from tabr.device.random import dropout as drop
from tabr.network import hidden_sum_cpu, products
from tabr.network.products import inner, product, squares

_VERY_WIDE = 200  # points whose products cost far more than reading them
_MOST_PARTS = 64  # of rows, whose sums are added up
_WORTH_LOOPS = 80  # numbers of a difference, of fewer of which torch is as fast
_MOST_LEFT = 0.3  # share of them that is not zero, up to which loops are faster
_MANY_PAIRS = 2048  # pairs of which single predictions have fewer


def hidden_sum(
    difference: Tensor,
    weights: Tensor,
    weight: Tensor,
    bias: Tensor,
    dropout: float,
    *,
    steady: bool = False,
) -> Tensor:
    """Return sum_i weights_i Dropout(ReLU(weight difference_i + bias)).

    Shapes: difference (b, m, p), weights (b, m), weight (h, p), bias (h) -> (b, h).
    A weight of zero is taken for one that dropout or a rule has left nothing: it may
    get no gradient. A steady sum is that of a prediction, without dropout (`products`).
    """
    if steady:
        return products.hidden_sum(difference, weights, weight, bias)
    is_training = dropout > 0 or torch.is_grad_enabled()
    kernel = _kernel(difference)
    if kernel is not None and (is_training or not _fit_cache(difference, weight)):
        arguments = difference, weights, weight, bias, dropout
        if n_members():
            return with_member_axis(kernel.apply, *arguments)
        out: Tensor = kernel.apply(*arguments)
        return out
    hidden = drop(F.linear(difference, weight, bias).relu(), dropout)
    return (weights[:, None] @ hidden).squeeze(1)


def sharing_pays(n: int, n_pairs: int, p: int, device: torch.device) -> bool:
    """Whether n products of candidates cost less than those of all pairs."""
    wide = p > hidden_sum_cpu.NARROW and not n_members()
    # Each pair still reads h numbers: of narrower points little is saved by that.
    most = n_pairs // (2 if p >= _VERY_WIDE else 4)
    return device.type == "cpu" and wide and n <= most


def shared_hidden_sum(
    rows: Tensor, candidates: Tensor, index: Tensor, weights: Tensor, dropout: float
) -> Tensor:
    """Return sum_i weights_i Dropout(ReLU(rows - candidates[index_i])).

    It is the same sum from products that were taken before: rows (b, h), with the bias,
    and candidates (n, h), of which index (b, m) names the neighbours.
    """
    kernel = _cpu_kernels(rows.dtype).Shared
    out: Tensor = kernel.apply(rows, candidates, index, weights, dropout)
    return out


def _fit_cache(difference: Tensor, weight: Tensor) -> bool:
    """Whether a CPU's cache holds all activations, so that chunks would only cost."""
    b, m, _ = difference.shape
    n_bytes = b * m * len(weight) * difference.element_size()
    return difference.device.type == "cpu" and n_bytes <= hidden_sum_cpu.CACHE_BYTES


def squared_length(difference: Tensor, key: Tensor, gram: Tensor) -> Tensor:
    """Return |key d|^2 = d' gram d of differences d (b, m, p), (b, m)."""
    if passes_zeros(difference) and _is_sparse(difference):
        from tabr.network import sparse_numba

        kernel: Any = sparse_numba.SquaredLength
        lengths: Tensor = kernel.apply(difference, gram)
        return lengths
    if len(key) < len(gram):  # keys are narrower than points
        return squares(_product(difference, key.T))
    return inner(_product(difference, gram), difference)


def _is_sparse(difference: Tensor) -> bool:
    """Whether lengths of differences are measured faster where zeros are passed by.

    Only training and evaluation ask, in float32; single predictions are small.
    """
    b, m, p = difference.shape
    if difference.dtype != torch.float32 or p < _WORTH_LOOPS or b * m < _MANY_PAIRS:
        return False
    some = difference[:: max(1, b // 16)]
    return int(torch.count_nonzero(some)) <= _MOST_LEFT * some.numel()


def _product(x: Tensor, matrix: Tensor) -> Tensor:
    """Multiply rows x (b, m, p) with a matrix (p, q).

    The matrix's gradient is a sum over all rows. Of several members a GPU takes such
    sums one term after the other, so there the rows come in parts.
    """
    if not n_members():
        return product(x, matrix)
    n_parts = math.gcd(x.shape[0] * x.shape[1], _MOST_PARTS)
    parts = x.reshape(n_parts, -1, x.shape[2]) @ matrix.expand(n_parts, *matrix.shape)
    return parts.reshape(*x.shape[:2], matrix.shape[1])


def _kernel(difference: Tensor) -> Any:
    """Return the function that is faster than plain torch for these points, or None."""
    p = difference.shape[-1]
    if difference.device.type == "cpu":
        return None if n_members() else _cpu_kernel(difference)
    if difference.dtype != torch.float32 or not has_triton(difference.device):
        return None
    from tabr.network import hidden_sum_triton

    return hidden_sum_triton.HiddenSum if p <= hidden_sum_triton.WIDEST else None


def _cpu_kernel(difference: Tensor) -> Any:
    """Return the function that is the fastest on a CPU."""
    if passes_zeros(difference):
        from tabr.network import sparse_numba

        return sparse_numba.Sparse
    kernels = _cpu_kernels(difference.dtype)
    if kernels is not hidden_sum_cpu:
        return kernels.Dense
    narrow = difference.shape[-1] <= hidden_sum_cpu.NARROW
    return hidden_sum_cpu.Narrow if narrow else hidden_sum_cpu.Wide


def passes_zeros(difference: Tensor) -> bool:
    """Whether loops that pass the zeros of differences by serve these.

    Many numbers are mostly zeros: of categories, whose levels neighbours share. Finding
    them costs as much as multiplying few numbers.
    """
    return (
        difference.device.type == "cpu"
        and difference.shape[-1] > hidden_sum_cpu.NARROW
        and not (n_members() or difference.requires_grad)
        and _cpu_kernels(difference.dtype) is not hidden_sum_cpu
    )


def _cpu_kernels(dtype: torch.dtype) -> Any:
    """Return the module whose functions are the fastest for numbers of that type."""
    if dtype not in (torch.float32, torch.float64) or not has_numba():
        return hidden_sum_cpu
    from tabr.network import hidden_sum_numba

    return hidden_sum_numba

"""Products and sums of a network, which on a CPU give a row the same bits always.

A library's product adds up in an order that depends on how many rows come along, on
where a row stands among them and on the threads. A fitted network on a CPU computes in
float64 and without gradients, and there each sum has an order of its own
(`products_numba`). In training, on a GPU and where numba cannot be imported these are
the library's.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.device.compiled import has_numba
from tabr.device.member_axis import n_members
from tabr.device.threads import split_work

_WORTH_THREADS = 1 << 22  # multiplications


def is_steady(x: Tensor) -> bool:
    """Whether what is made of x gives a row the same bits whoever comes along."""
    return (
        x.dtype == torch.float64
        and x.device.type == "cpu"
        and not (torch.is_grad_enabled() or n_members())
        and has_numba()
    )


class Linear(nn.Linear):
    """A linear layer whose product is steady."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x (..., k) -> (..., h)."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x (..., k) times a weight (h, k), plus a bias (h,)."""
    if not is_steady(x):
        return F.linear(x, weight, bias)
    flat = x.reshape(1, -1, x.shape[-1])
    return _multiply(flat, weight.T[None], bias).view(*x.shape[:-1], len(weight))


def product(x: Tensor, matrix: Tensor) -> Tensor:
    """Return x (..., k) times a matrix (k, h)."""
    return linear(x, matrix.T) if is_steady(x) else x @ matrix


def group_products(x: Tensor, matrices: Tensor) -> Tensor:
    """Return x (..., g, k), each group times its own matrix of (g, k, h)."""
    if not is_steady(x):
        return (x[..., None, :] @ matrices).squeeze(-2)
    groups = x.reshape(-1, *x.shape[-2:]).transpose(0, 1)
    out = _multiply(groups, matrices).transpose(0, 1)
    return out.reshape(*x.shape[:-1], -1)


def inner(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner products (...) of vectors (..., p)."""
    if not is_steady(a):
        return (a * b).sum(-1)
    from tabr.network import products_numba

    a, b = torch.broadcast_tensors(a, b)
    p, out = a.shape[-1], a.new_empty(a.shape[:-1].numel())
    products_numba.inner(*_arrays(a.reshape(-1, p), b.reshape(-1, p), out))
    return out.view(a.shape[:-1])


def squares(x: Tensor) -> Tensor:
    """Return the squared lengths (...) of vectors (..., p)."""
    return inner(x, x) if is_steady(x) else x.square().sum(-1)


def pair_products(points: Tensor, vectors: Tensor) -> Tensor:
    """Return the inner products (b, m) of points (b, m, p) with vectors (b, p)."""
    if is_steady(points):
        return inner(points, vectors[:, None])
    return (points @ vectors[:, :, None]).squeeze(-1)


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Return sums (b, k) of values (b, m, k) by weights (b, m)."""
    if not is_steady(weights):
        return (weights[:, None] @ values).squeeze(1)
    from tabr.network import products_numba

    out = weights.new_empty(len(values), values.shape[2])
    products_numba.weigh(*_arrays(weights, values, out))
    return out


def shares(similarity: Tensor, found: Tensor | None) -> Tensor:
    """Return weights (b, m) that sum to one, zero where nobody was found.

    Who is not found changes nothing: a row has the same weights in a longer list.
    """
    if found is not None:
        lowest = torch.finfo(similarity.dtype).min
        similarity = similarity.masked_fill(~found, lowest)
    if not is_steady(similarity) or not similarity.numel():
        weights = similarity.softmax(-1)
        return weights if found is None else weights * found
    from tabr.network import products_numba

    if found is None:
        found = torch.ones_like(similarity, dtype=torch.bool)
    parts = (similarity - similarity.amax(-1, keepdim=True)).exp()
    out = torch.empty_like(parts)
    products_numba.share(*_arrays(parts, found, out))
    return out


def total(x: Tensor, axis: int) -> Tensor:
    """Return the sum over an axis, one after the other."""
    return reduce(torch.add, x.unbind(axis))


def hidden_sum(
    difference: Tensor, weights: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Return sum_i weights_i ReLU(weight difference_i + bias), (b, h).

    Shapes: difference (b, m, p), weights (b, m), weight (h, p), bias (h,), of one type.
    """
    from tabr.network import products_numba

    (b, m, p), h = difference.shape, len(weight)
    out = difference.new_empty(b, h)
    arrays = _arrays(difference, weights, weight.T, bias, out)
    _split(products_numba.weigh_hidden, arrays, b, m * p * h)
    return out


def triangle(gram: Tensor) -> Tensor:
    """Return a symmetric matrix (p, p) as a triangle of the same quadratic form."""
    return gram.triu() + gram.triu(1)


def lengths(x: Tensor, points: Tensor, positions: Tensor, gram: Tensor) -> Tensor:
    """Return d' gram d (b, k) of differences of x (b, p) and points (n, p).

    Positions (b, k) say whose; the gram (p, p) is a `triangle`.
    """
    from tabr.network import products_numba

    (b, k), p = positions.shape, x.shape[1]
    out = x.new_empty(b, k)
    arrays = _arrays(x, points, positions, gram, out)
    _split(products_numba.measure, arrays, b, k * p * p // 2)
    return out


def lay_out(network: nn.Module) -> None:
    """Keep weights as products read them, so that no product has to turn them."""
    for parameter in network.parameters():
        parameter.requires_grad_(False)
        if parameter.ndim == 2:
            parameter.data = turned(parameter.data)


def turned(weight: Tensor) -> Tensor:
    """Return a weight (h, k) that lies in memory input by input."""
    return weight.T.contiguous().T


def _multiply(x: Tensor, matrices: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return bias + x w of groups x (g, n, k), w (g, k, h), (g, n, h)."""
    from tabr.network import products_numba

    (g, n, k), h = x.shape, matrices.shape[2]
    out = x.new_empty(g, n, h)
    bias = x.new_zeros(h) if bias is None else bias
    _split(products_numba.multiply, _arrays(x, matrices, bias, out), n, g * k * h)
    return out


def _split(loop: Any, arrays: list[Any], n: int, size: int) -> None:
    """Run a loop over n rows, in threads if so many products of each are worth it."""
    if n * size < _WORTH_THREADS:
        loop(*arrays, 0, n)
    else:
        split_work(lambda rows: loop(*arrays, rows.start, rows.stop), n)


def _arrays(*tensors: Tensor) -> list[Any]:
    return [x.contiguous().numpy() for x in map(_plain, tensors)]


def _plain(x: Tensor) -> Tensor:
    return x.detach() if x.requires_grad else x

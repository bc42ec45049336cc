"""What each neighbour did to a prediction: the same prediction without it.

A neighbour is masked, not replaced by the next best: weights of the others are scaled
up, and everything behind them is computed again. That is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tabr.candidates.point_index import PointIndex
from tabr.network.rows import Rows, take
from tabr.network.tabr import Context, NumberLabel, TabR
from tabr.search import Neighbors

_MOST_NUMBERS = 1 << 22  # of points that are copied for one chunk of rows


class Effects(NamedTuple):
    """Predictions of b rows with something left out.

    Attributes:
        without: (b, m, outputs), each neighbour.
        alone: (b, outputs), all neighbours.
        correction: (b, m), what T adds to each neighbour's label, in units of labels;
            None where labels are no numbers or there is no T.
    """

    without: Tensor
    alone: Tensor
    correction: Tensor | None


@torch.no_grad()
def leave_out(
    index: PointIndex, labels: Tensor, rows: Rows, neighbors: Neighbors
) -> Effects:
    """Predict for rows without each of their neighbours, and without all of them."""
    network, dtype = index.network, index.metric.key.dtype
    m, p = neighbors.position.shape[1], index.points.shape[1]
    size = max(1, _MOST_NUMBERS // max(1, (m + 1) * m * p))
    parts = []
    for start in range(0, rows.n_rows, size):
        chosen = slice(start, start + size)
        part = rows.take(chosen).to(labels.device).in_precision(dtype)
        position, found = neighbors.position[chosen], neighbors.found[chosen]
        points = take(index.points, position).to(dtype)
        near = labels[position]
        near = near.to(dtype) if near.is_floating_point() else near
        masks = _masks(found)  # (b, m + 1, m)
        b = len(position)
        many = torch.arange(b, device=labels.device).repeat_interleave(m + 1)
        context = Context(points[many], near[many], masks.flatten(0, 1))
        output = network(part.take(many), context, index.metric).prediction
        output = output.view(b, m + 1, -1)
        correction = _correction(network, part, points, index)
        parts.append((output[:, :m], output[:, m], correction))
    without, alone, corrections = zip(*parts, strict=True)
    there = [part for part in corrections if part is not None]
    return Effects(
        torch.cat(without), torch.cat(alone), torch.cat(there) if there else None
    )


def _masks(found: Tensor) -> Tensor:
    """Return who is left (b, m + 1, m): all but one, for each; at last nobody."""
    m = found.shape[1]
    others = ~torch.eye(m, dtype=torch.bool, device=found.device)
    nobody = torch.zeros_like(found)[:, None]
    return torch.cat([found[:, None] & others, nobody], 1)


def _correction(
    network: TabR, rows: Rows, points: Tensor, index: PointIndex
) -> Tensor | None:
    """Project T of each neighbour on the direction of labels: (b, m).

    W_Y maps labels to a line; what T adds along it is added to the label.
    """
    label, difference = network.label_value, network.difference_value
    if not isinstance(label, NumberLabel) or difference is None:
        return None
    hidden = index.metric.hidden
    assert hidden is not None
    b, m, p = points.shape
    own = network.points(rows)[:, None] - points
    ones = points.new_ones(b * m, 1)
    values = difference(own.reshape(b * m, 1, p), hidden, ones)  # one at a time
    direction = label.weight[:, 0]
    along: Tensor = values @ direction / direction.square().sum()
    return along.view(b, m)

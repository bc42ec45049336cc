"""What each neighbour did to a prediction: the same prediction without it.

A neighbour is masked, not replaced by the next best: weights of the others are scaled
up, and everything behind them is computed again. That is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tabr.candidates.point_index import PointIndex
from tabr.network.labels import NumberLabel
from tabr.network.products import product
from tabr.network.rows import Rows
from tabr.network.tabr import Context
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
    index: PointIndex, rows: Rows, near: Neighbors, similarity: Tensor | None = None
) -> Effects:
    """Return predictions for rows without each of their neighbours, and without all.

    Similarities (b, m) that were measured before need not be measured again.
    """
    network, device = index.network, index.labels.device
    m, p = near.position.shape[1], index.points.shape[1]
    size = max(1, _MOST_NUMBERS // max(1, (m + 1) * m * p))
    chunks = []
    for start in range(0, rows.n_rows, size):
        chosen = slice(start, start + size)
        part = rows.take(chosen).to(device).in_precision(index.metric.key.dtype)
        whole = index.context(Neighbors(*(t[chosen] for t in near)), complete=False)
        b = part.n_rows
        repeated = torch.arange(b, device=device).repeat_interleave(m + 1)
        masks = _masks(near.found[chosen]).flatten(0, 1)  # (b * (m + 1), m)
        context = Context(whole.points[repeated], whole.labels[repeated], masks)
        if similarity is not None:
            context = context._replace(similarity=similarity[chosen][repeated])
        output = network(part.take(repeated), context, index.metric).prediction
        output = output.view(b, m + 1, -1)
        correction = _correction(index, part, whole.points)
        chunks.append((output[:, :m], output[:, m], correction))
    without, alone, corrections = zip(*chunks, strict=True)
    numbers = [part for part in corrections if part is not None]
    return Effects(
        torch.cat(without), torch.cat(alone), torch.cat(numbers) if numbers else None
    )


def _masks(found: Tensor) -> Tensor:
    """Return who is left (b, m + 1, m): all but one, for each; at last nobody."""
    m = found.shape[1]
    others = ~torch.eye(m, dtype=torch.bool, device=found.device)
    nobody = torch.zeros_like(found)[:, None]
    return torch.cat([found[:, None] & others, nobody], 1)


def _correction(index: PointIndex, rows: Rows, points: Tensor) -> Tensor | None:
    """Return T of each neighbour, projected on the direction of labels: (b, m).

    W_Y maps labels to a line; what T adds along it is added to the label.
    """
    network = index.network
    label, difference = network.label_value, network.difference_value
    if not isinstance(label, NumberLabel) or difference is None:
        return None
    hidden = index.metric.hidden
    assert hidden is not None
    b, m, p = points.shape
    differences = network.points(rows)[:, None] - points
    ones = points.new_ones(b * m, 1)
    values = difference(differences.reshape(b * m, 1, p), hidden, ones)  # one at a time
    direction = label.weight[:, 0]
    along = product(values, direction[:, None]) / direction.square().sum()
    return along.view(b, m)

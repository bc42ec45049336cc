"""TabR: the encoder E, the retrieval module R and the predictor P.

The network never sees "the candidates". It maps rows to *points*, by which they are
remembered, and rows with given neighbours to predictions. Who was searched, among
whom and when is the caller's business.

All that R reads of a neighbour is linear in its point, which is what makes it fast:

* the point of a row is its input vector u when the encoder is one linear layer, and
  its normalised representation otherwise;
* its key is `metric @ point` plus a bias, so similarities and T read differences of
  points (differences forget biases);
* weighted sums over neighbours are taken before the linear maps that follow them:
  labels, rows and the last layer of T.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.config import NetworkConfig, Task
from tabr.device.member_axis import n_members
from tabr.device.random import Dropout
from tabr.network.embeddings import (
    InputVector,
    embedding_width,
    input_width,
    is_fixed,
    make_embedding,
)
from tabr.network.hidden_sum import hidden_sum, shared_hidden_sum
from tabr.network.labels import make_label_value
from tabr.network.rows import Rows, take
from tabr.tables.shape import DataShape

# A linear encoder's input vectors serve as points up to this multiple of the width;
# beyond it the products with them cost more than encoding the neighbours again.
_WIDEST_POINT = 3
_MOST_PARTS = 64  # of rows, whose sums are added up
_SCALE_SPEED = 96.0  # Adam moves each parameter alike, and so the scales by more


def points_are_inputs(config: NetworkConfig, shape: DataShape) -> bool:
    """Whether rows are remembered by their input vectors."""
    embedding = config.embedding
    # NOTE: those of the paper's own embeddings are wide, and its points are encoded.
    published = embedding is not None and embedding.kind in ("lr", "plr", "plr-lite")
    if config.encoder_blocks or (published and shape.n_num > 0):
        return False
    return input_width(shape, embedding) <= _WIDEST_POINT * config.width


class Context(NamedTuple):
    """The neighbours of b rows: points (b, m, p), labels (b, m), found (b, m).

    `found` may be None: all of them were. With positions (b, m) points are those
    (n, p) of all candidates, and the positions say who of them is near; only a network
    that `can_share` takes such.
    """

    points: Tensor
    labels: Tensor
    found: Tensor | None = None
    positions: Tensor | None = None


class Metric(NamedTuple):
    """What the network multiplies points with, multiplied out once.

    Attributes:
        key: (d, p), from points to keys, biases left out.
        gram: (p, p), `key.T @ key`: squared distances are its quadratic form.
        hidden: (h, p), from points to the hidden layer of T, or None.
    """

    key: Tensor
    gram: Tensor
    hidden: Tensor | None


class Output(NamedTuple):
    """Predictions (b, outputs); weights and similarities (b, m) of the neighbours."""

    prediction: Tensor
    weights: Tensor
    similarity: Tensor


def _product(x: Tensor, matrix: Tensor) -> Tensor:
    """Multiply rows x (b, m, p) with a matrix (p, q).

    The matrix's gradient is a sum over all rows. Of several members a GPU takes such
    sums one term after the other, so there the rows come in parts.
    """
    if not n_members():
        return x @ matrix
    n_parts = math.gcd(x.shape[0] * x.shape[1], _MOST_PARTS)
    parts = x.reshape(n_parts, -1, x.shape[2]) @ matrix.expand(n_parts, *matrix.shape)
    return parts.reshape(*x.shape[:2], matrix.shape[1])


class Block(nn.Module):
    """x + Dropout2(Linear(Dropout(ReLU(Linear(LayerNorm(x)))))).

    Shape: (..., d) -> (..., d).
    """

    def __init__(self, config: NetworkConfig, normalized: bool) -> None:
        """Leave out the LayerNorm where `normalized` is False."""
        super().__init__()
        d, hidden = config.width, config.hidden
        self.norm = nn.LayerNorm(d) if normalized else nn.Identity()
        self.first = nn.Linear(d, hidden)
        self.dropout = Dropout(config.dropout)
        self.second = nn.Linear(hidden, d)
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
        self.first = nn.Linear(config.width, config.hidden)
        self.second = nn.Linear(config.hidden, config.width, bias=False)
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
        )
        out: Tensor = self.second(hidden.to(difference.dtype))
        return out

    def shared(
        self, point: Tensor, context: Context, weight: Tensor, weights: Tensor
    ) -> Tensor:
        """Return the same for points (b, p) and neighbours by position."""
        assert context.positions is not None
        hidden = shared_hidden_sum(
            point @ weight.T + self.first.bias,
            context.points @ weight.T,
            context.positions,
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
        out = (x[:, :, None] @ self.weight).squeeze(2)
        return out + self.bias


def mean_output(outputs: Tensor, task: Task) -> Tensor:
    """Return outputs whose prediction is the mean of the heads' predictions.

    Shape: (b, k, outputs) -> (b, outputs). Of classes it is the mean of probabilities.
    """
    if task == "regression":
        return outputs.mean(1)
    if task == "binary":
        yes, no = F.logsigmoid(outputs), F.logsigmoid(-outputs)
        return yes.logsumexp(1) - no.logsumexp(1)
    return outputs.log_softmax(2).logsumexp(1)


class TabR(nn.Module):
    """The whole network, at any point of the paper's design space."""

    def __init__(self, config: NetworkConfig, shape: DataShape) -> None:
        """Build the modules that the config names; `forward` only runs them."""
        super().__init__()
        self.config = config
        d, r = config.width, config.retrieval
        self.input = InputVector(shape, config.embedding)
        self.linear = nn.Linear(self.input.width, d)
        self.input_scale: nn.Parameter | None = None
        if config.scale_layer:
            self.input_scale = nn.Parameter(torch.empty(self.input.width))
            nn.init.constant_(self.input_scale, 1 / _SCALE_SPEED)
        self.encoder = nn.ModuleList(
            Block(config, normalized=i > 0) for i in range(config.encoder_blocks)
        )
        self.norm = nn.LayerNorm(d) if config.encoder_blocks else nn.Identity()
        self.points_are_inputs = points_are_inputs(config, shape)
        self.points_are_fixed = self.points_are_inputs and is_fixed(
            shape, config.embedding
        )
        # A bias of keys is forgotten by differences and by <q, k> unless q is k.
        bias_matters = (r.similarity == "dot") != r.own_query
        self.to_key = nn.Linear(d, d, bias=bias_matters)
        self.to_query = nn.Linear(d, d) if r.own_query else None
        self.is_dot = r.similarity == "dot"
        self.scale = d**-0.5 if r.scaled else 1.0
        self.row_value = nn.Linear(d, d) if "row" in r.value else None
        self.label_value: nn.Module | None = None
        if "label" in r.value:
            self.label_value = make_label_value(shape, d)
        self.difference_value = Difference(config) if "difference" in r.value else None
        self.unknown_label: nn.Parameter | None = None
        if r.self_in_context and "label" in r.value:
            self.unknown_label = nn.Parameter(torch.empty(d).uniform_(-1.0, 1.0))
        self.row_embedding: nn.Sequential | None = None
        if config.row_embedding is not None and shape.n_num > 0:
            width = shape.n_num * embedding_width(config.row_embedding)
            self.row_embedding = nn.Sequential(
                make_embedding(shape.n_num, config.row_embedding),
                nn.Linear(width, d, bias=False),
            )
        self.context_dropout = Dropout(config.context_dropout)
        self.predictor = nn.Sequential(
            *(Block(config, normalized=True) for _ in range(config.predictor_blocks))
        )
        self.task = shape.task
        self.heads: Heads | None = None
        last: nn.Module = nn.Linear(d, shape.n_outputs)
        if config.n_heads > 1:
            self.heads = Heads(config.n_heads, d, shape.n_outputs)
            last = nn.Identity()
        self.head = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), last)

    @property
    def can_share(self) -> bool:
        """Whether keys and T are all that is read of neighbours' points."""
        r = self.config.retrieval
        plain = not (r.self_in_context or r.own_query or self.is_dot)
        return plain and self.row_value is None

    # --- rows -> points -------------------------------------------------------

    def _input_weight(self) -> Tensor:
        """Return the first layer's weight (d, d_in), inputs scaled."""
        if self.input_scale is None:
            return self.linear.weight
        return self.linear.weight * (_SCALE_SPEED * self.input_scale)

    def _encode(self, u: Tensor) -> Tensor:
        """Input vectors (..., d_in) -> x~ (..., d)."""
        x = F.linear(u, self._input_weight(), self.linear.bias)
        for block in self.encoder:
            x = block(x)
        return x

    def points(self, rows: Rows) -> Tensor:
        """Return what rows (...) are remembered by, (..., p)."""
        u: Tensor = self.input(rows)
        if self.points_are_inputs:
            return u
        out: Tensor = self.norm(self._encode(u))
        return out

    def _represent(self, points: Tensor) -> Tensor:
        """Points -> what W_K, W_Q and W_V read, (..., d)."""
        if not self.points_are_inputs:
            return points
        return F.linear(points, self._input_weight(), self.linear.bias)

    def metric(self) -> Metric:
        """Multiply out what reads points; it holds until the parameters change."""
        key = self.to_key.weight
        if self.points_are_inputs:
            key = key @ self._input_weight()
        hidden = None
        if self.difference_value is not None:
            hidden = self.difference_value.first.weight @ key
        return Metric(key, key.T @ key, hidden)

    def _query(self, points: Tensor) -> Tensor:
        """Points (b, p) -> queries (b, d)."""
        to_query = self.to_key if self.to_query is None else self.to_query
        out: Tensor = to_query(self._represent(points))
        return out

    # --- points -> who is near: queries and candidates as one inner product ---

    def offsets(self, vectors: Tensor, metric: Metric) -> Tensor | None:
        """Return the term of a candidate's score that no query changes, (n,).

        A candidate's score for a query is <query, vector> + offset, larger is closer;
        vectors (n, p) are points minus their common centre, which keeps rounding
        errors small and changes no order.
        """
        if self.is_dot:
            return None
        return -((vectors @ metric.gram) * vectors).sum(-1)

    def queries(self, points: Tensor, center: Tensor, metric: Metric) -> Tensor:
        """Return vectors (b, p) whose products with candidates rank them."""
        if self.is_dot:
            return self._query(points) @ metric.key
        if self.to_query is None:
            return 2 * (points - center) @ metric.gram
        central_key: Tensor = self.to_key(self._represent(center))
        return 2 * (self._query(points) - central_key) @ metric.key

    # --- row + neighbours -> prediction ---------------------------------------

    def _similarity(
        self, point: Tensor, points: Tensor, difference: Tensor, metric: Metric
    ) -> Tensor:
        """Point (b, p), neighbours' points and differences (b, m, p) -> (b, m)."""
        if self.is_dot:  # without <q, bias of keys>, which softmax forgets
            return (points @ (self._query(point) @ metric.key)[:, :, None]).squeeze(-1)
        if self.to_query is not None:
            key: Tensor = self.to_key(self._represent(points))
            return -(self._query(point)[:, None] - key).square().sum(-1)
        if len(metric.key) < len(metric.gram):  # keys are narrower than points
            return -_product(difference, metric.key.T).square().sum(-1)
        return -(_product(difference, metric.gram) * difference).sum(-1)

    def forward(
        self, rows: Rows, context: Context, metric: Metric | None = None
    ) -> Output:
        """Predict for b rows from their neighbours.

        A row without any neighbour is predicted from itself alone. The network's
        present `metric()` may be given by a caller who has it already.
        """
        metric = self.metric() if metric is None else metric
        u: Tensor = self.input(rows)
        x = self._encode(u)
        point = u if self.points_are_inputs else self.norm(x)
        if self.row_embedding is not None:
            x = x + self.row_embedding(rows.num)
        points, found = context.points, context.found
        first = 0  # place of the neighbours
        if context.positions is not None and len(metric.key) <= len(metric.gram):
            keys = take(points @ metric.key.T, context.positions)  # (b, m, d)
            similarity = -((point @ metric.key.T)[:, None] - keys).square().sum(-1)
        else:
            if context.positions is not None:
                points = take(points, context.positions)
            if self.config.retrieval.self_in_context:
                points, first = torch.cat([point[:, None], points], 1), 1
                if found is not None:
                    itself = found.new_ones(len(found), 1)
                    found = torch.cat([itself, found], 1)
            difference = point[:, None] - points  # (b, m, p)
            similarity = self._similarity(point, points, difference, metric)
        if self.scale != 1.0:
            similarity = similarity * self.scale
        if found is not None:
            lowest = torch.finfo(similarity.dtype).min
            similarity = similarity.masked_fill(~found, lowest)
        weights = similarity.softmax(-1)
        if found is not None:
            weights = weights * found
        dropped = self.context_dropout(weights)

        if self.row_value is not None:
            mean = (dropped[:, None] @ points).squeeze(1)  # (b, p)
            total = dropped.sum(-1, keepdim=True)
            if self.points_are_inputs:
                mean = mean @ self._input_weight().T + total * self.linear.bias
            x = x + mean @ self.row_value.weight.T + total * self.row_value.bias
        if self.label_value is not None:
            x = x + self.label_value(context.labels, dropped[:, first:])
        if self.unknown_label is not None:
            x = x + dropped[:, :1] * self.unknown_label
        if self.difference_value is not None and metric.hidden is not None:
            if context.positions is not None:
                x = x + self.difference_value.shared(
                    point, context, metric.hidden, dropped
                )
            else:
                x = x + self.difference_value(difference, metric.hidden, dropped)

        return Output(self._output(x), weights[:, first:], similarity[:, first:])

    def _output(self, x: Tensor) -> Tensor:
        """Return outputs (b, outputs); in training (b, heads, outputs) of many."""
        if self.heads is None:
            out: Tensor = self.head(self.predictor(x))
            return out
        out = self.heads(self.head(self.predictor(self.heads.split(x))))
        return out if self.training else mean_output(out, self.task)

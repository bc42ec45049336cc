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

from typing import NamedTuple

import torch
from torch import Tensor, nn

from tabr.config import NetworkConfig
from tabr.device.random import Dropout
from tabr.network.embeddings import (
    ColumnDropout,
    InputVector,
    embedding_width,
    input_width,
    is_fixed,
    make_embedding,
)
from tabr.network.hidden_sum import squared_length
from tabr.network.labels import make_label_value
from tabr.network.layers import Block, Difference, Heads, mean_output
from tabr.network.products import (
    Linear,
    linear,
    pair_products,
    product,
    shares,
    squares,
    weighted_sum,
)
from tabr.network.rows import Rows, take
from tabr.tables.shape import DataShape

# A linear encoder's input vectors serve as points up to this multiple of the width;
# beyond it the products with them cost more than encoding the neighbours again.
_WIDEST_POINT = 3
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
    that `can_share` takes such. Who has measured similarities (b, m) gives them.
    """

    points: Tensor
    labels: Tensor
    found: Tensor | None = None
    positions: Tensor | None = None
    similarity: Tensor | None = None


class Metric(NamedTuple):
    """What the network multiplies points with, multiplied out once.

    Attributes:
        key: (d, p), from points to keys, biases left out.
        gram: (p, p), `key.T @ key`: squared distances are its quadratic form.
        hidden: (h, p), from points to the hidden layer of T, or None.
        columns: Factors (d_in,) of the input vector, zero for what a training step does
            without; None is all ones. Neighbours are found by all columns.
    """

    key: Tensor
    gram: Tensor
    hidden: Tensor | None
    columns: Tensor | None = None

    def of_columns(self) -> Metric:
        """Return what compares input vectors by the columns that are left."""
        if self.columns is None:
            return self
        gram = self.columns[:, None] * self.gram * self.columns
        hidden = None if self.hidden is None else self.hidden * self.columns
        return Metric(self.key * self.columns, gram, hidden, self.columns)


class Output(NamedTuple):
    """Predictions (b, outputs); weights and similarities (b, m) of the neighbours."""

    prediction: Tensor
    weights: Tensor
    similarity: Tensor


class TabR(nn.Module):
    """The whole network, at any point of the paper's design space."""

    def __init__(self, config: NetworkConfig, shape: DataShape) -> None:
        """Build the modules that the config names; `forward` only runs them."""
        super().__init__()
        self.config = config
        d, r = config.width, config.retrieval
        self.input = InputVector(shape, config.embedding)
        self.column_dropout = ColumnDropout(
            shape, config.embedding, config.column_dropout
        )
        self.linear = Linear(self.input.width, d)
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
        self.to_key = Linear(d, d, bias=bias_matters)
        self.to_query = Linear(d, d) if r.own_query else None
        self.is_dot = r.similarity == "dot"
        self.scale = d**-0.5 if r.scaled else 1.0
        self.row_value = Linear(d, d) if "row" in r.value else None
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
                Linear(width, d, bias=False),
            )
        self.context_dropout = Dropout(config.context_dropout)
        self.predictor = nn.Sequential(
            *(Block(config, normalized=True) for _ in range(config.predictor_blocks))
        )
        self.task = shape.task
        self.heads: Heads | None = None
        last: nn.Module = Linear(d, shape.n_outputs)
        if config.n_heads > 1:
            self.heads = Heads(config.n_heads, d, shape.n_outputs)
            last = nn.Identity()
        self.head = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), last)

    @property
    def is_metric(self) -> bool:
        """Whether similarities are lengths of differences, by the metric's gram."""
        return not self.is_dot and self.to_query is None

    @property
    def can_share(self) -> bool:
        """Whether keys and T are all that is read of neighbours' points."""
        r = self.config.retrieval
        plain = not (r.self_in_context or r.own_query or self.is_dot)
        return plain and self.row_value is None

    # --- rows -> points -------------------------------------------------------

    def _input_weight(self, columns: Tensor | None = None) -> Tensor:
        """Return the first layer's weight (d, d_in), inputs scaled."""
        weight = self.linear.weight
        if self.input_scale is not None:
            weight = weight * (_SCALE_SPEED * self.input_scale)
        return weight if columns is None else weight * columns

    def _encode(self, u: Tensor, columns: Tensor | None) -> Tensor:
        """Input vectors (..., d_in) -> x~ (..., d)."""
        x = linear(u, self._input_weight(columns), self.linear.bias)
        for block in self.encoder:
            x = block(x)
        return x

    def points(self, rows: Rows, columns: Tensor | None = None) -> Tensor:
        """Return what rows (...) are remembered by, (..., p).

        Encoded ones follow the metric's `columns`; input vectors do in the metric.
        """
        u: Tensor = self.input(rows)
        if self.points_are_inputs:
            return u
        out: Tensor = self.norm(self._encode(u, columns))
        return out

    def _represent(self, points: Tensor, columns: Tensor | None = None) -> Tensor:
        """Points -> what W_K, W_Q and W_V read, (..., d)."""
        if not self.points_are_inputs:
            return points
        return linear(points, self._input_weight(columns), self.linear.bias)

    def _embed_row(self, num: Tensor, columns: Tensor | None) -> Tensor:
        """Numbers (b, n_num) of rows -> what the predictor gets besides, (b, d)."""
        assert self.row_embedding is not None
        embedding, linear = self.row_embedding
        embedded = embedding(num)
        if columns is not None:
            n_num, each = num.shape[-1], embedding_width(self.config.embedding)
            of_numbers = columns[: n_num * each : each, None]
            embedded = (embedded.unflatten(-1, (n_num, -1)) * of_numbers).flatten(-2)
        out: Tensor = linear(embedded)
        return out

    def metric(self) -> Metric:
        """Multiply out what reads points; it holds until the parameters change.

        In training it also draws the columns that a step does without.
        """
        key = self.to_key.weight
        if self.points_are_inputs:
            key = product(key, self._input_weight())
        hidden = None
        if self.difference_value is not None:
            hidden = product(self.difference_value.first.weight, key)
        columns = self.column_dropout(self.linear.weight)
        return Metric(key, product(key.T, key), hidden, columns)

    def _query(self, points: Tensor, columns: Tensor | None = None) -> Tensor:
        """Points (b, p) -> queries (b, d)."""
        to_query = self.to_key if self.to_query is None else self.to_query
        out: Tensor = to_query(self._represent(points, columns))
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

    def similarity(self, point: Tensor, points: Tensor, metric: Metric) -> Tensor:
        """Return similarities (b, m) of points (b, p) and others (b, m, p)."""
        difference = point[:, None] - points
        return self._scaled(self._similarity(point, points, difference, metric))

    def _scaled(self, similarity: Tensor) -> Tensor:
        return similarity if self.scale == 1.0 else similarity * self.scale

    def _similarity(
        self, point: Tensor, points: Tensor, difference: Tensor, metric: Metric
    ) -> Tensor:
        """Point (b, p), neighbours' points and differences (b, m, p) -> (b, m)."""
        columns = metric.columns
        if self.is_dot:  # without <q, bias of keys>, which softmax forgets
            query = self._query(point, columns)
            return pair_products(points, product(query, metric.key))
        if self.to_query is not None:
            key: Tensor = self.to_key(self._represent(points, columns))
            return -squares(self._query(point, columns)[:, None] - key)
        return -squared_length(difference, metric.key, metric.gram)

    def _mean_value(
        self,
        value: Linear,
        points: Tensor,
        weights: Tensor,
        columns: Tensor | None,
    ) -> Tensor:
        """Points (b, m, p), weights (b, m) -> sums of W_V's rows, (b, d)."""
        mean = weighted_sum(weights, points)  # (b, p)
        total = weighted_sum(weights, torch.ones_like(weights)[:, :, None])
        if self.points_are_inputs:
            weight = self._input_weight(columns)
            mean = linear(mean, weight) + total * self.linear.bias
        return linear(mean, value.weight) + total * value.bias

    def forward(
        self, rows: Rows, context: Context, metric: Metric | None = None
    ) -> Output:
        """Predict for b rows from their neighbours.

        A row without any neighbour is predicted from itself alone. The network's
        present `metric()` may be given by a caller who has it already.
        """
        metric = self.metric() if metric is None else metric
        columns = metric.columns
        if self.points_are_inputs:
            metric = metric.of_columns()
        u: Tensor = self.input(rows)
        x = self._encode(u, columns)
        point = u if self.points_are_inputs else self.norm(x)
        if self.row_embedding is not None:
            x = x + self._embed_row(rows.num, columns)
        points, found = context.points, context.found
        first = 0  # place of the neighbours
        if context.positions is not None and len(metric.key) <= len(metric.gram):
            keys = take(points @ metric.key.T, context.positions)  # (b, m, d)
            away = (point @ metric.key.T)[:, None] - keys
            similarity = self._scaled(-away.square().sum(-1))
        else:
            if context.positions is not None:
                points = take(points, context.positions)
            if self.config.retrieval.self_in_context:
                points, first = torch.cat([point[:, None], points], 1), 1
                if found is not None:
                    itself = found.new_ones(len(found), 1)
                    found = torch.cat([itself, found], 1)
            difference = point[:, None] - points  # (b, m, p)
            if context.similarity is None or first:
                similarity = self._similarity(point, points, difference, metric)
                similarity = self._scaled(similarity)
            else:
                similarity = context.similarity
        weights = shares(similarity, found)
        dropped = self.context_dropout(weights)

        if self.row_value is not None:
            x = x + self._mean_value(self.row_value, points, dropped, columns)
        if self.label_value is not None:
            x = x + self.label_value(context.labels, dropped[:, first:])
        if self.unknown_label is not None:
            x = x + dropped[:, :1] * self.unknown_label
        if self.difference_value is not None and metric.hidden is not None:
            if context.positions is not None:
                x = x + self.difference_value.shared(
                    point, context.points, context.positions, metric.hidden, dropped
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

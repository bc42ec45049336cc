"""The paper's equations, transcribed slowly, against the network's fast form.

Everything here works on one row, one neighbour and one feature at a time, in float64,
straight from the paper: keys of all candidates, all similarities, the m best, values.
"""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
import torch
from torch import Tensor

from tabr.candidates.point_index import PointIndex
from tabr.config import STEPS, EmbeddingConfig, NetworkConfig, RetrievalConfig
from tabr.network.rows import Rows
from tabr.network.tabr import Context, TabR
from tabr.tables.shape import DataShape

M = 5
CARDINALITIES = (3, 2)
TASKS = {"regression": 0, "binary": 2, "classes": 4}


def single(number: float) -> float:
    """Return a constant of the network as it is kept, in single precision."""
    return float(np.float32(number))


class Slow:
    """TabR as the paper writes it, with the weights of a network."""

    def __init__(self, network: TabR) -> None:
        self.p = dict(network.named_parameters())
        self.config, self.task = network.config, network.task
        self.d = network.config.width

    def linear(self, name: str, x: Tensor) -> Tensor:
        bias = self.p.get(f"{name}.bias", torch.zeros((), dtype=x.dtype))
        return self.p[f"{name}.weight"] @ x + bias

    def norm(self, name: str, x: Tensor) -> Tensor:
        x = (x - x.mean()) / torch.sqrt(((x - x.mean()) ** 2).mean() + 1e-5)
        return x * self.p[f"{name}.weight"] + self.p[f"{name}.bias"]

    def block(self, name: str, x: Tensor, normalized: bool) -> Tensor:
        z = self.norm(f"{name}.norm", x) if normalized else x
        hidden = torch.clamp(self.linear(f"{name}.first", z), min=0)
        return x + self.linear(f"{name}.second", hidden)

    def embed(self, i: int, x: Tensor, e: EmbeddingConfig | None, place: str) -> Tensor:
        if e is None:
            return x[None]
        if e.kind == "bins":
            return self.bins(x, e.width)
        if e.kind == "pbld-fixed":
            return self.fixed_periodic(i, x, e)
        if e.kind == "pbld":
            names = ("frequencies", "phases", "weight", "bias")
            w1, b1, w2, b2 = (self.p[f"{place}.{n}"][i] for n in names)
            cosines = torch.cos(2 * math.pi * w1 * x + b1)
            return torch.cat([cosines @ w2 + b2, x[None]])
        if e.kind == "lr":
            weight, bias = (self.p[f"{place}.{n}"] for n in ("weight", "bias"))
            return torch.clamp(weight[i] * x + bias[i], min=0)
        angle = 2 * math.pi * self.p[f"{place}.periodic.frequencies"][i] * x
        periodic = torch.cat([torch.cos(angle), torch.sin(angle)])
        if e.kind == "plr-lite":
            return torch.clamp(self.linear(f"{place}.linear", periodic), min=0)
        weight, bias = (self.p[f"{place}.{n}"] for n in ("weight", "bias"))
        return torch.clamp(periodic @ weight[i] + bias[i], min=0)

    @staticmethod
    def bins(x: Tensor, n: int) -> Tensor:
        inner = [statistics.NormalDist().inv_cdf(k / n) for k in range(1, n)]
        edges = [-3.0, *map(single, inner), 3.0]
        shares = []
        for k, (low, high) in enumerate(itertools.pairwise(edges)):
            share = (x - low) / (high - low)
            share = share if k == 0 else torch.clamp(share, min=0)
            shares.append(share if k == n - 1 else torch.clamp(share, max=1))
        return torch.stack(shares)

    @staticmethod
    def fixed_periodic(i: int, x: Tensor, e: EmbeddingConfig) -> Tensor:
        k = e.n_frequencies
        cosines = []
        for j in range(k):
            quantile = statistics.NormalDist().inv_cdf(0.5 + (j + 0.5) / (2 * k))
            turn = (i * k + j) * (math.sqrt(5) - 1) / 2
            phase = 2 * math.pi * (turn - math.floor(turn)) - math.pi
            frequency = single(e.frequency_scale * quantile)
            angle = 2 * math.pi * frequency * x + single(phase)
            cosines.append(torch.cos(angle))
        return torch.stack([*cosines, x])

    def encode(self, rows: Rows, i: int) -> Tensor:
        e = self.config.embedding
        parts = [
            self.embed(j, x, e, "input.embedding") for j, x in enumerate(rows.num[i])
        ]
        parts.append(rows.bin[i])
        for code, cardinality in zip(rows.cat[i], CARDINALITIES, strict=True):
            one_hot = torch.zeros(cardinality, dtype=rows.num.dtype)
            if code >= 0:
                one_hot[code] = 1
            parts.append(one_hot)
        u = torch.cat(parts)
        if self.config.scale_layer:
            u = 96 * self.p["input_scale"] * u
        x = self.linear("linear", u)
        for k in range(self.config.encoder_blocks):
            x = self.block(f"encoder.{k}", x, normalized=k > 0)
        return x

    def normed(self, x: Tensor) -> Tensor:
        return self.norm("norm", x) if self.config.encoder_blocks else x

    def similarity(self, x: Tensor, other: Tensor) -> Tensor:
        r = self.config.retrieval
        key = self.linear("to_key", self.normed(other))
        query = self.linear("to_query" if r.own_query else "to_key", self.normed(x))
        s = -((query - key) ** 2).sum() if r.similarity == "l2" else (query * key).sum()
        return s / math.sqrt(self.d) if r.scaled else s

    def value(self, x: Tensor, other: Tensor, label: Tensor | None) -> Tensor:
        terms = self.config.retrieval.value
        value = torch.zeros(self.d, dtype=x.dtype)
        if "row" in terms:
            value = value + self.linear("row_value", self.normed(other))
        if "label" in terms:
            if label is None:
                value = value + self.p["unknown_label"]
            elif "label_value.table" in self.p:
                value = value + self.p["label_value.table"][label]
            else:
                value = value + self.linear("label_value", label[None])
        if "difference" in terms:
            keys = (self.linear("to_key", self.normed(z)) for z in (x, other))
            difference = next(keys) - next(keys)
            hidden = self.linear("difference_value.first", difference)
            hidden = torch.clamp(hidden, min=0)
            value = value + self.linear("difference_value.second", hidden)
        return value

    def predict(
        self, rows: Rows, i: int, candidates: Rows, labels: Tensor, own: int | None
    ) -> Tensor:
        x = self.encode(rows, i)
        encoded = [self.encode(candidates, j) for j in range(len(labels))]
        scores = [self.similarity(x, other) for other in encoded]
        others = [j for j in range(len(labels)) if j != own]
        best = sorted(others, key=lambda j: -scores[j].item())[:M]
        context = [(scores[j], self.value(x, encoded[j], labels[j])) for j in best]
        if self.config.retrieval.self_in_context:
            context.append((self.similarity(x, x), self.value(x, x, None)))
        weights = torch.softmax(torch.stack([s for s, _ in context]), 0)
        x = x + sum(w * v for w, (_, v) in zip(weights, context, strict=True))
        e = self.config.row_embedding
        if e is not None:
            numbers = enumerate(rows.num[i])
            parts = [self.embed(j, z, e, "row_embedding.0") for j, z in numbers]
            x = x + self.linear("row_embedding.1", torch.cat(parts))
        if self.config.n_heads > 1:
            return self.mean_of_heads(x)
        for k in range(self.config.predictor_blocks):
            x = self.block(f"predictor.{k}", x, normalized=True)
        return self.linear("head.2", torch.clamp(self.norm("head.0", x), min=0))

    def mean_of_heads(self, x: Tensor) -> Tensor:
        """Return outputs whose prediction is the mean of the heads' predictions."""
        predictions = []
        for j in range(self.config.n_heads):
            z = self.p["heads.signs"][j] * x
            for k in range(self.config.predictor_blocks):
                z = self.block(f"predictor.{k}", z, normalized=True)
            z = torch.clamp(self.norm("head.0", z), min=0)
            output = z @ self.p["heads.weight"][j] + self.p["heads.bias"][j]
            if self.task == "binary":
                output = torch.sigmoid(output)
            elif self.task == "classes":
                output = torch.softmax(output, 0)
            predictions.append(output)
        mean = sum(predictions) / len(predictions)
        if self.task == "binary":
            return torch.log(mean / (1 - mean))
        return torch.log(mean) if self.task == "classes" else mean


def some_rows(n: int, generator: torch.Generator, n_num: int = 3) -> Rows:
    num = torch.randn(n, n_num, generator=generator, dtype=torch.float64)
    binary = torch.randint(2, (n, 1), generator=generator).double()
    cat = [torch.randint(-1, c, (n,), generator=generator) for c in CARDINALITIES]
    return Rows(num, binary, torch.stack(cat, 1))


def compare(config: NetworkConfig, task: str, n_num: int = 3) -> TabR:
    """Compare outputs and all gradients, in a training batch and for new rows."""
    generator = torch.Generator().manual_seed(0)
    candidates = some_rows(23, generator, n_num)
    new = some_rows(3, generator, n_num)
    n_classes = TASKS[task]
    labels = torch.randn(23, generator=generator, dtype=torch.float64)
    if n_classes:
        labels = torch.randint(n_classes, (23,), generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        network = TabR(
            config, DataShape(n_num, 1, CARDINALITIES, task, n_classes)
        ).double()
        for parameter in network.parameters():  # so that no bias is zero, no norm one
            torch.nn.init.normal_(parameter, 0.1, 0.5)
    network.eval()
    for rows, own in ((candidates.take(torch.tensor([4, 7])), [4, 7]), (new, None)):
        points = network.points(candidates)
        index = PointIndex(network, points.detach(), labels)
        exclude = None if own is None else torch.tensor(own)
        found = index.neighbors(network.points(rows), M, exclude)
        context = Context(points[found.position], labels[found.position], found.found)
        fast = network(rows, context).prediction
        slow_network = Slow(network)
        slow = torch.stack(
            [
                slow_network.predict(
                    rows, i, candidates, labels, None if own is None else own[i]
                )
                for i in range(rows.n_rows)
            ]
        )
        if task == "classes" and config.n_heads > 1:  # logits up to a common number
            fast, slow = (t - t.logsumexp(1, keepdim=True) for t in (fast, slow))
        torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)
        named = list(network.named_parameters())
        parameters = [parameter for _, parameter in named]
        grads = [
            torch.autograd.grad(output.square().sum(), parameters, allow_unused=True)
            for output in (fast, slow)
        ]
        for (name, parameter), ours, theirs in zip(named, *grads, strict=True):
            ours, theirs = (
                torch.zeros_like(parameter) if g is None else g for g in (ours, theirs)
            )
            scale = max(1.0, float(theirs.abs().max()))
            torch.testing.assert_close(
                ours / scale, theirs / scale, rtol=0, atol=1e-9, msg=name
            )
    return network


def small(**values: object) -> NetworkConfig:
    return NetworkConfig(width=7, dropout=0.0, context_dropout=0.0, **values)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("encoder_blocks", [0, 1, 2])
@pytest.mark.parametrize("step", STEPS)
def test_fast_form_equals_the_papers_equations(
    step: str, encoder_blocks: int, task: str
) -> None:
    network = compare(small(retrieval=STEPS[step], encoder_blocks=encoder_blocks), task)
    assert network.points_are_inputs == (encoder_blocks == 0)


@pytest.mark.parametrize("encoder_blocks", [0, 1])
@pytest.mark.parametrize("kind", ["lr", "plr", "plr-lite"])
def test_embeddings_equal_the_papers_equations(kind: str, encoder_blocks: int) -> None:
    embedding = EmbeddingConfig(kind, width=3, n_frequencies=2)
    compare(small(embedding=embedding, encoder_blocks=encoder_blocks), "regression")


# What is not the paper's: see docs/design.md.
LEVERS = {
    "scale": {"scale_layer": True},
    "heads": {"n_heads": 3},
    "pbld": {"embedding": EmbeddingConfig("pbld", 3, 4, 0.3)},
    "fixed": {"embedding": EmbeddingConfig("pbld-fixed", 4, 3, 0.3)},
    "bins": {"embedding": EmbeddingConfig("bins", 4)},
    "row": {"row_embedding": EmbeddingConfig("plr-lite", 3, 2)},
    "row, bins": {"row_embedding": EmbeddingConfig("bins", 4), "n_heads": 2},
    "scale, pbld, heads": {
        "scale_layer": True,
        "embedding": EmbeddingConfig("pbld", 3, 4, 0.3),
        "n_heads": 2,
    },
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("encoder_blocks", [0, 1])
@pytest.mark.parametrize("name", LEVERS)
def test_levers_equal_their_equations(
    name: str, encoder_blocks: int, task: str
) -> None:
    config = small(**LEVERS[name], encoder_blocks=encoder_blocks)
    network = compare(config, task)
    assert network.points_are_inputs == (encoder_blocks == 0)
    learned = "pbld" in name
    assert network.points_are_fixed == (encoder_blocks == 0 and not learned)


@pytest.mark.parametrize("step", ["step-0", "step-2"])
def test_a_scale_layer_serves_every_design(step: str) -> None:
    compare(small(scale_layer=True, retrieval=STEPS[step]), "regression")


@pytest.mark.parametrize("predictor_blocks", [0, 2])
def test_any_number_of_predictor_blocks_equals_the_papers_equations(
    predictor_blocks: int,
) -> None:
    compare(small(predictor_blocks=predictor_blocks), "classes")


@pytest.mark.parametrize(("n_num", "are_inputs"), [(12, True), (40, False)])
def test_wide_tables_equal_the_papers_equations(n_num: int, are_inputs: bool) -> None:
    for retrieval in (RetrievalConfig(), STEPS["step-2"]):
        network = compare(small(retrieval=retrieval), "regression", n_num)
        assert network.points_are_inputs == are_inputs


def test_default_network_has_the_published_number_of_parameters() -> None:
    # TabR-S on California: 637,856 parameters, 265 of them a bias of keys that never
    # matters and is not kept here.
    network = TabR(NetworkConfig(), DataShape(8, 0, (), "regression", 0))
    assert sum(p.numel() for p in network.parameters()) == 637_856 - 265

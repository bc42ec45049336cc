"""Values that describe a network; a variant of TabR is a value, never a copy of code.

The defaults are TabR-S of the paper, and `STEPS` is its design space.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tabr.config.checks import check, check_positive, check_rates

Similarity = Literal["l2", "dot"]
ValueTerm = Literal["row", "label", "difference"]
EmbeddingKind = Literal["lr", "plr", "plr-lite", "pbld", "pbld-fixed", "bins"]
Task = Literal["regression", "binary", "classes"]


@dataclass(frozen=True)
class RetrievalConfig:
    """One point of the paper's design space; the defaults are TabR (Step-4).

    Attributes:
        similarity: "l2" is -|q - k|^2, "dot" is <q, k>.
        scaled: Multiply similarities by width ** -0.5.
        own_query: Queries have weights of their own; otherwise they are the keys.
        value: Terms of a neighbour's value, summed: "row" is W_V(x), "label" is
            W_Y(y), "difference" is T(k - k_i).
        self_in_context: The row stands in its own context, its label unknown.
    """

    similarity: Similarity = "l2"
    scaled: bool = False
    own_query: bool = False
    value: tuple[ValueTerm, ...] = ("label", "difference")
    self_in_context: bool = False

    def __post_init__(self) -> None:
        """Refuse what the paper's equations do not define."""
        object.__setattr__(self, "value", tuple(self.value))
        check(
            self.similarity in ("l2", "dot"),
            f"similarity must be 'l2' or 'dot', however: {self.similarity!r}",
        )
        unknown = set(self.value) - {"row", "label", "difference"}
        check(
            not unknown and len(set(self.value)) == len(self.value) > 0,
            "value must name 'row', 'label' or 'difference', each at most once, "
            f"however: {self.value!r}",
        )
        check(
            not (self.own_query and "difference" in self.value),
            "value 'difference' compares keys with keys: set own_query=False",
        )


def _step(
    similarity: Similarity, value: tuple[ValueTerm, ...], own_query: bool = False
) -> RetrievalConfig:
    return RetrievalConfig(
        similarity, scaled=True, own_query=own_query, value=value, self_in_context=True
    )


# The paper's design steps and ablations, by step and by the name of their results.
STEPS: Mapping[str, RetrievalConfig] = {
    "step-0": _step("dot", ("row",), own_query=True),
    "step-1": _step("dot", ("row", "label"), own_query=True),
    "step-2": _step("l2", ("row", "label")),
    "step-3": _step("l2", ("label", "difference")),
    "step-4": RetrievalConfig(),
    "dp-k-v": _step("dot", ("row",)),
    "dp-k-yv": _step("dot", ("row", "label")),
    "l2-k-v": _step("l2", ("row",)),
    "l2-qk-v": _step("l2", ("row",), own_query=True),
    "l2-qk-yv": _step("l2", ("row", "label"), own_query=True),
}


@dataclass(frozen=True)
class EmbeddingConfig:
    """How numbers are embedded before the encoder.

    Attributes:
        kind: "lr" is linear and ReLU for each feature; "plr" is periodic, linear and
            ReLU; "plr-lite" is the same with one linear layer for all features; "pbld"
            is periodic with phases, then linear, beside the number itself;
            "pbld-fixed" leaves its frequencies and phases as they were drawn; "bins"
            is piecewise linear between the quantiles of a normal distribution.
        width: Width of one embedded number; of "pbld-fixed" it is that of the
            frequencies and the number itself.
        n_frequencies: Frequencies of a periodic embedding.
        frequency_scale: Standard deviation of the initial frequencies.
    """

    kind: EmbeddingKind = "plr-lite"
    width: int = 24
    n_frequencies: int = 48
    frequency_scale: float = 0.01

    def __post_init__(self) -> None:
        """Check the numbers."""
        check(
            self.kind in get_args(EmbeddingKind),
            f"embedding must be one of {get_args(EmbeddingKind)}, however: "
            f"{self.kind!r}",
        )
        check_positive(
            width=self.width,
            n_frequencies=self.n_frequencies,
            frequency_scale=self.frequency_scale,
        )


# Embeddings by name, where the defaults of `EmbeddingConfig` are not theirs.
EMBEDDINGS: Mapping[str, EmbeddingConfig] = {
    "pbld": EmbeddingConfig("pbld", 4, 8, 0.1),
    "pbld-fixed": EmbeddingConfig("pbld-fixed", 4, 8, 0.1),
    "bins": EmbeddingConfig("bins", 12),
}


@dataclass(frozen=True)
class NetworkConfig:
    """Shape of the network E -> R -> P; the defaults are TabR-S.

    Attributes:
        width: Width d of rows inside the network.
        encoder_blocks: N_E, residual blocks of the encoder.
        predictor_blocks: N_P, residual blocks of the predictor.
        hidden_factor: Hidden width of blocks and of T, as a multiple of `width`.
        dropout: Dropout inside blocks and T.
        block_dropout: Second dropout, at the end of a block.
        context_dropout: Dropout of the weights of neighbours.
        column_dropout: Rate at which a training step does without a column of the
            table, for all of its rows and their neighbours alike.
        embedding: How numbers are embedded; None leaves them as they are.
        retrieval: The point of the design space.
        scale_layer: Multiply each input by a number that is learned fast.
        n_heads: Predictors over one retrieval, which differ by learned signs and by
            their last layers; their predictions are averaged.
        row_embedding: How the numbers of the row itself are embedded for the
            predictor, beside x~; neighbours are compared without it. None adds nothing.
    """

    width: int = 265
    encoder_blocks: int = 0
    predictor_blocks: int = 1
    hidden_factor: float = 2.0
    dropout: float = 0.38852797479169876
    block_dropout: float = 0.0
    context_dropout: float = 0.38920071545944357
    column_dropout: float = 0.0
    embedding: EmbeddingConfig | None = None
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    scale_layer: bool = False
    n_heads: int = 1
    row_embedding: EmbeddingConfig | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_positive(width=self.width, hidden_factor=self.hidden_factor)
        check_positive(n_heads=self.n_heads)
        for name in ("encoder_blocks", "predictor_blocks"):
            count = getattr(self, name)
            check(count >= 0, f"`{name} >= 0` must hold, however: {name}={count!r}")
        check_rates(
            dropout=self.dropout,
            block_dropout=self.block_dropout,
            context_dropout=self.context_dropout,
            column_dropout=self.column_dropout,
        )

    @property
    def hidden(self) -> int:
        """Hidden width of blocks and of T."""
        return int(self.width * self.hidden_factor)


def network_config(values: Mapping[str, Any]) -> NetworkConfig:
    """Build a network config from `dataclasses.asdict` of one, as a file stores it."""
    nested = dict(values)
    nested["retrieval"] = RetrievalConfig(**nested["retrieval"])
    for name in ("embedding", "row_embedding"):
        if nested.get(name) is not None:  # older files lack the second
            nested[name] = EmbeddingConfig(**nested[name])
    return NetworkConfig(**nested)

"""Values that describe a model and its training: frozen, typed, without "auto".

A variant of TabR is a value of these classes, never a copy of code. The presets of
the paper are the defaults (TabR-S) and the table `STEPS` (its design space).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tabr.errors import ParameterError

Similarity = Literal["l2", "dot"]
ValueTerm = Literal["row", "label", "difference"]
EmbeddingKind = Literal["lr", "plr", "plr-lite"]
Mode = Literal["fixed", "paper"]
Task = Literal["regression", "binary", "classes"]


def _check(rule: bool, message: str) -> None:
    if not rule:
        raise ParameterError(message)


def _positive(**numbers: float) -> None:
    for name, number in numbers.items():
        _check(number > 0, f"`{name} > 0` must hold, however: {name}={number!r}")


def _rate(**rates: float) -> None:
    for name, rate in rates.items():
        _check(0 <= rate < 1, f"`0 <= {name} < 1` must hold, however: {name}={rate!r}")


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
        _check(
            self.similarity in ("l2", "dot"),
            f"similarity must be 'l2' or 'dot', however: {self.similarity!r}",
        )
        unknown = set(self.value) - {"row", "label", "difference"}
        _check(
            not unknown and len(set(self.value)) == len(self.value) > 0,
            "value must name 'row', 'label' or 'difference', each at most once, "
            f"however: {self.value!r}",
        )
        _check(
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
            ReLU; "plr-lite" is the same with one linear layer for all features.
        width: Width of one embedded number.
        n_frequencies: Frequencies of a periodic embedding.
        frequency_scale: Standard deviation of the initial frequencies.
    """

    kind: EmbeddingKind = "plr-lite"
    width: int = 24
    n_frequencies: int = 48
    frequency_scale: float = 0.01

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check(
            self.kind in ("lr", "plr", "plr-lite"),
            f"embedding must be 'lr', 'plr' or 'plr-lite', however: {self.kind!r}",
        )
        _positive(
            width=self.width,
            n_frequencies=self.n_frequencies,
            frequency_scale=self.frequency_scale,
        )


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
        embedding: How numbers are embedded; None leaves them as they are.
        retrieval: The point of the design space.
    """

    width: int = 265
    encoder_blocks: int = 0
    predictor_blocks: int = 1
    hidden_factor: float = 2.0
    dropout: float = 0.38852797479169876
    block_dropout: float = 0.0
    context_dropout: float = 0.38920071545944357
    embedding: EmbeddingConfig | None = None
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)

    def __post_init__(self) -> None:
        """Check the numbers."""
        _positive(width=self.width, hidden_factor=self.hidden_factor)
        for name in ("encoder_blocks", "predictor_blocks"):
            count = getattr(self, name)
            _check(count >= 0, f"`{name} >= 0` must hold, however: {name}={count!r}")
        _rate(
            dropout=self.dropout,
            block_dropout=self.block_dropout,
            context_dropout=self.context_dropout,
        )

    @property
    def hidden(self) -> int:
        """Hidden width of blocks and of T."""
        return int(self.width * self.hidden_factor)


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained; the defaults are the paper's.

    Attributes:
        learning_rate: Step size of AdamW; there is no schedule.
        weight_decay: Decay of AdamW.
        batch_size: Rows of a step.
        max_epochs: Stop after this many epochs; None leaves it to `patience`.
        patience: Stop after more than this many epochs without a better score.
        freeze_after: Freeze each row's context after this many epochs; None never.
        record_context: Record how much contexts change from epoch to epoch.
        time_limit: Seconds after which no new epoch is begun; None sets no limit.
        mode: "paper" decays every parameter, as the published runs did; "fixed"
            spares biases, normalisations and label embeddings.
    """

    learning_rate: float = 0.0003121273641315169
    weight_decay: float = 1.2260352006404615e-06
    batch_size: int = 256
    max_epochs: int | None = None
    patience: int = 16
    freeze_after: int | None = None
    record_context: bool = False
    time_limit: float | None = None
    mode: Mode = "fixed"

    def __post_init__(self) -> None:
        """Check the numbers."""
        _positive(learning_rate=self.learning_rate, batch_size=self.batch_size)
        for name in ("weight_decay", "patience", "max_epochs", "freeze_after"):
            number = getattr(self, name)
            _check(
                number is None or number >= 0,
                f"`{name} >= 0` must hold, however: {name}={number!r}",
            )
        _check(
            self.max_epochs is None or self.max_epochs > 0,
            f"`max_epochs > 0` must hold, however: max_epochs={self.max_epochs!r}",
        )
        _check(
            self.time_limit is None or self.time_limit > 0,
            f"`time_limit > 0` must hold, however: time_limit={self.time_limit!r}",
        )
        _check(
            self.mode in ("fixed", "paper"),
            f"mode must be 'fixed' or 'paper', however: {self.mode!r}",
        )


@dataclass(frozen=True)
class Recipe:
    """All that makes a member, beside its data and its seed.

    Attributes:
        network: Shape of the network.
        training: How it is trained.
        context_size: Neighbours of a row.
    """

    network: NetworkConfig
    training: TrainingConfig
    context_size: int = 96

    def __post_init__(self) -> None:
        """Check the number."""
        _check(
            self.context_size >= 1,
            f"`context_size >= 1` must hold, however: "
            f"context_size={self.context_size!r}",
        )


def batch_size_for(n_rows: int) -> int:
    """Return the batch size that the paper's runs used at this number of rows."""
    if n_rows < 30_000:
        return 256
    return 512 if n_rows < 200_000 else 1024


def network_config(values: Mapping[str, Any]) -> NetworkConfig:
    """Build a network config from `dataclasses.asdict` of one, as a file stores it."""
    nested = dict(values)
    nested["retrieval"] = RetrievalConfig(**nested["retrieval"])
    if nested["embedding"] is not None:
        nested["embedding"] = EmbeddingConfig(**nested["embedding"])
    return NetworkConfig(**nested)

"""Values that describe a model and its training: frozen, typed, without "auto".

A variant of TabR is a value of these classes, never a copy of code. The presets of
the paper are the defaults (TabR-S) and the table `STEPS` (its design space).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from tabr.errors import ParameterError

T = TypeVar("T")
Similarity = Literal["l2", "dot"]
ValueTerm = Literal["row", "label", "difference"]
EmbeddingKind = Literal["lr", "plr", "plr-lite", "pbld", "pbld-fixed", "bins"]
Schedule = Literal["constant", "flat-cosine", "drop"]
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
        _check(
            self.kind in get_args(EmbeddingKind),
            f"embedding must be one of {get_args(EmbeddingKind)}, however: "
            f"{self.kind!r}",
        )
        _positive(
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
    embedding: EmbeddingConfig | None = None
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    scale_layer: bool = False
    n_heads: int = 1
    row_embedding: EmbeddingConfig | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        _positive(width=self.width, hidden_factor=self.hidden_factor)
        _positive(n_heads=self.n_heads)
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
        learning_rate: Step size of AdamW, at first.
        weight_decay: Decay of AdamW.
        batch_size: Rows of a step.
        max_epochs: Stop after this many epochs; None leaves it to `patience`.
        patience: Stop after more than this many epochs without a better score.
        freeze_after: Freeze each row's context after this many epochs; None never.
        record_context: Record how much contexts change from epoch to epoch.
        time_limit: Seconds after which no new epoch is begun; None sets no limit.
        mode: "paper" decays every parameter, as the published runs did; "fixed"
            spares biases, normalisations and label embeddings.
        betas: Adam's coefficients of running means.
        label_smoothing: Share of a class's label that is spread over all classes.
        schedule: "constant"; "flat-cosine": constant for half of `max_epochs`, then a
            cosine to zero; "drop": after `patience` epochs without a better score, the
            best weights are taken up again with a tenth of the step size, once.
        gradient_clip: Largest norm of a step's gradient; None sets no limit.
        candidate_share: Share of the candidates, drawn anew for each step, among whom
            its rows find their neighbours; predictions look at all.
        weight_average: Epochs that a running mean of the weights reaches back; it is
            what is scored and kept. None keeps the weights themselves.
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
    betas: tuple[float, float] = (0.9, 0.999)
    label_smoothing: float = 0.0
    schedule: Schedule = "constant"
    gradient_clip: float | None = None
    candidate_share: float = 1.0
    weight_average: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        _positive(learning_rate=self.learning_rate, batch_size=self.batch_size)
        _rate(
            beta1=self.betas[0],
            beta2=self.betas[1],
            label_smoothing=self.label_smoothing,
        )
        _check(
            0 < self.candidate_share <= 1,
            "`0 < candidate_share <= 1` must hold, however: "
            f"candidate_share={self.candidate_share!r}",
        )
        for name in ("gradient_clip", "weight_average"):
            limit = getattr(self, name)
            _check(
                limit is None or limit > 0,
                f"`{name} > 0` must hold, however: {name}={limit!r}",
            )
        _check(
            self.schedule != "flat-cosine" or self.max_epochs is not None,
            "schedule 'flat-cosine' ends at max_epochs: set max_epochs",
        )
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
        name: What it is called beside others.
    """

    network: NetworkConfig
    training: TrainingConfig
    context_size: int = 96
    name: str = "default"

    def __post_init__(self) -> None:
        """Check the number."""
        _check(
            self.context_size >= 1,
            f"`context_size >= 1` must hold, however: "
            f"context_size={self.context_size!r}",
        )


# Parameters of the estimators, by preset; a parameter that is given overrides it.
# "paper" is TabR-S as published. "default" has, beside it, numbers scaled both ways, a
# scale layer, an embedding of the row's own numbers, larger steps, a shorter memory of
# Adam's, the mean of the weights, and for classes an early stop by log loss: what costs
# next to nothing and helps most. "best" is a pack: several members of each of several
# recipes, which err differently.
#
# What is no parameter of the estimators:
# recipes: what each recipe changes, by its name.
# member_counts: members of each recipe, and the number of rows from which on.
# held_out: share of rows to stop early by, and the number of rows from which on.
# cross_fits: without an eval_set, several members hold out different rows.
# joins_held_out: rows of the table that were held out become candidates in the end.
# blends: members are weighted, and classes tempered, by rows that were held out.
# is_bounded: no number beyond the labels of the candidates is predicted.
# batch_sizes: rows of a step, and the number of training rows from which on.
_PAPER: Mapping[str, Any] = {
    "member_counts": {0: 1},
    "batch_sizes": {0: 256, 30_000: 512, 200_000: 1024},
    "context_size": Recipe.context_size,
    "width": NetworkConfig.width,
    "encoder_blocks": NetworkConfig.encoder_blocks,
    "predictor_blocks": NetworkConfig.predictor_blocks,
    "embedding": "none",
    "scale_layer": NetworkConfig.scale_layer,
    "n_heads": NetworkConfig.n_heads,
    "row_embedding": "none",
    "dropout": NetworkConfig.dropout,
    "context_dropout": NetworkConfig.context_dropout,
    "retrieval": "step-4",
    "normalization": "quantile",
    "dates": "parts",
    "trends": "all",
    "levels": "codes",
    "learning_rate": TrainingConfig.learning_rate,
    "weight_decay": TrainingConfig.weight_decay,
    "betas": TrainingConfig.betas,
    "label_smoothing": TrainingConfig.label_smoothing,
    "candidate_share": TrainingConfig.candidate_share,
    "weight_average": TrainingConfig.weight_average,
    "class_scoring": None,  # accuracy
    "schedule": TrainingConfig.schedule,
    "patience": TrainingConfig.patience,
    "mode": "paper",
    "held_out": {0: 0.2},
    "recipes": {"paper": {}},
    "cross_fits": False,
    "joins_held_out": False,
    "blends": False,
    "is_bounded": False,
}
_DEFAULT: Mapping[str, Any] = {
    **_PAPER,
    "normalization": "both",
    "dates": "cycles",
    "trends": "within",
    "levels": "means",
    "scale_layer": True,
    "row_embedding": "pbld",
    "learning_rate": 6e-4,
    "betas": (0.9, 0.95),
    "weight_average": 3.0,
    "class_scoring": "neg_log_loss",
    "mode": "fixed",
    # Few rows: a network takes a second, and what it holds out is missed most.
    "member_counts": {0: 5, 1_000: 1},
    # Some 300 rows tell when to stop; what more is held out is missed.
    "held_out": {0: 0.2, 1_500: 0.15, 3_000: 0.1},
    "batch_sizes": {
        0: 32,
        1_000: 64,
        3_000: 128,
        10_000: 256,
        30_000: 512,
        200_000: 1024,
    },
    "recipes": {"default": {}},
    "cross_fits": True,
    "joins_held_out": True,
    "blends": True,
    "is_bounded": True,
}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": _DEFAULT,
    "best": {
        **_DEFAULT,
        "member_counts": {0: 5},
        "recipes": {
            "default": {},
            "heads": {"row_embedding": "bins", "n_heads": 8},
            "sampled": {"candidate_share": 0.5},
        },
    },
    "paper": _PAPER,
}


def batch_size_for(n_rows: int, preset: str = "paper") -> int:
    """Return the batch size of a preset for so many training rows.

    >>> batch_size_for(500), batch_size_for(500, "default"), batch_size_for(50_000)
    (256, 32, 512)
    """
    sizes: Mapping[int, int] = PRESETS[preset]["batch_sizes"]
    return _by_size(sizes, n_rows)


def member_count_for(n_rows: int, preset: str = "paper") -> int:
    """Return the members of each recipe of a preset for so many rows.

    >>> member_count_for(500), member_count_for(500, "default")
    (1, 5)
    """
    counts: Mapping[int, int] = PRESETS[preset]["member_counts"]
    return _by_size(counts, n_rows)


def held_out_share_for(n_rows: int, preset: str = "paper") -> float:
    """Return the share of so many rows that a preset holds out to stop early by.

    >>> held_out_share_for(5_000), held_out_share_for(5_000, "default")
    (0.2, 0.1)
    """
    shares: Mapping[int, float] = PRESETS[preset]["held_out"]
    return _by_size(shares, n_rows)


def _by_size(values: Mapping[int, T], n_rows: int) -> T:
    return values[max(start for start in values if start <= n_rows)]


def network_config(values: Mapping[str, Any]) -> NetworkConfig:
    """Build a network config from `dataclasses.asdict` of one, as a file stores it."""
    nested = dict(values)
    nested["retrieval"] = RetrievalConfig(**nested["retrieval"])
    for name in ("embedding", "row_embedding"):
        if nested.get(name) is not None:  # older files lack the second
            nested[name] = EmbeddingConfig(**nested[name])
    return NetworkConfig(**nested)

"""Presets of the estimators: what they do where their user says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from tabr.config.network import NetworkConfig
from tabr.config.training import Recipe, TrainingConfig

T = TypeVar("T")
BySize = Mapping[int, T]  # by the number of rows from which on it holds


@dataclass(frozen=True)
class Preset:
    """Values of the estimators' parameters, and what is no parameter of theirs.

    Attributes:
        parameters: Values of parameters that are None, by name.
        recipes: Which parameters each recipe of a pack changes, by its name.
        member_counts: Members of each recipe.
        batch_sizes: Rows of a step, by the number of training rows.
        held_out_shares: Shares of rows to stop early by.
        class_column_dropouts: Rates at which steps do without a column where classes
            are predicted, by the number of training rows.
        class_scoring: What early stopping looks at for classes; None is accuracy.
        dates: How dates are read, as `Preprocessor` says.
        trends: Whether numbers that run ahead with time are read, by the same.
        n_periods: Where held-out rows lie ahead in time: the parts of the training
            rows' time, in whose own part none finds neighbours. 0 leaves it whole.
        levels: How columns of many levels are read, by the same.
        cross_fits: Whether several members hold out different rows.
        joins_held_out: Whether rows of the table that were held out become candidates.
        blends: Whether members are weighted, and classes tempered, by such rows.
        is_bounded: Whether no number beyond the candidates' labels is predicted.
    """

    parameters: Mapping[str, Any]
    recipes: Mapping[str, Mapping[str, Any]]
    member_counts: BySize[int]
    batch_sizes: BySize[int]
    held_out_shares: BySize[float]
    class_column_dropouts: BySize[float]
    class_scoring: str | None = None
    dates: Literal["parts", "cycles"] = "parts"
    trends: Literal["all", "within"] = "all"
    n_periods: int = 0
    levels: Literal["codes", "means"] = "codes"
    cross_fits: bool = False
    joins_held_out: bool = False
    blends: bool = False
    is_bounded: bool = False

    def value(self, name: str, recipe: str | None = None) -> Any:
        """Return a parameter's value, as a recipe has it if one is named."""
        changes = {} if recipe is None else self.recipes[recipe]
        return changes.get(name, self.parameters[name])

    def n_members(self, n_rows: int) -> int:
        """Return the members of each recipe for so many rows.

        >>> PRESETS["paper"].n_members(500), PRESETS["default"].n_members(500)
        (1, 5)
        """
        return _at(self.member_counts, n_rows)

    def batch_size(self, n_rows: int) -> int:
        """Return the rows of a step for so many training rows.

        >>> PRESETS["paper"].batch_size(500), PRESETS["default"].batch_size(500)
        (256, 32)
        """
        return _at(self.batch_sizes, n_rows)

    def held_out_share(self, n_rows: int) -> float:
        """Return the share of so many rows that is held out to stop early by.

        >>> (
        ...     PRESETS["paper"].held_out_share(5000),
        ...     PRESETS["default"].held_out_share(5000),
        ... )
        (0.2, 0.1)
        """
        return _at(self.held_out_shares, n_rows)

    def column_dropout(self, n_rows: int, *, of_classes: bool) -> float:
        """Return the rate at which a step does without a column, for so many rows.

        >>> [
        ...     PRESETS["default"].column_dropout(500, of_classes=c)
        ...     for c in (True, False)
        ... ]
        [0.2, 0.0]
        """
        return _at(self.class_column_dropouts, n_rows) if of_classes else 0.0


def _at(values: BySize[T], n_rows: int) -> T:
    return values[max(start for start in values if start <= n_rows)]


# TabR-S as published.
_PAPER = Preset(
    parameters={
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
        "learning_rate": TrainingConfig.learning_rate,
        "weight_decay": TrainingConfig.weight_decay,
        "betas": TrainingConfig.betas,
        "label_smoothing": TrainingConfig.label_smoothing,
        "candidate_share": TrainingConfig.candidate_share,
        "weight_average": TrainingConfig.weight_average,
        "schedule": TrainingConfig.schedule,
        "patience": TrainingConfig.patience,
        "mode": "paper",
    },
    recipes={"paper": {}},
    member_counts={0: 1},
    batch_sizes={0: 256, 30_000: 512, 200_000: 1024},
    held_out_shares={0: 0.2},
    class_column_dropouts={0: NetworkConfig.column_dropout},
)

# One network: what costs next to nothing beside TabR-S and helps most.
_DEFAULT = Preset(
    parameters={
        **_PAPER.parameters,
        "normalization": "both",
        "scale_layer": True,
        "row_embedding": "pbld",
        "learning_rate": 6e-4,
        "betas": (0.9, 0.95),
        "weight_average": 3.0,
        "mode": "fixed",
    },
    recipes={"default": {}},
    # Few rows: a network takes a second, and what it holds out is missed most.
    member_counts={0: 5, 1_000: 1},
    batch_sizes={
        0: 32,
        1_000: 64,
        3_000: 128,
        10_000: 256,
        30_000: 512,
        200_000: 1024,
    },
    # Some 300 rows tell when to stop; what more is held out is missed.
    held_out_shares={0: 0.2, 1_500: 0.15, 3_000: 0.1},
    # Of few rows no column is to be relied on alone, unless it gives numbers away.
    class_column_dropouts={0: 0.2, 1_000: 0.1, 5_000: 0.0},
    class_scoring="neg_log_loss",
    dates="cycles",
    trends="within",
    n_periods=10,
    levels="means",
    cross_fits=True,
    joins_held_out=True,
    blends=True,
    is_bounded=True,
)

# A pack: several members of each of several recipes, which err differently.
_BEST = replace(
    _DEFAULT,
    recipes={
        "default": {},
        "heads": {"row_embedding": "bins", "n_heads": 8},
        "sampled": {"candidate_share": 0.5},
    },
    member_counts={0: 5},
)

PRESETS: Mapping[str, Preset] = {"default": _DEFAULT, "best": _BEST, "paper": _PAPER}

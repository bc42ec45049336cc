"""What a user sets of an estimator, and what it means: recipes, seeds, what to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from tabr.candidates.rules import Rule, check_rule
from tabr.config import (
    EMBEDDINGS,
    PRESETS,
    STEPS,
    EmbeddingConfig,
    Mode,
    NetworkConfig,
    Preset,
    Recipe,
    RetrievalConfig,
    Schedule,
    TrainingConfig,
)
from tabr.errors import DataError, ParameterError
from tabr.metrics import Scoring, known_measure
from tabr.tables.cells import ColumnKind
from tabr.tables.preprocessor import Preprocessor
from tabr.tables.targets import ClassTarget, Target

_SEEDS = 2**32  # that differ for all who draw


class Parameters(BaseEstimator):
    """The parameters of an estimator, as they were given.

    They are stored untouched, as scikit-learn asks for, and checked in `fit`.
    """

    _target: ClassVar[type[Target]]

    def __init__(
        self,
        *,
        preset: str = "default",
        n_members: int | None = None,
        context_size: int | None = None,
        width: int | None = None,
        encoder_blocks: int | None = None,
        predictor_blocks: int | None = None,
        embedding: str | EmbeddingConfig | None = None,
        scale_layer: bool | None = None,
        n_heads: int | None = None,
        row_embedding: str | EmbeddingConfig | None = None,
        dropout: float | None = None,
        context_dropout: float | None = None,
        column_dropout: float | None = None,
        retrieval: str | RetrievalConfig | None = None,
        normalization: Literal["both", "quantile", "robust", "standard", "none"]
        | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        betas: tuple[float, float] | None = None,
        label_smoothing: float | None = None,
        gradient_clip: float | None = None,
        candidate_share: float | None = None,
        weight_average: float | None = None,
        schedule: Schedule | None = None,
        batch_size: int | None = None,
        max_epochs: int | None = None,
        patience: int | None = None,
        freeze_after: int | None = None,
        record_context: bool = False,
        time_limit: float | None = None,
        column_kinds: Mapping[str, ColumnKind] | None = None,
        ignore: Sequence[str] = (),
        candidates: Rule | None = None,
        refit_candidates: bool | None = None,
        validation_fraction: float | None = None,
        scoring: Scoring | None = None,
        mode: Mode | None = None,
        device: str | None = None,
        memory_limit: int | None = None,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
        verbose: bool = False,
    ) -> None:
        self.preset = preset
        self.n_members = n_members
        self.context_size = context_size
        self.width = width
        self.encoder_blocks = encoder_blocks
        self.predictor_blocks = predictor_blocks
        self.embedding = embedding
        self.scale_layer = scale_layer
        self.n_heads = n_heads
        self.row_embedding = row_embedding
        self.dropout = dropout
        self.context_dropout = context_dropout
        self.column_dropout = column_dropout
        self.retrieval = retrieval
        self.normalization = normalization
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.betas = betas
        self.label_smoothing = label_smoothing
        self.gradient_clip = gradient_clip
        self.candidate_share = candidate_share
        self.weight_average = weight_average
        self.schedule = schedule
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.freeze_after = freeze_after
        self.record_context = record_context
        self.time_limit = time_limit
        self.column_kinds = column_kinds
        self.ignore = ignore
        self.candidates = candidates
        self.refit_candidates = refit_candidates
        self.validation_fraction = validation_fraction
        self.scoring = scoring
        self.mode = mode
        self.device = device
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose

    def n_networks(self, n_rows: int) -> int:
        """Return how many networks `fit` trains on so many rows."""
        return self._n_members(n_rows) * len(self._preset.recipes)

    def _n_members(self, n_rows: int) -> int:
        given = self.n_members
        return self._preset.n_members(n_rows) if given is None else given

    def _seeds(self, n: int) -> list[int]:
        """Return a seed for each member; an integer gives itself and those after it."""
        state = self.random_state
        if isinstance(state, np.random.Generator):
            first = int(state.integers(2**31 - n))
        elif isinstance(state, int | np.integer):
            first = int(state)
        else:
            first = int(check_random_state(state).randint(2**31 - n))
        if not 0 <= first <= _SEEDS - n:  # torch would look at the last 32 bits alone
            raise ParameterError(
                f"random_state must be a whole number from 0 to 2**32 - {n}, of which"
                f" {n} networks have one each, however {first} came: choose a smaller"
                " one, or a numpy generator"
            )
        return [first + k for k in range(n)]

    @property
    def _preset(self) -> Preset:
        return PRESETS[self.preset]

    @property
    def is_bounded(self) -> bool:
        """Whether no number beyond the labels of the candidates is predicted."""
        return self._preset.is_bounded

    def _recipe(self, n_rows: int, name: str) -> Recipe:
        """Return what makes a member of so many training rows, by a recipe's name."""
        value = partial(self._value, recipe=name)
        network = NetworkConfig(
            width=value("width"),
            encoder_blocks=value("encoder_blocks"),
            predictor_blocks=value("predictor_blocks"),
            dropout=value("dropout"),
            context_dropout=value("context_dropout"),
            column_dropout=self._column_dropout(n_rows),
            embedding=_embedding(value("embedding")),
            retrieval=_retrieval(value("retrieval")),
            scale_layer=value("scale_layer"),
            n_heads=value("n_heads"),
            row_embedding=_embedding(value("row_embedding")),
        )
        batch_size = self.batch_size
        if batch_size is None:
            batch_size = self._preset.batch_size(n_rows)
        training = TrainingConfig(
            learning_rate=value("learning_rate"),
            weight_decay=value("weight_decay"),
            batch_size=batch_size,
            max_epochs=self.max_epochs,
            patience=value("patience"),
            freeze_after=self.freeze_after,
            record_context=self.record_context,
            mode=value("mode"),
            betas=tuple(value("betas")),
            label_smoothing=value("label_smoothing"),
            schedule=value("schedule"),
            gradient_clip=self.gradient_clip,
            candidate_share=value("candidate_share"),
            weight_average=value("weight_average") or None,
        )
        return Recipe(network, training, value("context_size"), name)

    def _column_dropout(self, n_rows: int) -> float:
        if self.column_dropout is not None:
            return self.column_dropout
        of_classes = self._target is ClassTarget
        return self._preset.column_dropout(n_rows, of_classes=of_classes)

    def _value(self, name: str, recipe: str | None = None) -> Any:
        """Return a parameter as it was given, else as the recipe or preset has it."""
        given = getattr(self, name)
        return self._preset.value(name, recipe) if given is None else given

    def _scoring(self) -> Scoring | None:
        """Return what early stopping looks at; None is RMSE or accuracy."""
        if self.scoring is None and self._target is ClassTarget:
            return self._preset.class_scoring
        return self.scoring

    @property
    def stopping_score(self) -> tuple[str, float]:
        """The name of the score that training stops by, and the sign to show it with.

        Scores in `history_` are larger the better; times this sign they are what the
        name says.
        """
        measure = known_measure(self._scoring(), of_classes=self._target is ClassTarget)
        if measure is None:
            return str(self._scoring()), 1.0
        return measure.label, measure.sign

    def _check_parameters(self) -> None:
        """Refuse what would be refused later, before anything is read."""
        if self.preset not in PRESETS:
            raise ParameterError(
                f"preset must be one of {list(PRESETS)}, however: {self.preset!r}"
            )
        for name in ("n_members", "memory_limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ParameterError(
                    f"`{name} >= 1` must hold, however: {name}={value!r}"
                )
        if self.time_limit is not None and not self.time_limit > 0:
            raise ParameterError(
                f"`time_limit > 0` must hold, however: time_limit={self.time_limit!r}"
            )
        for name in self._preset.recipes:
            self._recipe(1, name)
        check_rule(self.candidates)

    def _preprocessor(self, columns: list[str]) -> Preprocessor:
        ignored = [self.ignore] if isinstance(self.ignore, str) else self.ignore
        absent = [str(name) for name in ignored if str(name) not in columns]
        if absent:  # most likely they are misspelt
            raise DataError(
                f"ignore must name columns of the table, however it names {absent}: the"
                f" columns are {columns}"
            )
        normalization = self._value("normalization")
        if self._value("mode") == "paper" and normalization == "quantile":
            normalization = "published-quantile"
        return Preprocessor(
            normalization=normalization,
            kinds=self.column_kinds,
            ignore=self.ignore,
            dates=self._preset.dates,
            trends=self._preset.trends,
            levels=self._preset.levels,
        )

    @property
    def _cross_fits(self) -> bool:
        """Whether several members hold out different rows, of whom all teach some."""
        same_for_all = self.validation_fraction is not None
        stays_out = self.refit_candidates is False
        return self._preset.cross_fits and not (same_for_all or stays_out)

    def _joins(self, eval_set: tuple[Any, Any] | None) -> bool:
        """Whether rows that were held out become candidates after training."""
        if self.refit_candidates is None:
            return eval_set is None and self._preset.joins_held_out
        return self.refit_candidates


def _embedding(value: str | EmbeddingConfig) -> EmbeddingConfig | None:
    """Return the embedding of numbers; "none" leaves them as they are."""
    if isinstance(value, EmbeddingConfig):
        return value
    return None if value == "none" else EMBEDDINGS.get(value) or EmbeddingConfig(value)  # type: ignore[arg-type]


def _retrieval(value: str | RetrievalConfig) -> RetrievalConfig:
    """Return the point of the design space."""
    if isinstance(value, RetrievalConfig):
        return value
    if value not in STEPS:
        raise ParameterError(
            f"retrieval must be a RetrievalConfig or one of {list(STEPS)}, "
            f"however: {value!r}"
        )
    return STEPS[value]


# What the docstrings of the estimators say of them.
DESCRIPTION = """\
For each row the model retrieves the most similar training rows under a metric that it
    learns, and predicts from their labels and from how they differ. A parameter that is
    None has the value of the preset.

    Args:
        preset: "default" is one network with the best recipe we know at the cost of
            TabR-S, and five below 1,000 rows, where one takes a second; "best" is a
            pack: five networks of each of several recipes; "paper" is TabR-S exactly as
            published.
        n_members: Networks of each recipe that are fitted and averaged; None is the
            preset's number. They differ by their seeds and, without `eval_set`, in the
            rows that they hold out, so that all rows are learned from ("paper" holds
            out the same rows for all). Rows that were held out tell how much each
            recipe counts, and for classes the temperature.
        context_size: Neighbours of a row.
        width: Width of rows inside the network.
        encoder_blocks: Residual blocks before the retrieval.
        predictor_blocks: Residual blocks after it.
        embedding: How numbers are embedded: "none", "lr", "plr", "plr-lite", "pbld",
            "pbld-fixed", "bins" or an `EmbeddingConfig`.
        scale_layer: Multiply each input by a number that is learned fast.
        n_heads: Predictors over one retrieval, whose predictions are averaged.
        row_embedding: How the numbers of the row itself are embedded for the predictor,
            by the names of `embedding`; neighbours are compared without it.
        dropout: Dropout inside blocks.
        context_dropout: Dropout of the weights of neighbours.
        column_dropout: Rate at which a training step does without a column of the
            table, for all of its rows and their neighbours alike; None is 0 for
            numbers, and for classes 0.2, from 1,000 training rows on 0.1 and from 5,000
            on 0 ("paper": 0).
        learning_rate: Step size of AdamW.
        weight_decay: Weight decay of AdamW.
        betas: Adam's coefficients of running means.
        label_smoothing: Share of a class's label that is spread over all classes.
        gradient_clip: Largest norm of a step's gradient; None sets no limit.
        candidate_share: Share of the candidates, drawn anew for each training step,
            among whom its rows find their neighbours; predictions look at all.
        weight_average: Epochs that a running mean of the weights reaches back; it is
            what is scored and kept. 0 keeps the weights themselves.
        schedule: Of step sizes: "constant", "flat-cosine" (down to zero over the second
            half of `max_epochs`) or "drop" (to a tenth when patience ends, once).
        batch_size: Rows of a step; None is 32, from 1,000 training rows on 64, from
            3,000 on 128, from 10,000 on 256, from 30,000 on 512 and from 200,000 on
            1024 ("paper": 256 below 30,000).
        max_epochs: Epochs at most; None leaves it to `patience`.
        patience: Epochs without a better validation score before training stops.
        freeze_after: Epochs after which each row's neighbours stay as they are,
            which makes training on large tables cheaper; None never.
        record_context: Record in `history_` how much the neighbours of training rows
            change from epoch to epoch (the paper's Delta-context): 0 not at all, 1
            altogether. It searches once more after each epoch.
        time_limit: Seconds that `fit` may take, kept by training fewer members and
            epochs; None sets no limit.
        retrieval: A step of the paper's design ("step-0" to "step-4"), the name of an
            ablation, or a `RetrievalConfig`.
        normalization: Of numbers: "quantile" (to a normal distribution), "robust" (by
            quartiles, clipped smoothly), "both" side by side, "standard" or "none".
        column_kinds: Kinds of columns that should not be guessed, by name: "numeric",
            "binary", "categorical" or "date".
        ignore: Columns that are no features; rules may read them.
        candidates: Who may be whose neighbour, in training and in prediction: a rule
            such as `PastOnly("sold_on") & NotSameGroup("seller")`; None allows all.
        refit_candidates: Let rows that were held out join the candidates after
            training. None does so with those of X, but not with an `eval_set`
            ("paper": with none). False holds out the same rows for all members.
        validation_fraction: Share of rows held out to stop early, without `eval_set`:
            random ones, with `PastOnly` the latest, with `NotSameGroup` whole groups.
            None is a fifth, down to a tenth from 3,000 rows on ("paper": a fifth), or
            of several members a part each; a share that is given is held out from all
            members alike.
        scoring: What early stopping looks at: "rmse", "mae" or "r2" of numbers,
            "accuracy", "balanced-accuracy", "log-loss", "roc-auc" or
            "average-precision" of classes, or any scikit-learn scorer or its name; None
            is the RMSE for numbers and the log loss for classes (of the preset "paper"
            the accuracy).
        mode: "paper" reproduces the published runs in all details, weight decay of
            every parameter and their noise in quantile normalisation included;
            "fixed" mends these two.
        device: As torch names it; None is a GPU if there is one.
        memory_limit: Bytes that fitting and predicting may hold on the device; None is
            what is free. What does not fit is made smaller, one after the other:
            members at a time, rows predicted at a time, candidates on the device.
        random_state: Seed below 2**32, or a generator of numpy; the same seed gives the
            same model on the same device.
        verbose: Show progress."""

"""TabRClassifier and TabRRegressor: check, call the parts in order, keep results."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tabr.candidates.rules import Rule, check_rule, split_by
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
from tabr.fitted import FittedModel
from tabr.metrics import Scoring, known_measure, make_score
from tabr.prediction.uncertainty import intervals, sets
from tabr.tables.cells import ColumnKind
from tabr.tables.frame import name_of
from tabr.tables.preprocessor import Preprocessor
from tabr.tables.samples import EncodedSample, Sample
from tabr.tables.targets import ClassTarget, NumberTarget, Target

# Torch is imported by the first `fit` or `load`: with it, importing an estimator would
# take twice as long.
if TYPE_CHECKING:
    from tabr.training.loop import History
    from tabr.training.members import Fold

Part = tuple[NDArray[np.int64] | None, Sample]


class _TabR(FittedModel, BaseEstimator):
    """What classifier and regressor share: everything but the target."""

    _target: ClassVar[type[Target]]

    n_features_in_: int
    feature_names_in_: NDArray[Any]
    target_name_: str | None

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
        random_state: int | np.random.RandomState | None = None,
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

    # --- fit ------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: tuple[Any, Any] | None = None,
        on_epoch: Callable[[int, History], None] | None = None,
    ) -> Self:
        """Learn from a table and its labels.

        Args:
            X: A table (n, columns): pandas, polars, pyarrow, numpy or a list of rows.
            y: Its labels (n,).
            sample_weight: Weights (n,) of the rows' losses; a row of weight zero is
                left out altogether.
            eval_set: A table and its labels to stop early by; without them a share of
                X (`validation_fraction`) is held out.
            on_epoch: Called after each epoch with the number of the member and its
                history so far; what it raises ends the fit and leaves the model as it
                was.
        """
        from tabr.device.devices import choose_device
        from tabr.training.members import FitOptions, fit_members
        from tabr.training.pack import make_pack

        start = time.perf_counter()
        self._check_parameters()
        device, name = choose_device(self.device), type(self).__name__
        names = list(self._preset.recipes)
        sample = Sample.read(X, y, sample_weight, self._target, name)
        seeds = _seeds(self.random_state, self.n_networks(len(sample)))
        target = self._target().fit(sample.y)
        train, parts = self._split(sample, eval_set, target, seeds[0])
        target = target.scaled_by(train.y)
        preprocessor = self._preprocessor(list(sample.frame.columns))
        positions, held_out = parts[-1]  # by time the last fold learns from most
        labels = target.encode(train.y)
        arrays = preprocessor.fit_transform(
            train.frame,
            held_out.frame,
            positions,
            labels=target.sides(labels),
            weights=train.weights,
            caller=name,
        )
        learned = EncodedSample(train, arrays, labels)
        folds = [self._fold(part, learned, preprocessor, target) for part in parts]
        n_learned = min(len(train if p is None else p) for p, _ in parts)
        recipes = [self._recipe(n_learned, name) for name in names]
        fitted = copy.copy(self)
        limit = self.time_limit
        fit = fit_members(
            recipes,
            preprocessor.shape(target),
            target,
            learned,
            folds,
            self.candidates,
            FitOptions(
                seeds,
                device,
                self.memory_limit,
                self.verbose,
                on_epoch,
                None if limit is None else start + limit,
            ),
        )
        fitted.candidates_, fitted.memory_plan_ = fit.candidates, fit.plan
        fitted.preprocessor_, fitted.target_ = preprocessor, target
        fitted.context_size_ = recipes[0].context_size
        fitted.members_, fitted.temperature_, fitted.calibration_ = make_pack(
            fit,
            folds,
            target,
            fitted.context_size_,
            blends=self._preset.blends,
            is_bounded=self.is_bounded and target.classes is None,
        )
        if self._joins(eval_set) and folds[0].learned is None:
            fitted.candidates_ = fitted.candidates_.joined(folds[0].held_out)
        # All went well: only now the estimator changes.
        self.__dict__.update(fitted.__dict__)
        self._keep_names(X, y)
        self.n_features_in_ = sample.frame.shape[1]
        return self

    def _split(
        self,
        sample: Sample,
        eval_set: tuple[Any, Any] | None,
        target: Target,
        seed: int,
    ) -> tuple[Sample, list[Part]]:
        """Return the rows to learn from, and what members hold out to stop early by.

        A part is rows, and the positions of those to learn from instead; None where
        all are learned from.
        """
        if eval_set is not None:
            held_out = Sample.read(*eval_set, None, self._target, type(self).__name__)
            # Ids are positions in the table of fit, then in that of eval_set.
            first = int(sample.ids.max()) + 1
            return sample, [(None, replace(held_out, ids=held_out.ids + first))]
        strata = target.strata(sample.y)
        split = split_by(self.candidates, sample.frame)
        n_members = self._n_members(len(sample))
        if n_members > 1 and self._cross_fits:
            folds = sample.folds(n_members, strata, seed, split)
            return sample, [(learned, sample.take(held)) for learned, held in folds]
        fraction = self.validation_fraction
        if fraction is None:
            fraction = self._preset.held_out_share(len(sample))
        train, held_out = sample.hold_out(fraction, strata, seed, split)
        return train, [(None, held_out)]

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

    def _fold(
        self,
        part: Part,
        train: EncodedSample,
        preprocessor: Preprocessor,
        target: Target,
    ) -> Fold:
        """Return rows that are held out, encoded, with their score."""
        from tabr.training.members import Fold

        learned, held_out = part
        if learned is None:
            rows = preprocessor.encode(held_out.frame, caller=type(self).__name__)
            held_out = replace(held_out, frame=rows.frame)
            labels = target.encode(held_out.y)
            encoded = EncodedSample(held_out, rows.arrays, labels)
        else:
            encoded = train.take(np.searchsorted(train.sample.ids, held_out.ids))
        score = make_score(self._scoring(), held_out.frame, held_out.y, target.classes)
        return Fold(encoded, score, learned)

    def _keep_names(self, X: Any, y: Any) -> None:
        """Keep the names of the target and, if all are texts, of the columns."""
        self.target_name_ = name_of(y)
        names = getattr(X, "columns", None)
        if names is not None and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.asarray(list(names), dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def n_networks(self, n_rows: int) -> int:
        """Return how many networks `fit` trains on so many rows."""
        return self._n_members(n_rows) * len(self._preset.recipes)

    def _n_members(self, n_rows: int) -> int:
        given = self.n_members
        return self._preset.n_members(n_rows) if given is None else given

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

    # --- files ----------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file; it holds no code."""
        from tabr.storage import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | None = None) -> Self:
        """Read a model that `save` wrote.

        Args:
            path: The file. Reading it runs no code, whoever wrote it.
            device: Where to compute; None is a GPU if there is one.
        """
        from tabr.storage import load

        return load(path, cls, device)

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn may know: which tables are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags


class TabRRegressor(RegressorMixin, _TabR):
    """Predict a number from the numbers of similar rows.

    {parameters}

    Examples:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = TabRRegressor(max_epochs=2, random_state=0).fit(X, y)
        >>> model.predict(X.head(2)).shape
        (2,)
    """

    _target = NumberTarget

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return a value for each row of X, in the units of y."""
        return self._predictions(X)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> NDArray[np.float64]:
        """Return ends (rows, 2) that hold the truth in a share `coverage` of rows.

        Of rows like those that were held out, or that `calibrate` was given. Intervals
        are short where the labels of neighbours agree.
        """
        signals = self.signals(X)  # refuses a model that is not fitted
        return intervals(self.calibration_, coverage, signals)


class TabRClassifier(ClassifierMixin, _TabR):
    """Predict a class from the classes of similar rows.

    {parameters}

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> model = TabRClassifier(max_epochs=2, random_state=0).fit(X, y)
        >>> model.predict_proba(X.head(2)).shape
        (2, 3)
    """

    _target = ClassTarget

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of the columns of `predict_proba`."""
        check_is_fitted(self, "members_")
        classes = self.target_.classes
        assert classes is not None
        return classes

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of each row of X."""
        probabilities = self._predictions(X)  # refuses a model that is not fitted
        return self.target_.answers(probabilities)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, (rows, classes)."""
        return self._predictions(X)

    def predict_set(self, X: Any, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Return sets of classes that hold the truth in a share `coverage` of rows.

        Of rows like those that were held out, or that `calibrate` was given. The result
        is (rows, classes), in the order of `classes_`.
        """
        probabilities = self._predictions(X)  # refuses a model that is not fitted
        return sets(self.calibration_, coverage, probabilities)


def load_model(
    path: str | os.PathLike[str], device: str | None = None
) -> TabRRegressor | TabRClassifier:
    """Read a model file of either kind."""
    from tabr.storage import load_any

    classes = {cls.__name__: cls for cls in (TabRRegressor, TabRClassifier)}
    model: TabRRegressor | TabRClassifier = load_any(path, classes, device)
    return model


_PARAMETERS = """\
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
        random_state: Seed; the same seed gives the same model on the same device.
        verbose: Show progress."""

for _estimator in (TabRRegressor, TabRClassifier):
    assert _estimator.__doc__ is not None
    _estimator.__doc__ = _estimator.__doc__.replace("{parameters}", _PARAMETERS)


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


def _seeds(random_state: int | np.random.RandomState | None, n: int) -> list[int]:
    """Return a seed for each member; an integer gives itself and those after it."""
    if isinstance(random_state, int | np.integer):
        return [int(random_state) + k for k in range(n)]
    first = check_random_state(random_state).randint(2**31 - n)
    return [int(first) + k for k in range(n)]

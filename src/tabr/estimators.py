"""TabRClassifier and TabRRegressor: check, call the parts in order, keep results."""

from __future__ import annotations

import copy
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from tabr.candidates.rules import Rules, SamePeriod, split_by
from tabr.fitted import FittedModel
from tabr.metrics import make_score
from tabr.parameters import DESCRIPTION, Parameters
from tabr.prediction.uncertainty import intervals, sets
from tabr.tables.frame import name_of
from tabr.tables.preprocessor import Preprocessor
from tabr.tables.samples import EncodedSample, Sample
from tabr.tables.targets import ClassTarget, NumberTarget, Target

# Torch is imported by the first `fit` or `load`: with it, importing an estimator would
# take twice as long.
if TYPE_CHECKING:
    from tabr.training.loop import History
    from tabr.training.members import Fold

logger = logging.getLogger(__name__)
Part = tuple[NDArray[np.int64] | None, Sample]


class _TabR(Parameters, FittedModel):
    """What classifier and regressor share: everything but the target."""

    n_features_in_: int
    feature_names_in_: NDArray[Any]
    target_name_: str | None

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
        seeds = self._seeds(self.n_networks(len(sample)))
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
            self._rules(preprocessor.trend, train),
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

    def _rules(self, trend: str | None, train: Sample) -> Rules:
        """Return who may be whose neighbour, if held-out rows lead in a column.

        Rows of the same days are alike, and have alike labels: rows to come find none
        such, and so training rows may not either.
        """
        n_periods = self._preset.n_periods
        if trend is None or not n_periods or self.candidates is not None:
            return Rules(self.candidates, self.candidates)
        rule = SamePeriod(trend, n_periods)
        if not rule.parts(train.frame):
            return Rules(None, None)
        logger.info(
            "held-out rows lie ahead in %r: training rows find no neighbours in their"
            " own of its %d periods",
            trend,
            n_periods,
        )
        return Rules(~rule, None)

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

    # --- files ----------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file; it holds no code."""
        from tabr.storage import save

        save(self, path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        device: str | None = None,
        key: str | os.PathLike[str] | bytes | None = None,
    ) -> Self:
        """Read a model that `save` wrote.

        Args:
            path: The file. Reading it runs no code, whoever wrote it.
            device: Where to compute; None is a GPU if there is one.
            key: A public key, or its file: the model must be signed with its private
                one (`tabr sign`), or nothing of it is read.
        """
        from tabr.storage import load

        return load(path, cls, device, key)

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
    path: str | os.PathLike[str],
    device: str | None = None,
    key: str | os.PathLike[str] | bytes | None = None,
) -> TabRRegressor | TabRClassifier:
    """Read a model file of either kind; with a public key only one signed with it."""
    from tabr.storage import load_any

    classes = {cls.__name__: cls for cls in (TabRRegressor, TabRClassifier)}
    model: TabRRegressor | TabRClassifier = load_any(path, classes, device, key)
    return model


for _estimator in (TabRRegressor, TabRClassifier):
    assert _estimator.__doc__ is not None
    _estimator.__doc__ = _estimator.__doc__.replace("{parameters}", DESCRIPTION)

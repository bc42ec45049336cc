"""TabR and the steps of its design, as methods of the comparison."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from tabr import TabRClassifier, TabRRegressor
from tabr.bench.methods.base import Method, Setting
from tabr.bench.methods.neural import (
    PUBLISHED_EMBEDDING,
    PUBLISHED_TRAINING,
    EmbeddedConfig,
)
from tabr.bench.methods.spaces import EMBEDDINGS, Integer, Space, Uniform, rates
from tabr.bench.tasks.task import LabelledRows
from tabr.config import PRESETS, EmbeddingKind
from tabr.errors import ParameterError
from tabr.metrics import codes_of
from tabr.prediction.blend import temperature, tempered
from tabr.prediction.uncertainty import MOST_ROWS
from tabr.tables.frame import random_rows


class TabRMethod(Method):
    """The estimators of this library, by default trained as in the paper's runs."""

    has_batches = True
    fits_as_one = True
    search_space: ClassVar[Space] = {  # of TabR-S
        "width": Integer(96, 384),
        "context_dropout": Uniform(0.0, 0.6),
        "dropout": Uniform(0.0, 0.6),
        **rates(max_decay=1e-3),
    }
    embedding_spaces: ClassVar[Mapping[str | None, Space]] = {
        kind: {
            "encoder_blocks": Integer(0, 1),
            "predictor_blocks": Integer(1, 2),
            **space,
        }
        for kind, space in EMBEDDINGS.items()
    }
    published_names: ClassVar[Mapping[str, str]] = {  # the design is the entry's
        "width": "model.d_main",
        "dropout": "model.dropout0",
        "context_dropout": "model.context_dropout",
        "encoder_blocks": "model.encoder_n_blocks",
        "predictor_blocks": "model.predictor_n_blocks",
        "context_size": "context_size",
        **PUBLISHED_EMBEDDING,
        **PUBLISHED_TRAINING,
    }

    def __init__(
        self,
        setting: Setting,
        seed: int,
        *,
        embedding: EmbeddingKind | None = None,
        embedding_width: int = 24,
        n_frequencies: int = 48,
        frequency_scale: float = 0.01,
        **params: Any,
    ) -> None:
        """Make the estimator, which takes all other parameters."""
        super().__init__(setting, seed)
        make = TabRRegressor if setting.outcome == "regression" else TabRClassifier
        params.setdefault("preset", "paper")
        if params["preset"] == "paper" and not setting.normalized:
            params["normalization"] = "none"  # as the published runs did
        if setting.scoring is not None and params.get("scoring") is not None:
            raise ParameterError(
                "scoring is that of all methods or a parameter of one, however"
                f" {setting.scoring!r} and {params['scoring']!r} came: leave out one"
            )
        if setting.scoring is not None:
            params["scoring"] = setting.scoring
        self.estimator = make(
            embedding=EmbeddedConfig(
                embedding, embedding_width, n_frequencies, frequency_scale
            ).numbers,
            column_kinds=dict(setting.column_kinds),
            device=setting.device,
            random_state=seed,
            **params,
        )

    def fit(self, train: LabelledRows, val: LabelledRows) -> Self:
        """Fit the estimator, which prepares tables by itself."""
        self.estimator.fit(
            train.X,
            train.y,
            eval_set=(val.X, val.y),
            on_epoch=lambda member, history: self.setting.report(history),
        )
        self.best_epoch = self.estimator.best_epoch_[0]
        return self

    @classmethod
    def fit_as_one(
        cls, methods: Sequence[Self], train: LabelledRows, val: LabelledRows
    ) -> None:
        """Fit the members of one estimator, and make each an estimator of its own."""
        if methods[0].estimator.n_networks(len(train.y)) > 1:  # packs already
            for method in methods:
                method.fit(train, val)
            return
        ensemble = clone(methods[0].estimator).set_params(n_members=len(methods))
        ensemble.fit(train.X, train.y, eval_set=(val.X, val.y))
        for method, member in zip(methods, ensemble.members_, strict=True):
            method.estimator = copy.copy(ensemble)
            method.estimator.members_ = [member]
            method.best_epoch = member.history.best_epoch
            method.estimator.temperature_ = 1.0  # so far that of the mean of all
            if PRESETS[ensemble.preset].blends and method.classes is not None:
                method.estimator.temperature_ = method._temperature(val)

    def _temperature(self, val: LabelledRows) -> float:
        """Return what the logits of a network alone are to be divided by."""
        assert self.classes is not None
        rows = random_rows(len(val.y), MOST_ROWS)
        probabilities = self.predict(val.X.iloc[rows])
        codes = codes_of(val.y[rows], self.classes)
        return temperature(partial(tempered, probabilities), codes)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return values (n,) in the units of y, or probabilities (n, classes)."""
        if isinstance(self.estimator, TabRClassifier):
            return self.estimator.predict_proba(X)
        return self.estimator.predict(X)

    @property
    def classes(self) -> NDArray[Any] | None:
        """The labels of the columns of probabilities; None for values."""
        is_class = isinstance(self.estimator, TabRClassifier)
        return self.estimator.classes_ if is_class else None

    @property
    def n_parameters(self) -> int | None:
        """The number of trained parameters."""
        networks = [member.network for member in self.estimator.members_]
        return sum(p.numel() for network in networks for p in network.parameters())

"""TabR and every step of its design, as one of the methods of the comparison."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from tabr import TabRClassifier, TabRRegressor
from tabr.bench.methods.base import (
    Method,
    Setting,
    Trial,
    embedding_space,
    zero_or,
)
from tabr.bench.methods.neural import published_embedding, published_training
from tabr.bench.tasks.task import LabelledRows
from tabr.config import EmbeddingConfig, EmbeddingKind
from tabr.training.loop import History


class TabRMethod(Method):
    """The estimators of this library, trained as in the paper's runs."""

    has_batches: ClassVar[bool] = True
    fits_as_one: ClassVar[bool] = True

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
        """Hand all other parameters to the estimator."""
        super().__init__(setting, seed)
        config: EmbeddingConfig | None = None
        if embedding is not None:
            config = EmbeddingConfig(
                embedding, embedding_width, n_frequencies, frequency_scale
            )
        make = TabRRegressor if setting.outcome == "regression" else TabRClassifier
        self.estimator = make(
            mode="paper",
            embedding=config,
            normalization="quantile" if setting.normalized else "none",
            column_kinds=dict(setting.column_kinds),
            device=setting.device,
            random_state=seed,
            **params,
        )

    @staticmethod
    def space(trial: Trial, **fixed: Any) -> dict[str, Any]:
        """Choose as in the paper's table for TabR; without embeddings, for TabR-S."""
        embedding = fixed.get("embedding")
        chosen: dict[str, Any] = {
            "width": trial.suggest_int("width", 96, 384),
            "context_dropout": trial.suggest_float("context_dropout", 0.0, 0.6),
            "dropout": trial.suggest_float("dropout", 0.0, 0.6),
            "learning_rate": trial.suggest_float("learning_rate", 3e-5, 1e-3, log=True),
            "weight_decay": zero_or(trial, "weight_decay", 1e-6, 1e-3),
        }
        if embedding is None:
            return chosen
        chosen["encoder_blocks"] = trial.suggest_int("encoder_blocks", 0, 1)
        chosen["predictor_blocks"] = trial.suggest_int("predictor_blocks", 1, 2)
        return {**chosen, **embedding_space(trial, embedding)}

    @staticmethod
    def published(config: Mapping[str, Any]) -> dict[str, Any]:
        """Translate a published tuned configuration; the design is the entry's."""
        model = config["model"]
        return {
            "width": model["d_main"],
            "dropout": model["dropout0"],
            "context_dropout": model["context_dropout"],
            "encoder_blocks": model["encoder_n_blocks"],
            "predictor_blocks": model["predictor_n_blocks"],
            "context_size": config["context_size"],
            **published_embedding(model["num_embeddings"]),
            **published_training(config),
        }

    def fit(self, train: LabelledRows, val: LabelledRows) -> Self:
        """Fit the estimator, which prepares tables by itself."""
        on_epoch = self.setting.on_epoch

        def watch(member: int, history: History) -> None:
            if on_epoch is not None:
                on_epoch(len(history.score) - 1, history.score[-1])

        eval_set = val.X, val.y
        self.estimator.fit(train.X, train.y, eval_set=eval_set, on_epoch=watch)
        self.best_epoch = self.estimator.best_epoch_[0]
        return self

    @classmethod
    def fit_as_one(
        cls, methods: Sequence[Self], train: LabelledRows, val: LabelledRows
    ) -> None:
        """Fit the members of one estimator, and make each an estimator of its own."""
        all_ = clone(methods[0].estimator).set_params(n_members=len(methods))
        all_.fit(train.X, train.y, eval_set=(val.X, val.y))
        for method, member in zip(methods, all_.members_, strict=True):
            method.estimator = copy.copy(all_)
            method.estimator.members_ = [member]
            method.best_epoch = member.history.best_epoch

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return values (n,) in the units of y, or probabilities (n, classes)."""
        if isinstance(self.estimator, TabRClassifier):
            return self.estimator.predict_proba(X)
        return self.estimator.predict(X)

    @property
    def classes(self) -> NDArray[Any] | None:
        """Return the labels of the columns of probabilities; None for values."""
        is_class = isinstance(self.estimator, TabRClassifier)
        return self.estimator.classes_ if is_class else None

    @property
    def n_parameters(self) -> int | None:
        """Return how many numbers were trained."""
        network = self.estimator.members_[0].network
        return sum(p.numel() for p in network.parameters())

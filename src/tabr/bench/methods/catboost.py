"""CatBoost (Prokhorenkova et al., 2018) with the paper's settings and tuning space.

It sees raw numbers and the categories themselves, as codes; a category without a level
is a code of its own, -1. It minimises the squared error or the log-loss, and the number
of trees is the best by the RMSE or the accuracy, as in the published runs, unless the
setting has another scoring.

Those runs ended the training by a statistical test, the library's `IncToDec` with
`od_pval = 0.001`, which waits at least `patience` rounds after the best.

NOTE[DIFF]: the published runs set `bagging_temperature` without a `bootstrap_type`; on
a CPU the library then draws rows by another rule that has no temperature. The parameter
is kept, and does as little here.

NOTE[DIFF]: three published tables were learned on a GPU. Here `task_type` asks for one,
and it is used if the setting's device is one; equal seeds may then differ in rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pandas as pd

from tabr.bench.methods.base import Encoded, Floats
from tabr.bench.methods.boosting import PATIENCE, Boosting
from tabr.bench.methods.spaces import Integer, LogUniform, Space, Uniform
from tabr.device.devices import choose_device
from tabr.metrics import Score
from tabr.optional import require
from tabr.tables.preprocessor import Arrays


class CatBoost(Boosting):
    """Gradient boosted trees of CatBoost; the defaults, and None, are the library's.

    A parameter of leaves stays None unless it is chosen: if one is given, even the
    library's own value, the library no longer fits the learning rate to the table.
    """

    libraries = ("catboost",)
    defaults: ClassVar[Mapping[str, Any]] = {
        "learning_rate": None,
        "depth": 6,
        "l2_leaf_reg": None,
        "leaf_estimation_iterations": None,
        "bagging_temperature": None,
        "od_pval": 0.001,
        "task_type": "CPU",
    }
    search_space: ClassVar[Space] = {
        "bagging_temperature": Uniform(0.0, 1.0),
        "depth": Integer(3, 14),
        "l2_leaf_reg": Uniform(0.1, 10.0),
        "leaf_estimation_iterations": Integer(1, 10),
        "learning_rate": LogUniform(1e-3, 1.0),
        "patience": PATIENCE,
    }
    published_names: ClassVar[Mapping[str, str]] = {
        **{name: f"model.{name}" for name in defaults},
        "n_trees": "model.iterations",
        "patience": "model.early_stopping_rounds",
    }

    def _fit(self, train: Encoded, val: Encoded, score: Score) -> None:
        library = require("catboost", extra="boost")
        options = {
            **self.options,
            "iterations": self.n_trees,
            "od_type": "IncToDec",
            "od_wait": self.patience,
            "random_seed": self.seed,
            "thread_count": self.setting.n_threads or -1,
            "allow_writing_files": False,
            "logging_level": "Silent",
        }
        device = choose_device(self.setting.device)
        if options.pop("task_type") == "GPU" and device.type == "cuda":
            options |= {"task_type": "GPU", "devices": str(device.index or 0)}
            self.device = device
        is_number = self.task == "regression"
        (options["eval_metric"],) = self.eval_metrics(
            ["RMSE" if is_number else "Accuracy"]
        )
        make = library.CatBoostRegressor if is_number else library.CatBoostClassifier
        self.model = make(**options)
        self.model.fit(self._pool(train), eval_set=self._pool(val))
        self.best_epoch = self.model.tree_count_

    def _predict(self, arrays: Arrays) -> Floats:
        is_number = self.task == "regression"
        predict = self.model.predict if is_number else self.model.predict_proba
        n_threads = self.setting.n_threads or -1
        output: Floats = predict(_table(arrays), thread_count=n_threads)
        return output

    def _pool(self, part: Encoded) -> Any:
        """Return rows and labels in the library's own form."""
        library = require("catboost", extra="boost")
        table, n_categories = _table(part.arrays), part.arrays.cat.shape[1]
        places = list(range(table.shape[1] - n_categories, table.shape[1]))
        return library.Pool(table, part.labels, cat_features=places)


def _table(arrays: Arrays) -> pd.DataFrame:
    """Return numbers, binary columns and codes side by side, each of its own type."""
    parts = [pd.DataFrame(part) for part in (arrays.num, arrays.bin, arrays.cat)]
    return pd.concat(parts, axis=1, ignore_index=True)

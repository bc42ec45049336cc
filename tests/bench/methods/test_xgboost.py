from __future__ import annotations

from typing import Any

import pytest
import torch

from tabr.bench.methods import xgboost
from tabr.optional import require
from tests.bench.methods.checks import SETTINGS, parts

# The tuned configuration of the published runs on California.
CALIFORNIA = {
    "model": {
        "booster": "gbtree",
        "colsample_bytree": 0.7348928051628328,
        "gamma": 0.002385798178757343,
        "lambda": 4.134951925332961,
        "learning_rate": 0.009499792319377727,
        "max_depth": 9,
        "min_child_weight": 0.011549285084168444,
        "n_estimators": 4000,
        "n_jobs": 1,
        "subsample": 0.676418825894307,
        "tree_method": "gpu_hist",
        "use_label_encoder": False,
    },
    "neighbors": None,
}


def test_published_parameters_are_translated() -> None:
    params = xgboost.XGBoost.published(CALIFORNIA)
    method = xgboost.XGBoost(SETTINGS["regression"], 0, **params)
    assert method.options["reg_lambda"] == 4.134951925332961
    assert method.options["subsample"] == 0.676418825894307
    assert (method.n_trees, method.patience) == (4000, 200)


@pytest.mark.parametrize(
    ("machine", "has_cuda", "expected"),
    [
        ("cuda:0", True, "cuda:0"),
        ("cuda:0", False, "cpu"),
        ("cpu", True, "cpu"),
    ],
)
def test_a_gpu_is_used_where_machine_and_library_can(
    machine: str, has_cuda: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = require("xgboost", extra="boost")
    used = []

    def train(options: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        used.append(options["device"])
        return original({**options, "device": "cpu"}, *args, **kwargs)

    original = library.train
    monkeypatch.setattr(library, "train", train)
    monkeypatch.setattr(library, "build_info", lambda: {"USE_CUDA": has_cuda})
    monkeypatch.setattr(xgboost, "choose_device", lambda name: torch.device(machine))
    data = parts("binary")
    xgboost.XGBoost(SETTINGS["binary"], 0, n_trees=1).fit(data.train, data.val)
    assert used == [expected]

"""Every method passes every check."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tabr.bench.methods import METHODS
from tests.bench.methods.checks import KINDS, check_all, check_space, fitted

QUICK = {"learning_rate": 0.01, "batch_size": 32, "max_epochs": 20}
TABR = {"width": 32, "context_size": 16, **QUICK}
DNNR = {"scaling_neighbors": 32, "scaling_epochs": 2}
TREES = {"n_trees": 60, "learning_rate": 0.1}
EMBEDDED = {"embedding_width": 8, "n_frequencies": 8}
# Parameters with which each method is small and still learns.
SMALL: dict[str, dict[str, Any]] = {
    "knn": {},
    "dnnr": DNNR,
    "dnnr-one-hot": DNNR,
    "dkl": {
        "width": 32,
        "n_layers": 1,
        "grid_size": 10,
        "learning_rate": 0.03,
        "max_epochs": 20,
    },
    "anp": {
        "width": 16,
        "n_self": 1,
        "n_cross": 1,
        "n_decoder": 1,
        "learning_rate": 0.01,
        "batch_size": 8,
        "warmup_steps": 20,
        "max_epochs": 3,
    },
    "saint": {
        "depth": 1,
        "width": 8,
        "head_width": 4,
        "hidden_factor": 2.0,
        "dropout": 0.1,
        **QUICK,
    },
    "npt": {
        "n_layers": 2,
        "width": 16,
        "n_heads": 2,
        "n_steps": 60,
        "batch_size": 70,
        "learning_rate": 0.01,
        "label_masking": 0.5,
    },
    "mlp": {"width": 32, "n_layers": 2, **QUICK},
    "mlp-lr": {"width": 32, "n_layers": 1, "embedding_width": 8, **QUICK},
    "mlp-plr": {"width": 32, "n_layers": 1, **EMBEDDED, **QUICK},
    "mlp-plr-lite": {"width": 32, "n_layers": 1, **EMBEDDED, **QUICK},
    "ft-transformer": {"n_blocks": 2, "width": 16, **QUICK},
    "xgboost": {**TREES, "subsample": 0.7},
    "lightgbm": {**TREES, "feature_fraction": 0.5},
    "catboost": {**TREES, "depth": 3},
    "xgboost-neighbors": {**TREES, "subsample": 0.7, "n_neighbors": 16},
    "tabr-d": {**TABR, "n_members": 1},
    "tabr-best": {**TABR, "n_members": 1},
    "tabr-s": TABR,
    "tabr-lr": {**TABR, "embedding_width": 8},
    "tabr": {**TABR, **EMBEDDED},
    "step-0": TABR,
    "step-1": TABR,
    "step-2": TABR,
    "step-3": TABR,
    "dp-k-v": TABR,
    "dp-k-yv": TABR,
    "l2-k-v": TABR,
    "l2-qk-v": TABR,
    "l2-qk-yv": TABR,
    "modern-nca": {"width": 32, **EMBEDDED, **QUICK},
    "tabm": {"width": 32, "k": 4, "n_layers": 1, **QUICK},
    "tabm-mini-ple": {
        "width": 32,
        "k": 4,
        "n_layers": 1,
        "embedding_width": 8,
        "n_bins": 8,
        **QUICK,
    },
    "realmlp": {"width": 32, "n_layers": 2, "batch_size": 32, "max_epochs": 20},
}


def test_every_method_is_checked() -> None:
    assert list(SMALL) == list(METHODS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SMALL)
def test_passes_every_check(name: str, kind: str) -> None:
    check_all(name, kind, SMALL[name])


# What each needs beyond the core.
LIBRARIES = {
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "catboost": "catboost",
    "xgboost-neighbors": "xgboost",
    "tabm": "tabm",
    "tabm-mini-ple": "rtdl_num_embeddings",
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_missing_library_is_named_with_the_line_that_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = LIBRARIES[name]
    monkeypatch.setitem(sys.modules, library, None)
    words = rf"{library} is not installed: pip install 'tabr\[(boost|baselines)\]'"
    with pytest.raises(ImportError, match=words):
        fitted(METHODS[name], "regression", SMALL[name])


@pytest.mark.parametrize("name", SMALL)
def test_its_space_yields_what_it_takes(name: str) -> None:
    check_space(name)


def test_every_method_has_its_line_in_the_docs() -> None:
    text = (Path(__file__).parents[3] / "docs" / "baselines.md").read_text("utf-8")
    steps = {"step-1", "step-2"}  # the table says: step-0 to step-3
    missing = [name for name in METHODS if f"`{name}`" not in text]
    assert set(missing) <= steps

"""The list of methods by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tabr.bench.methods.anp import ANP
from tabr.bench.methods.base import Method, Setting
from tabr.bench.methods.catboost import CatBoost
from tabr.bench.methods.dkl import DKL
from tabr.bench.methods.dnnr import DNNR
from tabr.bench.methods.ft_transformer import FTTransformer
from tabr.bench.methods.knn import KNN
from tabr.bench.methods.lightgbm import LightGBM
from tabr.bench.methods.mlp import MLP
from tabr.bench.methods.modern_nca import ModernNCA
from tabr.bench.methods.neighbors import XGBoostWithNeighbors
from tabr.bench.methods.npt import NPT
from tabr.bench.methods.realmlp import RealMLP
from tabr.bench.methods.saint import SAINT
from tabr.bench.methods.spaces import draw
from tabr.bench.methods.tabm import TabM
from tabr.bench.methods.tabr import TabRMethod
from tabr.bench.methods.xgboost import XGBoost
from tabr.config import STEPS

if TYPE_CHECKING:
    from optuna.trial import BaseTrial as Trial


class Entry(NamedTuple):
    """A method, what its variant fixes, and its name in the published results."""

    method: type[Method]
    fixed: Mapping[str, Any] = {}
    published: str | None = None

    @property
    def chooses_batches(self) -> bool:
        """Whether it is a preset of ours, which knows its sizes of batches itself."""
        return bool(self.fixed.get("preset", "paper") != "paper")

    def make(self, setting: Setting, seed: int, **params: Any) -> Method:
        """Return a new learner; parameters that are left out have their defaults."""
        return self.method(setting, seed, **{**self.fixed, **params})

    def space(self, trial: Trial) -> dict[str, Any]:
        """Return a trial's parameters for `make`."""
        more = self.method.embedding_spaces.get(self.fixed.get("embedding"), {})
        return draw(trial, {**self.method.search_space, **more})


# Steps and ablations of TabR's design, and their names in the published results.
DESIGNS: Mapping[str, str] = {
    "step-0": "dp-qk-v",
    "step-1": "dp-qk-yv",
    "step-2": "l2-k-yv",
    "step-3": "l2-k-yt",
    **{name: name for name in STEPS if not name.startswith("step-")},
}

METHODS: Mapping[str, Entry] = {
    "knn": Entry(KNN, {}, "kNN"),
    "dnnr": Entry(DNNR, {"categories": "mean label"}, "DNNR (leave-one-out)"),
    "dnnr-one-hot": Entry(DNNR, {}, "DNNR (one-hot)"),
    "dkl": Entry(DKL, {}, "DKL"),
    "anp": Entry(ANP, {}, "ANP"),
    "saint": Entry(SAINT, {}, "SAINT"),
    "npt": Entry(NPT, {}, "NPT"),
    "mlp": Entry(MLP, {}, "MLP"),
    "mlp-lr": Entry(MLP, {"embedding": "lr"}, "MLP-LR"),
    "mlp-plr": Entry(MLP, {"embedding": "plr"}, "MLP-PLR"),
    "mlp-plr-lite": Entry(MLP, {"embedding": "plr-lite"}, "MLP-PLR-lite"),
    "ft-transformer": Entry(FTTransformer, {}, "FT-Transformer"),
    "xgboost": Entry(XGBoost, {}, "XGBoost"),
    "lightgbm": Entry(LightGBM, {}, "LightGBM"),
    "catboost": Entry(CatBoost, {}, "CatBoost"),
    "xgboost-neighbors": Entry(XGBoostWithNeighbors, {}, "XGBoost + retrieval"),
    "tabr-d": Entry(TabRMethod, {"preset": "default"}),
    "tabr-best": Entry(TabRMethod, {"preset": "best"}),
    "tabr-s": Entry(TabRMethod, {}, "TabR-S"),
    "tabr-lr": Entry(TabRMethod, {"embedding": "lr"}, "TabR (LR)"),
    "tabr": Entry(TabRMethod, {"embedding": "plr-lite"}, "TabR (PLR-lite)"),
    **{
        name: Entry(TabRMethod, {"retrieval": name}, f"design {design}-self-scaled")
        for name, design in DESIGNS.items()
    },
    "modern-nca": Entry(ModernNCA),
    "tabm": Entry(TabM),
    "tabm-mini-ple": Entry(
        TabM, {"architecture": "tabm-mini", "embedding": "piecewise-linear"}
    ),
    "realmlp": Entry(RealMLP),
}

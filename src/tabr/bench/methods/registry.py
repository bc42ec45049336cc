"""The list of methods: one line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tabr.bench.methods.anp import ANP
from tabr.bench.methods.base import Method, Setting, Trial
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
from tabr.bench.methods.tabm import TabM
from tabr.bench.methods.tabr import TabRMethod
from tabr.bench.methods.xgboost import XGBoost


class Entry(NamedTuple):
    """A method, what its variant fixes, and its name in the published results."""

    method: type[Method]
    fixed: Mapping[str, Any] = {}
    published: str | None = None

    def make(self, setting: Setting, seed: int, **params: Any) -> Method:
        """Return a new learner."""
        return self.method(setting, seed, **{**self.fixed, **params})

    def space(self, trial: Trial) -> dict[str, Any]:
        """Choose parameters for `make`."""
        return self.method.space(trial, **self.fixed)


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
    "tabr-s": Entry(TabRMethod, {}, "TabR-S"),
    "tabr-lr": Entry(TabRMethod, {"embedding": "lr"}, "TabR (LR)"),
    "tabr": Entry(TabRMethod, {"embedding": "plr-lite"}, "TabR (PLR-lite)"),
    "step-0": Entry(TabRMethod, {"retrieval": "step-0"}, "design dp-qk-v-self-scaled"),
    "step-1": Entry(TabRMethod, {"retrieval": "step-1"}, "design dp-qk-yv-self-scaled"),
    "step-2": Entry(TabRMethod, {"retrieval": "step-2"}, "design l2-k-yv-self-scaled"),
    "step-3": Entry(TabRMethod, {"retrieval": "step-3"}, "design l2-k-yt-self-scaled"),
    "dp-k-v": Entry(TabRMethod, {"retrieval": "dp-k-v"}, "design dp-k-v-self-scaled"),
    "dp-k-yv": Entry(
        TabRMethod, {"retrieval": "dp-k-yv"}, "design dp-k-yv-self-scaled"
    ),
    "l2-k-v": Entry(TabRMethod, {"retrieval": "l2-k-v"}, "design l2-k-v-self-scaled"),
    "l2-qk-v": Entry(
        TabRMethod, {"retrieval": "l2-qk-v"}, "design l2-qk-v-self-scaled"
    ),
    "l2-qk-yv": Entry(
        TabRMethod, {"retrieval": "l2-qk-yv"}, "design l2-qk-yv-self-scaled"
    ),
    "modern-nca": Entry(ModernNCA),
    "tabm": Entry(TabM),
    "tabm-mini-ple": Entry(
        TabM, {"architecture": "tabm-mini", "embedding": "piecewise-linear"}
    ),
    "realmlp": Entry(RealMLP),
}

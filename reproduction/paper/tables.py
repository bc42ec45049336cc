"""Which models and sets each of the paper's tables has, and all their figures."""

from __future__ import annotations

import pandas as pd

from reproduction.paper import defaults, steps, timeline, times, win_tie_loss
from reproduction.paper.grid import SETS, Grid, Row, fill, to_frame
from reproduction.paper.scores import KINDS, Results
from reproduction.runs import RunKind

NETWORKS = (
    Row("kNN", ("knn",)),
    # The paper shows one-hot categories where there are categories.
    Row("DNNR", ("dnnr-one-hot", "dnnr")),
    Row("DKL", ("dkl",)),
    Row("ANP", ("anp",)),
    Row("SAINT", ("saint",)),
    Row("NPT", ("npt",)),
    Row("MLP", ("mlp",)),
    Row("MLP-PLR", ("mlp-plr",)),
    Row("TabR-S", ("tabr-s",)),
    Row("TabR", ("tabr", "tabr-lr")),
)
TUNED = (
    Row("XGBoost", ("xgboost",)),
    Row("CatBoost", ("catboost",)),
    Row("LightGBM", ("lightgbm",)),
    Row("TabR", ("tabr", "tabr-lr")),
)
DEFAULT = (
    Row("XGBoost", ("xgboost",), "default"),
    Row("CatBoost", ("catboost",), "default"),
    Row("LightGBM", ("lightgbm",), "default"),
    Row("TabR-S", ("tabr-s",), "default"),
)
NEIGHBORS = (
    Row("XGBoost", ("xgboost",)),
    Row("XGBoost + retrieval", ("xgboost-neighbors",)),
    Row("TabR", ("tabr", "tabr-lr")),
)


def design(results: Results) -> Grid:
    """Return the paper's table of design steps."""
    return fill(results, steps.STEPS, SETS[:10])


def ablation(results: Results) -> Grid:
    """Return the paper's table of the parts of Step-2."""
    return fill(results, steps.ABLATION, SETS[:9])


def networks(results: Results) -> Grid:
    """Return the paper's table of retrieval models and networks."""
    return fill(results, NETWORKS, SETS)


def trees(results: Results, kind: RunKind) -> dict[str, Grid]:
    """Return the paper's tables of boosted trees, by whose parameters they have."""
    return {
        "tuned": fill(results, TUNED, SETS, kind),
        "default": fill(results, DEFAULT, SETS, kind),
    }


def neighbors(results: Results, kind: RunKind) -> Grid:
    """Return the paper's table of trees that see the average neighbour."""
    return fill(results, NEIGHBORS, SETS, kind)


def frames(results: Results) -> dict[str, pd.DataFrame]:
    """Return all figures, by the name of their file."""
    of_trees = [to_frame(g) for k in KINDS for g in trees(results, k).values()]
    of_neighbors = [to_frame(neighbors(results, kind)) for kind in KINDS]
    of_second = [win_tie_loss.to_frame(results, kind) for kind in KINDS]
    return {
        "design": to_frame(design(results)),
        "design-order": steps.to_frame(steps.ordered_pairs(design(results))),
        "ablation": to_frame(ablation(results)),
        "networks": to_frame(networks(results)),
        "trees": pd.concat(of_trees, ignore_index=True),
        "xgboost-with-neighbors": pd.concat(of_neighbors, ignore_index=True),
        "second-benchmark": pd.concat(of_second, ignore_index=True),
        "timeline": timeline.to_frame(results),
        "defaults": defaults.to_frame(results, KINDS),
        "times": times.to_frame(times.timed(results)),
    }

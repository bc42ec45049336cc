"""The demo: TabR beside two baselines on a real table, and the rows it came from.

`run` computes, `render` writes plain text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tabr.cli.neighbor_view import (
    Case,
    case_lines,
    make_cases,
    picture_lines,
    telling_columns,
)
from tabr.estimators import TabRClassifier, TabRRegressor
from tabr.metrics import class_scores, value_scores

N_NEIGHBORS = [1, 3, 5, 10, 20, 40]  # the k that the baseline chooses from


class DemoTable(NamedTuple):
    """A table that comes with scikit-learn."""

    about: str
    load: Callable[[], tuple[pd.DataFrame, pd.Series[Any]]]
    classes: bool = True
    pictures: bool = False  # rows are 8 x 8 images


def _diabetes() -> tuple[pd.DataFrame, pd.Series[Any]]:
    from sklearn.datasets import load_diabetes

    table = load_diabetes(scaled=False, as_frame=True)
    names = "age sex bmi blood_pressure total_cholesterol ldl hdl cholesterol_ratio"
    columns = [*names.split(), "triglycerides_log", "glucose"]
    return table.data.set_axis(columns, axis=1), table.target.rename("progression")


def _classes(loader: str, target: str) -> tuple[pd.DataFrame, pd.Series[Any]]:
    from sklearn import datasets

    table = getattr(datasets, loader)(as_frame=True)
    labels = np.asarray(table.target_names)[table.target]
    columns = [str(name).replace(" ", "_") for name in table.data.columns]
    return table.data.set_axis(columns, axis=1), pd.Series(labels, name=target)


TABLES: Mapping[str, DemoTable] = {
    "diabetes": DemoTable(
        "442 patients; how far has their disease gone after a year?",
        _diabetes,
        classes=False,
    ),
    "breast-cancer": DemoTable(
        "569 tumours, measured under the microscope; malignant or benign?",
        lambda: _classes("load_breast_cancer", "diagnosis"),
    ),
    "wine": DemoTable(
        "178 wines, analysed chemically; which of three growers made them?",
        lambda: _classes("load_wine", "grower"),
    ),
    "digits": DemoTable(
        "1,797 images of 8 x 8 pixels; which digit was written?",
        lambda: _classes("load_digits", "digit"),
        pictures=True,
    ),
}


@dataclass(frozen=True)
class Result:
    """What the demo found."""

    table: str
    n_train: int
    n_test: int
    n_columns: int
    scores: dict[str, dict[str, float]]  # by model, then by name; and seconds
    cases: list[Case]
    ranked: list[str]  # columns, those first in which neighbours differ most


def split(
    name: str, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame, pd.Series[Any], pd.Series[Any]]:
    """Return training rows, test rows (a fifth) and the labels of both."""
    from sklearn.model_selection import train_test_split

    frame, y = TABLES[name].load()
    strata = y if TABLES[name].classes else None
    parts: tuple[pd.DataFrame, pd.DataFrame, pd.Series[Any], pd.Series[Any]] = (
        train_test_split(frame, y, test_size=0.2, random_state=seed, stratify=strata)
    )
    return parts


def baselines(classes: bool) -> dict[str, Any]:
    """Return gradient boosting as it comes, and nearest neighbours with a good k."""
    from sklearn import ensemble, neighbors
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    kind = "Classifier" if classes else "Regressor"
    boosting = getattr(ensemble, f"HistGradientBoosting{kind}")(random_state=0)
    nearest = getattr(neighbors, f"KNeighbors{kind}")()
    search = GridSearchCV(
        Pipeline([("scale", StandardScaler()), ("nearest", nearest)]),
        {"nearest__n_neighbors": N_NEIGHBORS},
        scoring="accuracy" if classes else "neg_root_mean_squared_error",
        cv=5,
    )
    return {"gradient boosting": boosting, "nearest neighbours": search}


def make_model(
    name: str, n_members: int, seed: int = 0, **params: Any
) -> TabRClassifier | TabRRegressor:
    """Return a model for a table of TABLES that is not fitted yet."""
    kind = TabRClassifier if TABLES[name].classes else TabRRegressor
    return kind(n_members=n_members, random_state=seed, **params)


def run(
    name: str,
    n_members: int,
    *,
    seed: int = 0,
    seconds: float = 90,
    verbose: bool = False,
    say: Callable[[str], None] = lambda text: None,
    **params: Any,
) -> Result:
    """Fit TabR and the baselines on a table of TABLES and score them on test rows.

    After `seconds`, shared by its members, TabR begins no epoch. `say` takes a line
    about what comes next; `params` are further parameters of TabR.
    """
    classes = TABLES[name].classes
    train, test, y_train, y_test = split(name, seed)
    params = {"time_limit": seconds / n_members, "verbose": verbose, **params}
    model = make_model(name, n_members, seed, **params)
    title = "TabR" if n_members == 1 else f"TabR, {n_members} members"
    scores: dict[str, dict[str, float]] = {}
    for label, estimator in {title: model, **baselines(classes)}.items():
        say(f"fitting {label} on {len(train)} rows of {name}")
        start = time.perf_counter()
        estimator.fit(train, y_train)
        spent = time.perf_counter() - start
        if classes:
            codes = pd.Index(estimator.classes_).get_indexer(pd.Index(y_test))
            found = class_scores(codes, estimator.predict_proba(test))
        else:
            found = value_scores(y_test.to_numpy(), estimator.predict(test))
        if estimator is model:
            late = any(m.history.stopped == "time_limit" for m in model.members_)
            label += " (out of time)" if late else ""
        elif hasattr(estimator, "best_params_"):
            label += f", k = {estimator.best_params_['nearest__n_neighbors']}"
        kept = ("accuracy", "log-loss") if classes else ("RMSE", "R2")
        scores[label] = {**{key: found[key] for key in kept}, "seconds": spent}
    cases = [
        Case(int(test.index[k]), c.prediction, c.columns, c.neighbors, y_test.iloc[k])
        for k, c in enumerate(make_cases(model, test, [0, 1, 2], m=5))
    ]
    ranked = telling_columns(model, cases)
    return Result(name, len(train), len(test), train.shape[1], scores, cases, ranked)


def render(result: Result, width: int = 80) -> str:
    """Write the result as plain text."""
    table = TABLES[result.table]
    lines = [
        f"{result.table}: {table.about}",
        f"Fitted on {result.n_train} rows of {result.n_columns} columns, tested on"
        f" {result.n_test} other rows.",
        "",
    ]
    names = list(next(iter(result.scores.values())))
    left = max(map(len, result.scores))
    lines.append(" " * left + "".join(name.rjust(11) for name in names))
    for model, s in result.scores.items():
        cells = [f"{s[k]:.1f}" if k == "seconds" else f"{s[k]:.4g}" for k in s]
        lines.append(model.ljust(left) + "".join(text.rjust(11) for text in cells))
    lines += [
        "",
        "One split of a small table: a look, not a benchmark.",
        "",
        "The first three test rows, each with the five training rows that"
        " weighed most:",
    ]
    if table.pictures:
        lines += picture_lines(result.cases, width)
    else:
        lines += case_lines(result.cases, result.ranked, width)
    kind = "TabRClassifier" if table.classes else "TabRRegressor"
    lines += [
        "",
        "Next:    tabr fit your.csv --target COL -o model.tabr",
        f"Python:  from tabr import {kind}; model = {kind}().fit(X, y)",
    ]
    return "\n".join(lines)

"""The command `demo`: TabR beside two baselines on a real table.

`run` computes, `render` writes plain text.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tabr.cli import options
from tabr.cli.messages import Result, common, say, terminal_width

if TYPE_CHECKING:
    import pandas as pd

    from tabr.cli.neighbor_view import Case

    Parts = tuple[pd.DataFrame, pd.DataFrame, pd.Series[Any], pd.Series[Any]]

N_NEIGHBORS = [1, 3, 5, 10, 20, 40]  # the k that the baseline chooses from


class DemoTable(NamedTuple):
    """A table that comes with scikit-learn."""

    target: str
    about: str
    kind: str = "Classifier"  # or "Regressor", as names of estimators end


TABLES = {
    "diabetes": DemoTable(
        "progression",
        "442 patients; how far has their disease gone after a year?",
        kind="Regressor",
    ),
    "breast-cancer": DemoTable(
        "diagnosis", "569 tumours, measured under the microscope; malignant or benign?"
    ),
    "wine": DemoTable(
        "grower", "178 wines, analysed chemically; which of three growers made them?"
    ),
    "digits": DemoTable(
        "digit", "1,797 images of 8 x 8 pixels; which digit was written?"
    ),
}
DIABETES_COLUMNS = (
    "age sex bmi blood_pressure total_cholesterol ldl hdl cholesterol_ratio"
    " triglycerides_log glucose"
)


def load(name: str) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Return the rows and the labels of a table of TABLES, with readable names."""
    import numpy as np
    import pandas as pd
    from sklearn import datasets

    if name == "diabetes":
        table = datasets.load_diabetes(scaled=False, as_frame=True)
        columns, labels = DIABETES_COLUMNS.split(), table.target
    else:
        table = getattr(datasets, f"load_{name.replace('-', '_')}")(as_frame=True)
        columns = [str(column).replace(" ", "_") for column in table.data]
        labels = pd.Series(np.asarray(table.target_names)[table.target])
    return table.data.set_axis(columns, axis=1), labels.rename(TABLES[name].target)


@dataclass(frozen=True)
class Comparison:
    """Scores of the methods, and a few rows with their neighbours."""

    table: str
    n_train: int
    n_test: int
    n_columns: int
    scores: dict[str, dict[str, float]]  # by model, then by name; and seconds
    cases: list[Case]
    columns: list[str]  # those first in which neighbours differ most


def split(name: str, seed: int = 0) -> Parts:
    """Return training rows, test rows (a fifth) and the labels of each."""
    from sklearn.model_selection import train_test_split

    frame, y = load(name)
    strata = y if TABLES[name].kind == "Classifier" else None
    parts: Parts = tuple(
        train_test_split(frame, y, test_size=0.2, random_state=seed, stratify=strata)
    )
    return parts


def make_models(
    name: str, n_members: int, seed: int = 0, **params: Any
) -> dict[str, Any]:
    """Return TabR, boosting as it comes, and nearest neighbours with a good k."""
    from sklearn import ensemble, neighbors
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    from tabr import estimators

    kind = TABLES[name].kind
    tabr = getattr(estimators, f"TabR{kind}")
    boosting = getattr(ensemble, f"HistGradientBoosting{kind}")
    nearest = getattr(neighbors, f"KNeighbors{kind}")
    search = GridSearchCV(
        Pipeline([("scale", StandardScaler()), ("nearest", nearest())]),
        {"nearest__n_neighbors": N_NEIGHBORS},
        scoring="accuracy" if kind == "Classifier" else "neg_root_mean_squared_error",
        cv=5,
    )
    title = "TabR" if n_members == 1 else f"TabR, {n_members} members"
    return {
        title: tabr(n_members=n_members, random_state=seed, **params),
        "gradient boosting": boosting(random_state=0),
        "nearest neighbours": search,
    }


def run(
    name: str, n_members: int, *, seed: int = 0, seconds: float = 90, **params: Any
) -> Comparison:
    """Fit TabR and the baselines on a table of TABLES and score them on test rows.

    TabR may take so many `seconds`. `params` are further parameters of TabR.
    """
    from tabr.cli.neighbor_view import differing_columns, make_cases

    parts = split(name, seed)
    train, test, _, y_test = parts
    params["time_limit"] = seconds
    models = make_models(name, n_members, seed, **params)
    model, *_ = models.values()
    scores: dict[str, dict[str, float]] = {}
    for label, estimator in models.items():
        say(f"fitting {label} on {len(train)} rows of {name}")
        scores_of_method = _fit_and_score(estimator, parts)
        if estimator is model:
            late = len(model.members_) < n_members or any(
                member.history.stopped == "time_limit" for member in model.members_
            )
            label += " (out of time)" if late else ""
        elif hasattr(estimator, "best_params_"):
            label += f", k = {estimator.best_params_['nearest__n_neighbors']}"
        scores[label] = scores_of_method
    cases = [
        dataclasses.replace(case, row=int(test.index[k]), truth=y_test.iloc[k])
        for k, case in enumerate(make_cases(model, test, [0, 1, 2], m=5))
    ]
    columns = differing_columns(model, cases)
    return Comparison(
        name, len(train), len(test), train.shape[1], scores, cases, columns
    )


def _fit_and_score(estimator: Any, parts: Parts) -> dict[str, float]:
    """Return two scores on the test rows, and the seconds that the fit took."""
    import pandas as pd

    from tabr.metrics import class_scores, value_scores

    train, test, y_train, y_test = parts
    start = time.perf_counter()
    estimator.fit(train, y_train)
    seconds = time.perf_counter() - start
    if hasattr(estimator, "classes_"):
        codes = pd.Index(estimator.classes_).get_indexer(pd.Index(y_test))
        scores = class_scores(codes, estimator.predict_proba(test))
        names = ("accuracy", "log-loss")
    else:
        scores = value_scores(y_test.to_numpy(), estimator.predict(test))
        names = ("RMSE", "R2")
    return {**{name: scores[name] for name in names}, "seconds": seconds}


def render(result: Comparison, width: int = 80) -> str:
    """Return the result as plain text."""
    from tabr.cli.neighbor_view import case_lines, picture_lines
    from tabr.text import aligned, score

    table = TABLES[result.table]
    rows = [["", *next(iter(result.scores.values()))]]
    for method, scores in result.scores.items():
        *values, seconds = scores.values()
        rows.append([method, *map(score, values), f"{seconds:.1f}"])
    lines = [
        f"{result.table}: {table.about}",
        f"Fitted on {result.n_train} rows of {result.n_columns} columns, tested on"
        f" {result.n_test} other rows.",
        "",
        *aligned(rows, "lr", gap=4),
        "",
        "One split of a small table: a look, not a benchmark.",
        "",
        "The first three test rows, each with the five training rows that"
        " weighed most:",
    ]
    if result.table == "digits":
        lines += picture_lines(result.cases, width)
    else:
        lines += case_lines(result.cases, result.columns, width)
    kind = f"TabR{table.kind}"
    lines += [
        "",
        "Next:    tabr fit your.csv --target COL -o model.tabr",
        f"Python:  from tabr import {kind}; model = {kind}().fit(X, y)",
    ]
    return "\n".join(lines)


@click.command()
@click.option(
    "--table",
    type=click.Choice(list(TABLES)),
    default=next(iter(TABLES)),
    help="Which table of scikit-learn.",
)
@options.members(default=5, help="Networks whose predictions are averaged.")
@click.option("--serve", "served", is_flag=True, help="Serve the model over HTTP.")
@options.port
@common
def demo(table: str, n_members: int, served: bool, port: int) -> Result:
    """Fit TabR and two baselines on a real table, without a download."""
    if served:
        _serve(table, n_members, port)
        return Result({})
    result = run(table, n_members, verbose=sys.stderr.isatty())
    record = dataclasses.asdict(result)
    del record["columns"]
    return Result(record, render(result, terminal_width()))


def _serve(table: str, n_members: int, port: int) -> None:
    """Fit a model on a table of the demo and serve it, until it is ended."""
    from tabr.cli.serve import check_libraries

    check_libraries()
    from tabr.serving.run import Address, serve

    train, _, y_train, _ = split(table)
    say(f"fitting TabR on {len(train)} rows of {table}")
    model, *_ = make_models(table, n_members).values()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{table}.tabr"
        model.fit(train, y_train).save(path)
        serve(path, Address(port=port))

"""The demo: TabR beside two baselines on a real table, and the rows it came from.

`run` computes, `render` writes plain text. The scores and the tables of neighbours
are also what the commands `evaluate` and `neighbors` show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.estimators import TabRClassifier, TabRRegressor

Model = TabRClassifier | TabRRegressor

MAX_COLUMNS = 6  # of a table's columns beside weights and labels
BAR = 10  # characters of the longest bar
EIGHTHS = " ▏▎▍▌▋▊▉"
SHADES = " ░▒▓█"
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


# --- scores -------------------------------------------------------------------


def value_scores(y: NDArray[Any], values: NDArray[Any]) -> dict[str, float]:
    """Return the scores of predicted values (n,); R2 is nan where y is constant."""
    y = np.asarray(y, float)
    error, spread = y - values, float(np.square(y - y.mean()).sum())
    r2 = 1 - float(np.square(error).sum()) / spread if spread > 0 else float("nan")
    rmse, mae = np.sqrt(np.mean(error**2)), np.mean(np.abs(error))
    return {"RMSE": float(rmse), "MAE": float(mae), "R2": r2}


def class_scores(codes: NDArray[Any], proba: NDArray[Any]) -> dict[str, float]:
    """Return the scores of probabilities (n, classes) for the true codes (n,)."""
    from sklearn.metrics import roc_auc_score

    hit = proba.argmax(1) == codes
    present = np.unique(codes)
    own = np.clip(proba[np.arange(len(codes)), codes], np.finfo(float).eps, 1)
    scores = {
        "accuracy": float(hit.mean()),
        "balanced accuracy": float(np.mean([hit[codes == c].mean() for c in present])),
        "log-loss": float(-np.log(own).mean()),
    }
    if proba.shape[1] == 2:
        both = len(present) == 2
        auc = roc_auc_score(codes, proba[:, 1]) if both else float("nan")
        scores["ROC AUC"] = float(auc)
    return scores


# --- rows and their neighbours ------------------------------------------------


@dataclass(frozen=True)
class Neighbor:
    """A candidate that a prediction came from."""

    id: int
    weight: float
    distance: float
    label: Any
    columns: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A row, what was predicted for it, and from which candidates."""

    row: int
    prediction: Any
    columns: dict[str, Any]
    neighbors: list[Neighbor]  # heaviest first
    truth: Any = None


def make_cases(
    model: Model, frame: pd.DataFrame, rows: list[int], m: int
) -> list[Case]:
    """Return the rows at these positions with their m heaviest neighbours."""
    chosen = frame.iloc[rows].reset_index(drop=True)
    predictions, table = model.predict(chosen), model.neighbors(chosen)
    candidates = model.candidates_
    if not set(model.preprocessor_.kinds_) <= set(chosen.columns):
        chosen = chosen.set_axis(candidates.frame.columns, axis=1)  # a nameless fit
    ids = table.ids[:, :m]
    distinct = np.unique(ids[ids >= 0])
    columns = dict(zip(distinct, _records(candidates.look_up(distinct)), strict=True))
    label = dict(zip(candidates.ids, candidates.y, strict=True))

    def neighbor(k: int, j: int) -> Neighbor:
        id = int(ids[k, j])
        weight, distance = float(table.weights[k, j]), float(table.distances[k, j])
        return Neighbor(id, weight, distance, label[id], columns[id])

    return [
        Case(
            rows[k],
            predictions[k],
            record,
            [neighbor(k, j) for j in range(ids.shape[1]) if ids[k, j] >= 0],
        )
        for k, record in enumerate(_records(chosen))
    ]


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = frame.to_dict("records")  # type: ignore[assignment]
    return records


def telling_columns(model: Model, cases: list[Case]) -> list[str]:
    """Return the model's columns, those first in which neighbours differ most.

    A number differs by standard deviations of the candidates, any other value by 1.
    """
    frame = model.candidates_.frame
    differences = {}
    for name in model.preprocessor_.kinds_:
        both = [(c.columns[name], n.columns[name]) for c in cases for n in c.neighbors]
        numeric = pd.api.types.is_numeric_dtype(frame[name].dtype)
        if numeric and not pd.api.types.is_bool_dtype(frame[name].dtype):
            cells = [pd.to_numeric(pd.Series(part)) for part in zip(*both, strict=True)]
            scale = float(frame[name].std()) or 1.0
            gaps = (cells[0] - cells[1]).abs().to_numpy(float, na_value=np.nan) / scale
            differences[name] = float(np.nan_to_num(gaps, nan=1.0).sum())
        else:
            differences[name] = float(sum(cell(a) != cell(b) for a, b in both))
    return sorted(differences, key=lambda name: -differences[name])


def case_lines(
    cases: list[Case], ranked: list[str], width: int, *, distances: bool = False
) -> list[str]:
    """Write each case as an aligned table with as many columns as fit the width."""
    blocks = [_case_rows(case, ranked, distances) for case in cases]
    n_fixed = 2 + distances
    lines = [line for block in blocks for line in block]
    sizes = [max(map(len, column)) for column in zip(*lines, strict=True)]
    room = width - 2 - sum(sizes[:n_fixed]) - 2 * (n_fixed - 1)
    shown: list[int] = []
    for k in range(n_fixed, len(sizes)):
        if len(shown) < MAX_COLUMNS and sizes[k] + 2 <= room:
            shown.append(k)
            room -= sizes[k] + 2
    names = list(cases[0].columns)
    shown.sort(key=lambda k: names.index(ranked[k - n_fixed]))
    shown = [*range(n_fixed), *shown]
    written = []
    for case, block in zip(cases, blocks, strict=True):
        truth = "" if case.truth is None else f", truth {cell(case.truth)}"
        written += ["", f"row {case.row}: prediction {cell(case.prediction)}{truth}"]
        for line in block:
            first, *rest = ((line[k], sizes[k]) for k in shown)
            cells = [first[0].ljust(first[1]), *(t.rjust(size) for t, size in rest)]
            written.append("  " + "  ".join(cells).rstrip())
    return written


def _case_rows(case: Case, ranked: list[str], distances: bool) -> list[list[str]]:
    def line(first: str, distance: str, label: str, values: list[str]) -> list[str]:
        return [first, *([distance] if distances else []), label, *values]

    largest = max((n.weight for n in case.neighbors), default=1.0) or 1.0
    own = [cell(case.columns.get(name)) for name in ranked]
    label = "?" if case.truth is None else cell(case.truth)
    rows = [line("weight", "distance", "label", ranked)]
    rows.append(line("this row", "", label, own))
    for n in case.neighbors:
        full, eighths = divmod(round(8 * BAR * n.weight / largest), 8)
        bar = "█" * full + EIGHTHS[eighths]
        values = [cell(n.columns[name]) for name in ranked]
        shares = f"{n.weight:6.1%} {bar}", f"{n.distance:.3g}"
        rows.append(line(*shares, cell(n.label), values))
    return rows


def picture_lines(cases: list[Case], width: int) -> list[str]:
    """Write each case as pictures side by side: the row, then its neighbours."""
    lines = []
    for case in cases:
        parts = [(case.columns, "this row", f"truth {cell(case.truth)}")]
        parts += [
            (n.columns, f"weight {n.weight:.0%}", f"label {cell(n.label)}")
            for n in case.neighbors
        ]
        pictures = [[*_picture(c), weight, label] for c, weight, label in parts]
        fitting = pictures[: max(2, (width + 2) // 13)]
        lines += ["", f"row {case.row}: prediction {cell(case.prediction)}"]
        lines += [
            "  ".join(text.ljust(11) for text in row).rstrip()
            for row in zip(*fitting, strict=True)
        ]
    return lines


def _picture(columns: dict[str, Any]) -> list[str]:
    """Draw 64 pixels of 0 to 16 as 8 lines of 11 characters, which are tall."""
    pixels = np.array(list(columns.values()), dtype=float).reshape(8, 8)
    at = np.linspace(0, 7, 11)
    wide = np.array([np.interp(at, np.arange(8), line) for line in pixels])
    shades = np.rint(wide / 16 * (len(SHADES) - 1)).astype(int)
    return ["".join(SHADES[shade] for shade in line) for line in shades]


def cell(value: Any) -> str:
    """Write one value shortly."""
    if isinstance(value, float | np.floating) and not np.isnan(value):
        number = float(value)
        return f"{number:.0f}" if abs(number) >= 1e4 else f"{number:.4g}"
    text = "-" if pd.isna(value) else str(value).removesuffix(" 00:00:00")  # of a date
    return text if len(text) <= 18 else f"{text[:17]}…"


# --- the demo -----------------------------------------------------------------


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
    kind = TabRClassifier if classes else TabRRegressor
    params = {"time_limit": seconds / n_members, "verbose": verbose, **params}
    model = kind(n_members=n_members, random_state=seed, **params)
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

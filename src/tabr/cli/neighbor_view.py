"""Rows with the neighbours their predictions came from, as plain text."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import is_classifier

from tabr.estimators import TabRClassifier, TabRRegressor
from tabr.prediction.explanation import member_words
from tabr.text import aligned, percent
from tabr.text import cell as long_cell

Model = TabRClassifier | TabRRegressor

FIXED = ("weight", "distance", "effect", "label", "corrected")
MAX_COLUMNS = 6  # of the table, next to weights and labels
BAR = 10  # characters of the longest bar
EIGHTHS = " ▏▎▍▌▋▊▉"
SHADES = " ░▒▓█"

# A line of a terminal has to hold many.
cell = functools.partial(long_cell, digits=4, longest=18)


@dataclass(frozen=True)
class Neighbor:
    """A candidate that a prediction came from."""

    id: int
    weight: float
    distance: float
    label: Any
    columns: dict[str, Any]
    effect: float | None = None
    correction: float | None = None


@dataclass(frozen=True)
class Case:
    """A row, what was predicted for it, and from which candidates."""

    row: int
    prediction: Any
    columns: dict[str, Any]
    neighbors: list[Neighbor]  # heaviest first
    truth: Any = None
    alone: float | None = None  # the prediction without neighbours
    share: float | None = None  # of it that came from retrieval
    probability: float | None = None  # of the predicted class
    members: list[dict[str, Any]] | None = None  # recipe, weight, prediction of each


def make_cases(
    model: Model, frame: pd.DataFrame, rows: list[int], m: int, *, effects: bool = False
) -> list[Case]:
    """Return the rows at these positions with their m heaviest neighbours.

    With `effects`, which take longer, also what each neighbour did to the prediction.
    """
    chosen = frame.iloc[rows].reset_index(drop=True)
    of_rows: dict[str, Any] = {"row": rows}
    of_neighbors: dict[str, Any] = {}
    if effects:
        explanation = model.explain(chosen)
        table, labels = explanation.table, explanation.labels
        answers, scores = explanation.answers, explanation.predictions
        of_rows |= {"alone": explanation.alone, "share": explanation.share}
        of_rows["members"] = [*map(explanation.members.of_row, range(len(chosen)))]
        of_neighbors["effect"] = explanation.effects
        if explanation.corrections is not None:
            of_neighbors["correction"] = explanation.corrections
    else:
        scores, table, labels = model.signals(chosen)
        answers = model.target_.answers(scores)
    if is_classifier(model):
        of_rows["probability"] = scores if effects else scores.max(1)
    candidates = model.candidates_
    if not set(model.preprocessor_.kinds_) <= set(chosen.columns):
        chosen = chosen.set_axis(candidates.frame.columns, axis=1)  # a nameless fit
    of_rows |= {"prediction": answers, "columns": chosen.to_dict("records")}
    of_neighbors |= {"id": table.ids, "label": labels}
    of_neighbors |= {"weight": table.weights, "distance": table.distances}
    ids = table.ids[:, :m]
    distinct = np.unique(ids[ids >= 0])
    records = candidates.look_up(distinct).to_dict("records")
    columns = dict(zip(distinct, records, strict=True))

    def neighbor(k: int, j: int) -> Neighbor:
        values = {name: part[k, j] for name, part in of_neighbors.items()}
        return Neighbor(columns=columns[ids[k, j]], **values)

    return [
        Case(
            neighbors=[neighbor(k, j) for j in range(ids.shape[1]) if ids[k, j] >= 0],
            **{name: part[k] for name, part in of_rows.items()},
        )
        for k in range(len(rows))
    ]


def differing_columns(model: Model, cases: list[Case]) -> list[str]:
    """Return the model's columns, those first in which neighbours differ most.

    A number differs by standard deviations of the candidates, any other value by 1.
    """
    frame = model.candidates_.frame
    differences = {}
    for name in model.preprocessor_.kinds_:
        pairs = [(c.columns[name], n.columns[name]) for c in cases for n in c.neighbors]
        numeric = pd.api.types.is_numeric_dtype(frame[name].dtype)
        if pairs and numeric and not pd.api.types.is_bool_dtype(frame[name].dtype):
            rows, others = (pd.Series(part) for part in zip(*pairs, strict=True))
            gaps = (pd.to_numeric(rows) - pd.to_numeric(others)).abs()
            scaled = gaps.to_numpy(float, na_value=np.nan) / (frame[name].std() or 1.0)
            differences[name] = float(np.nan_to_num(scaled, nan=1.0).sum())
        else:
            differences[name] = float(sum(cell(a) != cell(b) for a, b in pairs))
    return sorted(differences, key=lambda name: -differences[name])


def case_lines(
    cases: list[Case], columns: list[str], width: int, *, distances: bool = False
) -> list[str]:
    """Return each case as an aligned table with as many columns as fit the width.

    Columns are taken from the left of `columns`, and shown in the order of the table.
    """
    blocks = [_case_rows(case, columns) for case in cases]
    rows = [row for block in blocks for row in block]
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    explained = any(case.share is not None for case in cases)
    corrected = any(n.correction is not None for case in cases for n in case.neighbors)
    kept = (True, distances, explained, True, corrected)
    shown = list(itertools.compress(range(len(FIXED)), kept))
    room = width - sum(sizes[k] + 2 for k in shown)
    places: dict[str, int] = {}
    for k, name in enumerate(columns, len(FIXED)):
        if len(places) < MAX_COLUMNS and sizes[k] + 2 <= room:
            places[name] = k
            room -= sizes[k] + 2
    shown += [places[name] for name in cases[0].columns if name in places]
    table = iter(aligned([[row[k] for k in shown] for row in rows], "lr"))
    lines = []
    for case, block in zip(cases, blocks, strict=True):
        lines += ["", _title(case), *(f"  {next(table)}" for _ in block)]
    return lines


def _title(case: Case) -> str:
    title = f"row {case.row}: prediction {cell(case.prediction)}"
    if case.probability is not None:
        title += f" ({percent(case.probability)})"
    if case.truth is not None:
        title += f", truth {cell(case.truth)}"
    if case.share is None or case.alone is None:
        return title
    write = cell if case.probability is None else percent
    said = [member["prediction"] for member in case.members or ()]
    parts = [
        title,
        f"without neighbours {write(case.alone)}",
        f"{case.share:.0%} from retrieval",
        member_words(said, write),
    ]
    return ", ".join(filter(None, parts))


def _case_rows(case: Case, columns: list[str]) -> list[list[str]]:
    """Return the cells of a header, the row itself and its neighbours."""
    label = "?" if case.truth is None else cell(case.truth)
    values = [cell(case.columns.get(name)) for name in columns]
    rows = [[*FIXED, *columns], ["this row", "", "", label, "", *values]]
    largest = max((n.weight for n in case.neighbors), default=1.0) or 1.0
    distance_decimals = _decimals([n.distance for n in case.neighbors])
    effect_decimals = _decimals([n.effect or 0.0 for n in case.neighbors])
    for n in case.neighbors:
        full, eighths = divmod(round(8 * BAR * n.weight / largest), 8)
        fixed = [
            f"{n.weight:6.1%} {'█' * full}{EIGHTHS[eighths]}",
            f"{n.distance:.{distance_decimals}f}",
            "" if n.effect is None else f"{n.effect:+.{effect_decimals}f}",
            cell(n.label),
            "" if n.correction is None else cell(n.label + n.correction),
        ]
        rows.append([*fixed, *(cell(n.columns[name]) for name in columns)])
    return rows


def _decimals(values: list[float]) -> int:
    """Return how many decimals give the largest value three digits."""
    largest = max(map(abs, values), default=0.0)
    if not 0 < largest < np.inf:
        return 0
    return int(np.clip(2 - np.floor(np.log10(largest)), 0, 8))


def picture_lines(cases: list[Case], width: int) -> list[str]:
    """Return each case as pictures side by side: the row, then its neighbours."""
    lines = []
    for case in cases:
        parts = [(case.columns, "this row", f"truth {cell(case.truth)}")]
        parts += [
            (n.columns, f"weight {n.weight:.0%}", f"label {cell(n.label)}")
            for n in case.neighbors
        ]
        pictures = [[*_picture(c), weight, label] for c, weight, label in parts]
        fitting = pictures[: max(2, (width + 2) // 13)]
        lines += ["", _title(replace(case, truth=None))]  # it is below the picture
        lines += [
            "  ".join(text.ljust(11) for text in row).rstrip()
            for row in zip(*fitting, strict=True)
        ]
    return lines


def _picture(columns: dict[str, Any]) -> list[str]:
    """Return 64 pixels of 0 to 16 as 8 lines of 11 characters, which are tall."""
    pixels = np.array(list(columns.values()), dtype=float).reshape(8, 8)
    at = np.linspace(0, 7, 11)
    wide = np.array([np.interp(at, np.arange(8), line) for line in pixels])
    shades = np.rint(wide / 16 * (len(SHADES) - 1)).astype(int)
    return ["".join(SHADES[shade] for shade in line) for line in shades]

"""Rows with the neighbours their predictions came from, as plain text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tabr.estimators import TabRClassifier, TabRRegressor
from tabr.prediction.explanation import Explanation

Model = TabRClassifier | TabRRegressor

MAX_COLUMNS = 6  # of a table's columns beside weights and labels
BAR = 10  # characters of the longest bar
EIGHTHS = " ▏▎▍▌▋▊▉"
SHADES = " ░▒▓█"


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


def make_cases(
    model: Model, frame: pd.DataFrame, rows: list[int], m: int, *, effects: bool = False
) -> list[Case]:
    """Return the rows at these positions with their m heaviest neighbours.

    What each neighbour did to the prediction is told when asked for: it takes longer.
    """
    chosen = frame.iloc[rows].reset_index(drop=True)
    found: Explanation | None = None
    if effects:
        found = model.explain(chosen)
        predictions, table = found.answers, found.table
    else:
        values, table, _ = model.signals(chosen)
        predictions = model.target_.answers(values)
    candidates = model.candidates_
    if not set(model.preprocessor_.kinds_) <= set(chosen.columns):
        chosen = chosen.set_axis(candidates.frame.columns, axis=1)  # a nameless fit
    ids = table.ids[:, :m]
    distinct = np.unique(ids[ids >= 0])
    columns = dict(zip(distinct, _records(candidates.look_up(distinct)), strict=True))
    label = dict(zip(distinct, candidates.y_of(distinct), strict=True))

    def neighbor(k: int, j: int) -> Neighbor:
        id = int(ids[k, j])
        weight, distance = float(table.weights[k, j]), float(table.distances[k, j])
        known = id, weight, distance, label[id], columns[id]
        if found is None:
            return Neighbor(*known)
        correction = None
        if found.corrections is not None:
            correction = float(found.corrections[k, j])
        return Neighbor(*known, float(found.effects[k, j]), correction)

    return [
        Case(
            rows[k],
            predictions[k],
            record,
            [neighbor(k, j) for j in range(ids.shape[1]) if ids[k, j] >= 0],
            alone=None if found is None else float(found.alone[k]),
            share=None if found is None else float(found.share[k]),
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
    n_fixed = len(blocks[0][0]) - len(ranked)
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
        title = f"row {case.row}: prediction {cell(case.prediction)}{truth}"
        if case.share is not None:
            title += f", without neighbours {cell(case.alone)}"
            title += f", {case.share:.0%} from retrieval"
        written += ["", title]
        for line in block:
            first, *rest = ((line[k], sizes[k]) for k in shown)
            cells = [first[0].ljust(first[1]), *(t.rjust(size) for t, size in rest)]
            written.append("  " + "  ".join(cells).rstrip())
    return written


def _case_rows(case: Case, ranked: list[str], distances: bool) -> list[list[str]]:
    explained = case.share is not None
    corrected = any(n.correction is not None for n in case.neighbors)

    def line(
        first: str, distance: str, effect: str, label: str, mended: str, *values: str
    ) -> list[str]:
        fixed = [first, *([distance] if distances else [])]
        fixed += [*([effect] if explained else []), label]
        return [*fixed, *([mended] if corrected else []), *values]

    largest = max((n.weight for n in case.neighbors), default=1.0) or 1.0
    own = [cell(case.columns.get(name)) for name in ranked]
    label = "?" if case.truth is None else cell(case.truth)
    rows = [line("weight", "distance", "effect", "label", "corrected", *ranked)]
    rows.append(line("this row", "", "", label, "", *own))
    for n in case.neighbors:
        full, eighths = divmod(round(8 * BAR * n.weight / largest), 8)
        bar = "█" * full + EIGHTHS[eighths]
        values = [cell(n.columns[name]) for name in ranked]
        effect = "" if n.effect is None else f"{n.effect:+.3g}"
        mended = "" if n.correction is None else cell(n.label + n.correction)
        shares = f"{n.weight:6.1%} {bar}", f"{n.distance:.3g}", effect
        rows.append(line(*shares, cell(n.label), mended, *values))
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

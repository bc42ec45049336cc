"""A few rows with the neighbours that their predictions came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.errors import DataError
from tabr.prediction.explanation import Explanation
from tabr.report.columns import as_numbers
from tabr.report.evaluation import Evaluation
from tabr.tables.cells import ColumnKind
from tabr.text import cell, decimals_of, fixed, percent

N_NEIGHBORS = 6
MOST_COLUMNS = 10  # of a table; those in which neighbours differ most
DIFFERS, DIFFERS_MUCH = 0.25, 1.0  # in standard deviations of the candidates

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """A value, and how far it is from the row's: 0 near, 1 apart, 2 far."""

    text: str
    apart: int = 0


@dataclass(frozen=True)
class NeighborLine:
    """A neighbour: all but `bar` as text."""

    id: int
    weight: str
    bar: float  # the weight as a share of the heaviest
    effect: str
    label: str
    corrected: str
    cells: list[Cell]


@dataclass(frozen=True)
class Example:
    """A row, why it was chosen, and where its prediction came from."""

    why: str
    row: int
    at: int  # position among the evaluation's rows
    truth: str
    prediction: str
    alone: str
    share: str
    columns: list[str]
    values: list[str]  # of the row
    lines: list[NeighborLine]
    n_neighbors: int
    n_hidden: int  # columns that are not shown


@dataclass(frozen=True)
class ValueTexts:
    """How values are written: all of a column with equally many decimals.

    Attributes:
        decimals: Of numeric columns, by name.
        label_decimals: Of labels; None for classes.
    """

    decimals: dict[str, int]
    label_decimals: int | None

    def value(self, name: str, value: Any) -> str:
        """Return a value of a column as text."""
        is_number = isinstance(value, int | float | np.integer | np.floating)
        if name not in self.decimals or not is_number or isinstance(value, bool):
            return cell(value)
        return fixed(float(value), self.decimals[name])

    def label(self, value: Any) -> str:
        """Return a label as text."""
        if self.label_decimals is None:
            return cell(value)
        return fixed(float(value), self.label_decimals)

    def effect(self, value: float) -> str:
        """Return an effect: of a number in its unit, of a probability in percent."""
        if self.label_decimals is None:
            text = f"{100 * value:+.2f}%"
        else:
            text = fixed(value, self.label_decimals + 1)
            text = text if text.startswith("-") else f"+{text}"
        # What is rounded to nothing has no sign.
        return text if any(digit in text for digit in "123456789") else text[1:]


def value_texts(evaluation: Evaluation) -> ValueTexts:
    """Return the texts with as many decimals as tell the candidates' values apart."""
    candidates = evaluation.model.candidates_
    decimals = {
        name: decimals_of(numbers)
        for name, kind in evaluation.model.preprocessor_.kinds_.items()
        if kind == "numeric"
        and (numbers := as_numbers(candidates.frame[name], name, kind)) is not None
    }
    if evaluation.codes is not None:
        return ValueTexts(decimals, None)
    return ValueTexts(decimals, max(decimals_of(candidates.y.astype(np.float64)), 1))


def choose_rows(evaluation: Evaluation) -> dict[str, int]:
    """Return the positions of a few rows by why they were chosen; none twice."""
    errors = evaluation.errors
    choices = {
        "Best": int(errors.argmin()),
        "Typical": int(np.abs(errors - np.median(errors)).argmin()),
        "Worst": int(errors.argmax()),
    }
    if evaluation.codes is not None:
        choices["Most uncertain"] = int(evaluation.prediction.max(1).argmin())
    else:
        try:
            ends = evaluation.intervals()
        except DataError:  # too few rows were held out for intervals
            ends = np.zeros((len(evaluation), 2))
        if np.ptp(ends).any():
            choices["Most uncertain"] = int((ends[:, 1] - ends[:, 0]).argmax())
    rows: dict[str, int] = {}
    for why, row in choices.items():
        if row not in rows.values():
            rows[why] = row
    return rows


def make_examples(evaluation: Evaluation) -> list[Example]:
    """Return the chosen rows, explained."""
    chosen = choose_rows(evaluation)
    rows = evaluation.frame.iloc[list(chosen.values())].reset_index(drop=True)
    explanation = evaluation.model.explain(rows)
    gaps = _all_gaps(evaluation, explanation)
    texts = value_texts(evaluation)
    examples = []
    for k, (why, row) in enumerate(chosen.items()):
        answer = texts.label(explanation.answers[k])
        alone = float(explanation.alone[k])
        if evaluation.codes is None:
            alone_text = texts.label(alone)
        else:
            answer += f" ({percent(float(explanation.predictions[k]))})"
            alone_text = percent(alone)
        names = _most_different({name: gaps[name][k] for name in gaps})
        values: Any = explanation.rows.iloc[k]
        example = Example(
            why=why,
            row=int(evaluation.positions[row]),
            at=row,
            truth=texts.label(evaluation.truth[row]),
            prediction=answer,
            alone=alone_text,
            share=percent(float(explanation.share[k])),
            columns=names,
            values=[texts.value(name, values[name]) for name in names],
            lines=[
                _neighbor_line(explanation, texts, k, j, {n: gaps[n][k] for n in names})
                for j, id in enumerate(explanation.table.ids[k, :N_NEIGHBORS])
                if id >= 0
            ],
            n_neighbors=int((explanation.table.ids[k] >= 0).sum()),
            n_hidden=len(gaps) - len(names),
        )
        examples.append(example)
    return examples


def _most_different(gaps: dict[str, Floats]) -> list[str]:
    """Return in order the names of the columns in which neighbours differ most."""
    total = {name: float(gaps[name].sum()) for name in gaps}
    kept = sorted(gaps, key=lambda name: -total[name])[:MOST_COLUMNS]
    return [name for name in gaps if name in kept]


def _all_gaps(evaluation: Evaluation, explanation: Explanation) -> dict[str, Floats]:
    """Return for each column how far neighbours are from the rows, (rows, m).

    Numbers and dates are apart by standard deviations of the candidates; any other
    value is apart by more than one or not at all.
    """
    ids, neighbors = explanation.table.ids[:, :N_NEIGHBORS], explanation.neighbors
    kinds = evaluation.model.preprocessor_.kinds_
    if not len(neighbors):
        return {name: np.zeros(ids.shape) for name in kinds}
    place = np.searchsorted(neighbors.index.to_numpy(), np.maximum(ids, 0))
    place = np.minimum(place, len(neighbors) - 1)
    gaps = {}
    for name, kind in kinds.items():
        candidates = evaluation.model.candidates_.frame[name]
        columns = explanation.rows[name], neighbors[name], candidates
        gaps[name] = np.where(ids < 0, 0.0, _gaps(*columns, name, kind, place))
    return gaps


def _gaps(
    rows: pd.Series[Any],
    neighbors: pd.Series[Any],
    candidates: pd.Series[Any],
    name: str,
    kind: ColumnKind,
    place: NDArray[np.int64],
) -> Floats:
    """Return how far the neighbours at each place (rows, m) are from their rows."""
    numbers, others, scale_by = (
        as_numbers(column, name, kind) for column in (rows, neighbors, candidates)
    )
    if numbers is None or others is None or scale_by is None:
        texts, other_texts = (
            np.array([cell(value) for value in column], dtype=object)
            for column in (rows, neighbors)
        )
        return np.where(texts[:, None] == other_texts[place], 0.0, 2 * DIFFERS_MUCH)
    scale = float(np.nanstd(scale_by)) or 1.0
    gaps = np.abs(numbers[:, None] - others[place]) / scale
    # A missing value is near to another missing one, and far from any other.
    one_missing = np.isnan(numbers)[:, None] != np.isnan(others[place])
    return np.where(one_missing, 2 * DIFFERS_MUCH, np.nan_to_num(gaps, nan=0.0))


def _neighbor_line(
    explanation: Explanation, texts: ValueTexts, k: int, j: int, gaps: dict[str, Floats]
) -> NeighborLine:
    """Return the j-th neighbour of the k-th row; gaps (m,) name the columns."""
    weights, label = explanation.table.weights[k], explanation.labels[k, j]
    corrected = ""
    if explanation.corrections is not None:
        corrected = texts.label(label + explanation.corrections[k, j])
    id = int(explanation.table.ids[k, j])
    values = explanation.neighbors.loc[id]
    cells = []
    for name, gap in gaps.items():
        apart = int(gap[j] > DIFFERS) + int(gap[j] > DIFFERS_MUCH)
        cells.append(Cell(texts.value(name, values[name]), apart))
    return NeighborLine(
        id=id,
        weight=percent(float(weights[j])),
        bar=float(weights[j] / max(weights[0], 1e-12)),
        effect=texts.effect(float(explanation.effects[k, j])),
        label=texts.label(label),
        corrected=corrected,
        cells=cells,
    )

"""A few rows with the neighbours that their predictions came from."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.errors import DataError
from tabr.prediction.explanation import Explanation
from tabr.report.columns import as_numbers
from tabr.report.evaluation import Evaluation
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
    """How values are written: all of a column with equally many decimals."""

    decimals: dict[str, int]  # of numeric columns, by name
    label_decimals: int | None  # None for classes

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
        with contextlib.suppress(DataError):  # too few rows were held out
            low, high = evaluation.intervals().T
            if (high > low).any():
                choices["Most uncertain"] = int((high - low).argmax())
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
    gaps = _gaps(evaluation, explanation)
    texts, all_names = (
        value_texts(evaluation),
        list(evaluation.model.preprocessor_.kinds_),
    )
    examples = []
    for k, (why, row) in enumerate(chosen.items()):
        prediction = texts.label(explanation.answers[k])
        alone = float(explanation.alone[k])
        if evaluation.codes is not None:
            prediction += f" ({percent(float(explanation.predictions[k]))})"
        shown = np.argsort(-gaps[:, k].sum(1), kind="stable")[:MOST_COLUMNS]
        shown = np.sort(shown)
        names = [all_names[column] for column in shown]
        values: Any = explanation.rows.iloc[k]
        example = Example(
            why=why,
            row=int(evaluation.positions[row]),
            at=row,
            truth=texts.label(evaluation.truth[row]),
            prediction=prediction,
            alone=texts.label(alone) if evaluation.codes is None else percent(alone),
            share=percent(float(explanation.share[k])),
            columns=names,
            values=[texts.value(name, values[name]) for name in names],
            lines=[
                _neighbor_line(
                    explanation, texts, k, j, dict(zip(names, gap, strict=True))
                )
                for j, gap in enumerate(gaps[shown, k].T.tolist())
                if explanation.table.ids[k, j] >= 0
            ],
            n_neighbors=int((explanation.table.ids[k] >= 0).sum()),
            n_hidden=len(gaps) - len(names),
        )
        examples.append(example)
    return examples


def _gaps(evaluation: Evaluation, explanation: Explanation) -> Floats:
    """Return how far neighbours are from the rows, (columns, rows, m).

    Numbers and dates are apart by standard deviations of the candidates; any other
    value is apart by more than one or not at all.
    """
    ids, neighbors = explanation.table.ids[:, :N_NEIGHBORS], explanation.neighbors
    kinds = evaluation.model.preprocessor_.kinds_
    candidates = evaluation.model.candidates_.frame
    gaps = np.zeros((len(kinds), *ids.shape))
    if not len(neighbors):
        return gaps
    place = neighbors.index.get_indexer(pd.Index(ids.ravel())).reshape(ids.shape)
    for gap, (name, kind) in zip(gaps, kinds.items(), strict=True):
        columns = explanation.rows[name], neighbors[name], candidates[name]
        numbers, others, scale_by = (as_numbers(c, name, kind) for c in columns)
        if numbers is None or others is None or scale_by is None:
            texts, other_texts = (
                np.array([cell(value) for value in c], object) for c in columns[:2]
            )
            is_far = texts[:, None] != other_texts[place]
        else:
            scale = float(np.nanstd(scale_by)) or 1.0
            gap[:] = np.nan_to_num(np.abs(numbers[:, None] - others[place]) / scale)
            # A missing value is near to another missing one, far from any other.
            is_far = np.isnan(numbers)[:, None] != np.isnan(others[place])
        gap[is_far] = 2 * DIFFERS_MUCH
        gap[ids < 0] = 0.0
    return gaps


def _neighbor_line(
    explanation: Explanation, texts: ValueTexts, k: int, j: int, gaps: dict[str, float]
) -> NeighborLine:
    """Return the j-th neighbour of the k-th row, with the columns of the gaps."""
    weights, label = explanation.table.weights[k], explanation.labels[k, j]
    corrected = ""
    if explanation.corrections is not None:
        corrected = texts.label(label + explanation.corrections[k, j])
    id = int(explanation.table.ids[k, j])
    values = explanation.neighbors.loc[id]
    cells = [
        Cell(texts.value(name, values[name]), (gap > DIFFERS) + (gap > DIFFERS_MUCH))
        for name, gap in gaps.items()
    ]
    return NeighborLine(
        id=id,
        weight=percent(float(weights[j])),
        bar=float(weights[j] / max(weights[0], 1e-12)),
        effect=texts.effect(float(explanation.effects[k, j])),
        label=texts.label(label),
        corrected=corrected,
        cells=cells,
    )

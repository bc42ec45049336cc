"""A few rows with the neighbours that their predictions came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tabr.errors import DataError
from tabr.prediction.explanation import Explanation
from tabr.report.columns import as_numbers
from tabr.report.evidence import Evidence
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
class Line:
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
    at: int  # position among the evidence's rows
    truth: str
    prediction: str
    alone: str
    share: str
    columns: list[str]
    own: list[str]
    lines: list[Line]
    n_neighbors: int
    n_hidden: int  # columns that are not shown


@dataclass(frozen=True)
class Writers:
    """How values are written: all of a column with equally many decimals.

    Attributes:
        decimals: Of numeric columns, by name.
        label_decimals: Of labels; None for classes.
    """

    decimals: dict[str, int]
    label_decimals: int | None

    def of(self, name: str, value: Any) -> str:
        """Write a value of a column."""
        is_number = isinstance(value, int | float | np.integer | np.floating)
        if name not in self.decimals or not is_number or isinstance(value, bool):
            return cell(value)
        return fixed(float(value), self.decimals[name])

    def label(self, value: Any) -> str:
        """Write a label."""
        if self.label_decimals is None:
            return cell(value)
        return fixed(float(value), self.label_decimals)

    def effect(self, value: float) -> str:
        """Write an effect: of a number in its unit, of a probability in percent."""
        if self.label_decimals is None:
            text = f"{100 * value:+.2f}%"
        else:
            text = fixed(value, self.label_decimals + 1)
            text = text if text.startswith("-") else f"+{text}"
        # What is rounded to nothing has no sign.
        return text if any(digit in text for digit in "123456789") else text[1:]


def make_writers(evidence: Evidence) -> Writers:
    """Return writers that tell apart the values of the candidates."""
    candidates = evidence.model.candidates_
    decimals = {
        name: decimals_of(numbers)
        for name, kind in evidence.model.preprocessor_.kinds_.items()
        if kind == "numeric"
        and (numbers := as_numbers(candidates.frame[name], name, kind)) is not None
    }
    if evidence.codes is not None:
        return Writers(decimals, None)
    return Writers(decimals, max(decimals_of(candidates.y.astype(np.float64)), 1))


def choose_rows(evidence: Evidence) -> dict[str, int]:
    """Return a few telling rows by what makes them telling; none twice."""
    errors = evidence.errors
    found = {
        "Best": int(errors.argmin()),
        "Typical": int(np.abs(errors - np.median(errors)).argmin()),
        "Worst": int(errors.argmax()),
    }
    if evidence.codes is not None:
        found["Most uncertain"] = int(evidence.prediction.max(1).argmin())
    else:
        try:
            ends = evidence.intervals()
        except DataError:  # too few rows were held out for intervals
            ends = np.zeros((len(evidence), 2))
        if np.ptp(ends).any():
            found["Most uncertain"] = int((ends[:, 1] - ends[:, 0]).argmax())
    seen: set[int] = set()
    rows = {}
    for why, row in found.items():
        if row not in seen:
            rows[why] = row
            seen.add(row)
    return rows


def make_examples(evidence: Evidence) -> list[Example]:
    """Explain the chosen rows."""
    chosen = choose_rows(evidence)
    rows = list(chosen.values())
    found = evidence.model.explain(evidence.frame.iloc[rows].reset_index(drop=True))
    gaps = _all_gaps(evidence, found)
    write = make_writers(evidence)
    return [
        _example(evidence, found, gaps, write, k, why, row)
        for k, (why, row) in enumerate(chosen.items())
    ]


def _all_gaps(evidence: Evidence, found: Explanation) -> dict[str, Floats]:
    """Return for each column how far neighbours are from the rows, (rows, m).

    Numbers and dates are apart by standard deviations of the candidates; any other
    value is apart by more than one or not at all.
    """
    ids = found.table.ids[:, :N_NEIGHBORS]
    place = np.searchsorted(found.neighbors.index.to_numpy(), np.maximum(ids, 0))
    place = np.minimum(place, max(len(found.neighbors) - 1, 0))
    gaps = {}
    for name, kind in evidence.model.preprocessor_.kinds_.items():
        if not len(found.neighbors):
            gaps[name] = np.zeros(ids.shape)
            continue
        gaps[name] = np.where(ids < 0, 0.0, _gaps(evidence, found, name, kind, place))
    return gaps


def _gaps(
    evidence: Evidence,
    found: Explanation,
    name: str,
    kind: ColumnKind,
    place: NDArray[np.int64],
) -> Floats:
    mine = as_numbers(found.rows[name], name, kind)
    others = as_numbers(found.neighbors[name], name, kind)
    if mine is None or others is None:
        texts = [
            np.array([cell(v) for v in part[name]], dtype=object)
            for part in (found.rows, found.neighbors)
        ]
        return np.where(texts[0][:, None] == texts[1][place], 0.0, 2 * DIFFERS_MUCH)
    known = as_numbers(evidence.model.candidates_.frame[name], name, kind)
    assert known is not None
    scale = float(np.nanstd(known)) or 1.0
    gaps = np.abs(mine[:, None] - others[place]) / scale
    # A missing value is near to another missing one, and far from any other.
    one_missing = np.isnan(mine)[:, None] != np.isnan(others[place])
    return np.where(one_missing, 2 * DIFFERS_MUCH, np.nan_to_num(gaps, nan=0.0))


def _example(
    evidence: Evidence,
    found: Explanation,
    gaps: dict[str, Floats],
    write: Writers,
    k: int,
    why: str,
    row: int,
) -> Example:
    names = list(gaps)
    if len(names) > MOST_COLUMNS:
        total = {name: float(gaps[name][k].sum()) for name in names}
        kept = sorted(names, key=lambda name: -total[name])[:MOST_COLUMNS]
        names = [name for name in names if name in kept]
    is_number = evidence.codes is None
    answer = write.label(found.answers[k])
    if not is_number:
        answer += f" ({percent(float(found.predictions[k]))})"
    alone = float(found.alone[k])
    own: Any = found.rows.iloc[k]
    return Example(
        why=why,
        row=int(evidence.positions[row]),
        at=row,
        truth=write.label(evidence.truth[row]),
        prediction=answer,
        alone=write.label(alone) if is_number else percent(alone),
        share=percent(float(found.share[k])),
        columns=names,
        own=[write.of(name, own[name]) for name in names],
        lines=_lines(found, gaps, write, names, k),
        n_neighbors=int((found.table.ids[k] >= 0).sum()),
        n_hidden=len(gaps) - len(names),
    )


def _lines(
    found: Explanation,
    gaps: dict[str, Floats],
    write: Writers,
    names: list[str],
    k: int,
) -> list[Line]:
    lines = []
    weights = found.table.weights[k]
    for j, id in enumerate(found.table.ids[k, :N_NEIGHBORS].tolist()):
        if id < 0:
            break
        corrected = ""
        if found.corrections is not None:
            corrected = write.label(found.labels[k, j] + found.corrections[k, j])
        values = found.neighbors.loc[id]
        cells = []
        for name in names:
            gap = float(gaps[name][k, j])
            apart = int(gap > DIFFERS) + int(gap > DIFFERS_MUCH)
            cells.append(Cell(write.of(name, values[name]), apart))
        lines.append(
            Line(
                id=id,
                weight=percent(float(weights[j])),
                bar=float(weights[j] / max(weights[0], 1e-12)),
                effect=write.effect(float(found.effects[k, j])),
                label=write.label(found.labels[k, j]),
                corrected=corrected,
                cells=cells,
            )
        )
    return lines

"""What an audit found, as plain data that shows itself as text or as a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Gravity = Literal["leak", "warning", "note"]
GRAVITIES: tuple[Gravity, ...] = ("leak", "warning", "note")
Ids = NDArray[np.int64]


def no_ids() -> Ids:
    """Return an empty array of ids."""
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Finding:
    """One thing that the audit found.

    Attributes:
        kind: A short name, such as "exact copies".
        gravity: "leak" flatters a score, a "warning" may, a "note" only describes.
        sentence: What was found, in plain words.
        count: How many rows it concerns.
        total: How many rows were looked at.
        part: Whose rows: "test", "train" or "candidates".
        rows: Their ids, gravest first; positions in the table of that part.
        partners: For each row the id of the training row it belongs with, or empty.
        scores: For each row how grave it is, larger is graver, or empty.
        expected: The share that is usual in this table, where that is known.
    """

    kind: str
    gravity: Gravity
    sentence: str
    count: int
    total: int
    part: str
    rows: Ids = field(default_factory=no_ids)
    partners: Ids = field(default_factory=no_ids)
    scores: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    expected: float | None = None

    @property
    def share(self) -> float:
        """The count as a share of the rows that were looked at."""
        return self.count / max(1, self.total)


@dataclass(frozen=True)
class Example:
    """A row beside its partner: the cells of both, by column."""

    kind: str
    row: int
    partner: int
    cells: dict[str, tuple[Any, Any]]
    differs: tuple[str, ...]


@dataclass(frozen=True)
class AuditReport:
    """All findings, gravest first.

    Attributes:
        findings: What was found.
        examples: A few pairs of rows behind it.
        notes: What was left out, sampled, or would need a model.
        n_train: Rows of the training part.
        n_test: Rows of the other part.
    """

    findings: tuple[Finding, ...]
    examples: tuple[Example, ...]
    notes: tuple[str, ...]
    n_train: int
    n_test: int

    @property
    def verdict(self) -> Gravity:
        """The gravity of the gravest finding."""
        return self.findings[0].gravity if self.findings else "note"

    def to_frame(self) -> pd.DataFrame:
        """Return a line for each row that a finding names."""
        parts = []
        for finding in self.findings:
            n = len(finding.rows)
            columns = {
                "finding": [finding.kind] * n,
                "gravity": [finding.gravity] * n,
                "part": [finding.part] * n,
                "row": finding.rows,
                "partner": pd.array(_filled(finding.partners, n), dtype="Int64"),
                "score": finding.scores if len(finding.scores) else [np.nan] * n,
            }
            parts.append(pd.DataFrame(columns))
        names = ["finding", "gravity", "part", "row", "partner", "score"]
        filled = [part for part in parts if len(part)]
        if not filled:
            return pd.DataFrame(columns=names)
        return pd.concat(filled, ignore_index=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as lists and dicts, the ids of rows included."""
        return {
            "verdict": self.verdict,
            "n_train": self.n_train,
            "n_test": self.n_test,
            "findings": [
                {
                    "kind": f.kind,
                    "gravity": f.gravity,
                    "sentence": f.sentence,
                    "part": f.part,
                    "count": f.count,
                    "share": f.share,
                    "expected_share": f.expected,
                    "rows": f.rows.tolist(),
                    "partners": f.partners.tolist(),
                }
                for f in self.findings
            ],
            "examples": [
                {
                    "kind": e.kind,
                    "row": e.row,
                    "partner": e.partner,
                    "cells": {k: list(v) for k, v in e.cells.items()},
                    "differs": list(e.differs),
                }
                for e in self.examples
            ],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [f"{self.n_train} training rows, {self.n_test} test rows", ""]
        if self.findings:
            lines.append(f"{'gravity':<9}{'finding':<26}{'rows':>8}{'share':>9}")
        for f in self.findings:
            share = _percent(f.share)
            lines.append(f"{f.gravity:<9}{f.kind:<26}{f.count:>8}{share:>9}")
        lines += ["" if self.findings else "nothing was found"]
        lines += [f"- {f.sentence}" for f in self.findings]
        for example in self.examples:
            lines += ["", *_example_lines(example)]
        if self.notes:
            lines += ["", *(f"note: {note}" for note in self.notes)]
        return "\n".join(lines)


def make_example(
    kind: str, row: int, partner: int, one: pd.Series[Any], two: pd.Series[Any]
) -> Example:
    """Put the cells of two rows side by side."""
    cells = {str(name): (_cell(one[name]), _cell(two[name])) for name in one.index}
    differs = tuple(name for name, (a, b) in cells.items() if a != b)
    return Example(kind, row, partner, cells, differs)


def _example_lines(example: Example, n_cells: int = 6) -> list[str]:
    """Show two rows; columns that differ come first, as they tell the story."""
    names = [*example.differs, *(n for n in example.cells if n not in example.differs)]
    names = names[:n_cells]
    texts = [[_short(cell) for cell in example.cells[name]] for name in names]
    widths = [
        max(len(name), *map(len, t)) for name, t in zip(names, texts, strict=True)
    ]
    n_equal = len(example.cells) - len(example.differs)
    title = f"{example.kind}: {n_equal} of {len(example.cells)} columns agree"
    lines = [title]
    heads = [name.rjust(width) for name, width in zip(names, widths, strict=True)]
    lines.append(f"  {'':<20}" + "  ".join(heads))
    who = (f"test row {example.row}", f"training row {example.partner}")
    for k, label in enumerate(who):
        row = [t[k].rjust(width) for t, width in zip(texts, widths, strict=True)]
        lines.append(f"  {label:<20}" + "  ".join(row))
    return lines


def _cell(value: Any) -> Any:
    if value is None or value is pd.NaT or value is pd.NA or value != value:
        return None
    return value.item() if hasattr(value, "item") else value


def _short(value: Any) -> str:
    text = "-" if value is None else f"{value:.6g}" if isinstance(value, float) else ""
    return text or (str(value) if len(str(value)) <= 18 else f"{str(value)[:15]}...")


def _filled(ids: Ids, n: int) -> list[int | None]:
    return ids.tolist() if len(ids) else [None] * n


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def percent(share: float) -> str:
    """Write a share for a sentence; tiny ones keep their first digit."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"

"""Findings of an audit as plain data, with their text and their table."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.text import aligned, cell, percent, plain_tree

Gravity = Literal["leak", "warning", "note"]
GRAVITIES: tuple[Gravity, ...] = ("leak", "warning", "note")
Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

OFTEN = 0.01  # share of rows from which on copies are worth a warning
_ROWS = {"test": "test rows", "train": "training rows", "candidates": "candidates"}


@dataclass(frozen=True)
class Finding:
    """One thing that the audit found.

    Attributes:
        kind: A short name, such as "exact copies".
        gravity: "leak" flatters a score, a "warning" may, a "note" only describes.
        sentence: What was found, in plain words.
        count: How many rows it concerns.
        total: How many rows were looked at.
        part: Where the rows are: "test", "train", "candidates"; or "columns".
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
    rows: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    partners: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    scores: Floats = field(default_factory=lambda: np.empty(0))
    expected: float | None = None

    @classmethod
    def of_rows(
        cls,
        kind: str,
        text: str,
        part: str,
        ids: Ids,
        is_named: NDArray[np.bool_],
        *,
        gravity: Gravity | None = None,
        partners: Ids | None = None,
        scores: Floats | None = None,
        expected: float | None = None,
    ) -> Finding:
        """Return the finding that some of the rows with these ids (n,) are named.

        Partners and scores are those of all rows, (n,). The sentence counts the rows
        and goes on with the text. Without a gravity, many rows are worth a warning.
        """
        rows = np.flatnonzero(is_named)
        if scores is not None:
            rows = rows[np.argsort(-scores[rows], kind="stable")]
        share = len(rows) / max(1, len(ids))
        return cls(
            kind,
            gravity or ("warning" if share > OFTEN else "note"),
            f"{len(rows)} of {len(ids)} {_ROWS[part]} ({percent(share)}) {text}",
            len(rows),
            len(ids),
            part,
            ids[rows],
            ids[:0] if partners is None else partners[rows],
            np.empty(0) if scores is None else scores[rows],
            expected,
        )

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

    @property
    def differs(self) -> tuple[str, ...]:
        """The columns whose cells are not equal."""
        return tuple(name for name, pair in self.cells.items() if pair[0] != pair[1])


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
        lines = []
        for finding in self.findings:
            partners = finding.partners.tolist() or [None] * len(finding.rows)
            scores = finding.scores.tolist() or [np.nan] * len(finding.rows)
            head = finding.kind, finding.gravity, finding.part
            named = zip(finding.rows.tolist(), partners, scores, strict=True)
            lines += [(*head, *row) for row in named]
        names = ["finding", "gravity", "part", "row", "partner", "score"]
        return pd.DataFrame(lines, columns=names).astype({"partner": "Int64"})

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
                plain_tree(asdict(e) | {"differs": e.differs}) for e in self.examples
            ],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [f"{self.n_train} training rows, {self.n_test} test rows", ""]
        if self.findings:
            table = [["gravity", "finding", "rows", "share"]]
            for f in self.findings:
                table.append([f.gravity, f.kind, str(f.count), percent(f.share)])
            lines += aligned(table, "llrr")
        lines += ["" if self.findings else "nothing was found"]
        lines += [f"- {f.sentence}" for f in self.findings]
        for example in self.examples:
            lines += ["", *_example_lines(example)]
        if self.notes:
            lines += ["", *(f"note: {note}" for note in self.notes)]
        return "\n".join(lines)


def _example_lines(example: Example, n_cells: int = 6) -> list[str]:
    """Return two rows as lines; columns that differ come first."""
    equal = [name for name in example.cells if name not in example.differs]
    names = [*example.differs, *equal][:n_cells]
    heads = "", f"test row {example.row}", f"training row {example.partner}"
    columns = [heads]
    for name in names:
        test, train = (cell(v, digits=6, longest=18) for v in example.cells[name])
        columns.append((name, test, train))
    title = f"{example.kind}: {len(equal)} of {len(example.cells)} columns agree"
    table = aligned(list(zip(*columns, strict=True)), "lr")
    return [title, *(f"  {line}" for line in table)]

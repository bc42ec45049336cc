"""Markdown of the paper's tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from reproduction.paper.grid import (
    OFFICIAL,
    STDS,
    Comparison,
    Grid,
    Rank,
    Side,
    average_ranks,
    comparisons,
    counted_sets,
    improved,
    set_ranks,
    shared,
)
from reproduction.paper.scores import Results
from tabr.bench.ranks import Score
from tabr.text import ABSENT, markdown_table

_SHOWN_IN = {"house": 1e4}  # units of a column, as in the paper
_DECIMALS = 4
_PLUS_MINUS = "\u00a0±\u00a0"  # stays on one line

Marks = Literal["best", "improved"]


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a table whose first columns are set to the left, all others right.

    >>> print(table(["a", "b"], [["1", "2"]]))
    | a | b |
    | --- | ---: |
    | 1 | 2 |
    """
    return markdown_table(header, rows, "l" * left + "r" * (len(header) - left))


def bullets(items: Iterable[str]) -> str:
    """Return a list of sentences."""
    return "\n".join(f"- {item}" for item in items)


def figure(score: Score) -> str:
    """Return a score with two digits of its deviation, and not too many in all.

    >>> figure(Score(0.40604, 0.00286)), figure(Score(31234.5, 581.0))
    ('0.4060 ± 0.0029', '31234 ± 581')
    >>> figure(Score(1 / 3, 1e-9))
    '0.33333 ± 0.00000'
    """
    size = max(score.std, abs(score.mean) / 2000) or 1.0
    decimals = max(0, 1 - math.floor(math.log10(size)))
    return f"{score.mean:.{decimals}f} ± {score.std:.{decimals}f}"


def title(results: Results, label: str) -> str:
    """Return the title of a set: its direction, and a star for a split of ours."""
    arrow = "↑" if results.larger_is_better(label) else "↓"
    star = "" if label in OFFICIAL else "\\*"
    return f"{label}{star} {arrow}"


def grid_table(grid: Grid, marks: Marks = "best") -> str:
    """Return a table with two lines for each row, ours and the published.

    Means alone, as eleven columns have no room for more, and ranks.
    """
    sets = counted_sets(grid)
    header = ["model", "", *_titles(grid)]
    if sets:
        header.append(f"rank, {len(sets)} {'set' if len(sets) == 1 else 'sets'}")
    header.append("rank, all sets")
    common = {
        "ours": average_ranks(grid, shared(grid, grid.ours), sets),
        "published": average_ranks(grid, shared(grid, grid.published), sets),
    }
    all_sets = average_ranks(grid, grid.published, grid.sets)
    lines = []
    for name, side, cells in _lines(grid, marks, spread=False):
        last = [_rank(common[side].get(name))] if sets else []
        last.append(_rank(all_sets.get(name) if side == "published" else None))
        lines.append([name if side == "ours" else "", side, *cells, *last])
    return table(header, lines, left=2)


def spread_table(grid: Grid, marks: Marks = "best") -> str:
    """Return the same table with standard deviations, folded away."""
    lines = [
        [name if side == "ours" else "", side, *cells]
        for name, side, cells in _lines(grid, marks, spread=True)
    ]
    text = table(["model", "", *_titles(grid)], lines, left=2)
    summary = "<summary>With standard deviations</summary>"
    return f"<details>{summary}\n\n{text}\n\n</details>"


def _titles(grid: Grid) -> list[str]:
    return [
        title(grid.results, label) + (", 10⁴" if label in _SHOWN_IN else "")
        for label in grid.sets
    ]


def _lines(
    grid: Grid, marks: Marks, *, spread: bool
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield name, side and cells, both sides of a row after one another."""
    for row in grid.rows:
        for name, side in (("ours", grid.ours), ("published", grid.published)):
            cells = [
                _marked(grid, side, label, row.name, marks, spread)
                for label in grid.sets
            ]
            yield row.name, name, cells


def _marked(
    grid: Grid, side: Side, label: str, name: str, marks: Marks, spread: bool
) -> str:
    cell = side[label].get(name)
    if cell is None:
        return ABSENT
    unit = _SHOWN_IN.get(label, 1.0)
    text = f"{cell.score.mean / unit:.{_DECIMALS}f}"
    if spread and cell.n_runs > 1:
        text += f"{_PLUS_MINUS}{cell.score.std / unit:.{_DECIMALS}f}"
    if marks == "best":
        is_best = set_ranks(grid, side, label).get(name) == 1
        return f"**{text}**" if is_best else text
    return f"<u>{text}</u>" if name in improved(grid, side, label) else text


def _rank(rank: Rank | None) -> str:
    return ABSENT if rank is None else f"{rank.mean:.1f}{_PLUS_MINUS}{rank.std:.1f}"


def remarks(grid: Grid) -> list[str]:
    """Return sentences on what a table rests on, how it compares, what was not run."""
    return [*_ranked(grid), *_runs(grid), *_within(grid), not_run(grid)]


def _ranked(grid: Grid) -> list[str]:
    sets = counted_sets(grid)
    if not sets:
        return []
    names = ", ".join(sets)
    among = "all models" if len(grid.run) == len(grid.rows) else ", ".join(grid.run)
    return [f"Ranks of both sides over {names}, among {among}."]


def _runs(grid: Grid) -> list[str]:
    """Return the usual number of runs of a cell, and the cells that have another."""
    numbers = {
        (name, label): cell.n_runs
        for label in grid.sets
        for name, cell in grid.ours[label].items()
    }
    if not numbers:
        return []
    usual = Counter(numbers.values()).most_common(1)[0][0]
    others = []
    for number in sorted(set(numbers.values()) - {usual}):
        cells: dict[str, list[str]] = {}
        for (name, label), n_runs in numbers.items():
            if n_runs == number:
                cells.setdefault(name, []).append(label)
        others.append(f"{number} of {name_sets(cells)}")
    word = "Seeds" if grid.kind == "single" else "Ensembles of five seeds"
    more = f"; {'; '.join(others)}" if others else ""
    return [f"{word} of ours in a cell: {usual}{more}."]


def _within(grid: Grid) -> list[str]:
    cells = comparisons(grid) if grid.kind == "single" else []
    if not cells:
        return []
    outside = [f"{c.row} on {c.label} ({_away(c)})" for c in cells if not c.is_within]
    more = f" Further away, positive if better: {', '.join(outside)}."
    if any(math.isnan(c.better_by_stds) for c in cells if not c.is_within):
        more += " In percent: the published runs are equal, so they have no deviation."
    return [
        f"On the paper's own splits {len(cells) - len(outside)} of {len(cells)} cells"
        f" lie within {STDS:g} published standard deviations."
        + (more if outside else "")
    ]


def _away(cell: Comparison) -> str:
    if math.isnan(cell.better_by_stds):
        return f"{cell.better_by_percent:+.2f} %"
    return f"{cell.better_by_stds:+.1f}"


def not_run(grid: Grid) -> str:
    """Return a sentence on what the paper has and our tables allow, but was not run."""
    absent = {
        row.name: [
            label
            for label in grid.sets
            if label in grid.results.at_hand
            and row.name in grid.published[label]
            and row.name not in grid.ours[label]
        ]
        for row in grid.rows
    }
    return absence(absent, grid.run)


def absence(absent: Mapping[str, Sequence[str]], run: Collection[str]) -> str:
    """Return which models were not run on which sets; those never run first.

    >>> absence({"a": ["x", "y"], "b": ["x"], "c": ["x"], "d": []}, run={"b", "c", "d"})
    'Not run: a on any set; b, c on x.'
    """
    parts = []
    nowhere = [name for name, sets in absent.items() if sets and name not in run]
    if nowhere:
        parts.append(f"{', '.join(nowhere)} on any set")
    some = {name: sets for name, sets in absent.items() if sets and name in run}
    if some:
        parts.append(name_sets(some))
    return f"Not run: {'; '.join(parts) or 'nothing'}."


def name_sets(sets: Mapping[str, Sequence[str]]) -> str:
    """Return names with their sets; names with the same sets share them.

    >>> name_sets({"a": ["x"], "b": ["x", "y"], "c": ["x"]})
    'a, c on x; b on x, y'
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, labels in sets.items():
        groups.setdefault(tuple(labels), []).append(name)
    return "; ".join(
        f"{', '.join(names)} on {', '.join(labels)}" for labels, names in groups.items()
    )

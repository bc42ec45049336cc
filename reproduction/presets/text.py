"""Scores, counts and times of the page of the presets, as Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import pandas as pd

from reproduction.paper.grid import OFFICIAL
from reproduction.paper.scores import Cell
from reproduction.paper.text import table, title
from reproduction.presets.boards import SETS, Board, halves
from reproduction.presets.commits import Commit
from reproduction.presets.levers import NONE, means
from reproduction.presets.measures import CONTESTANTS, MeasureLine
from reproduction.presets.standings import Count, count, gaps_closed, mean_ranks
from reproduction.presets.times import Time, comparable, mean_seconds
from tabr.text import ABSENT

OTHER_COMMIT = "†"
_HALVES = halves()
PARTS: Mapping[str, Collection[str]] = {
    "all": SETS,
    "chosen on": _HALVES.chosen_on,
    "kept": _HALVES.kept,
    "paper's splits": [label for label in SETS if label in OFFICIAL],
}


def decimals_of(cell: Cell) -> int:
    """Return the decimals that show two digits of a deviation, or four of a score.

    >>> from tabr.bench.ranks import Score
    >>> (
    ...     decimals_of(Cell(Score(0.4061, 0.0029), 3)),
    ...     decimals_of(Cell(Score(31.2, 0), 1)),
    ... )
    (4, 2)
    """
    if cell.n_runs > 1 and cell.score.std > 0:
        return max(0, 1 - math.floor(math.log10(cell.score.std)))
    return max(0, 3 - math.floor(math.log10(abs(cell.score.mean) or 1.0)))


def figure(cell: Cell, decimals: int) -> str:
    """Return a mean and, of two runs or more, its deviation.

    >>> from tabr.bench.ranks import Score
    >>> figure(Cell(Score(0.4061, 0.0029), 3), 4), figure(Cell(Score(0.4, 0.0), 1), 4)
    ('0.4061 ± 0.0029', '0.4000')
    """
    mean = f"{cell.score.mean:.{decimals}f}"
    return f"{mean} ± {cell.score.std:.{decimals}f}" if cell.n_runs > 1 else mean


def plural(number: int, word: str) -> str:
    """Return a number with its word.

    >>> plural(1, "run"), plural(3, "run")
    ('1 run', '3 runs')
    """
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


# --- scores -------------------------------------------------------------------------


def score_table(board: Board, marked: Collection[str]) -> str:
    """Return the scores of a preset and its rivals, a line a set.

    A rival that is better than the preset is bold, or the preset if there is none.
    """
    name, half = board.preset.name, {s: "kept" for s in _HALVES.kept}
    rivals = [rival for rival in board.names if rival != name]
    rows = []
    for label, line in board.lines.items():
        own = board.error(label, name)
        ahead = {r for r in rivals if r in line.cells and board.error(label, r) < own}
        decimals = decimals_of(line.cells[name])
        cells = {name: figure(line.cells[name], decimals)}
        for rival in rivals:
            cell = line.cells.get(rival)
            alone = " (1 run)" if cell and cell.n_runs == 1 else ""
            cells[rival] = f"{cell.score.mean:.{decimals}f}{alone}" if cell else ABSENT
        for best in ahead or {name}:
            cells[best] = f"**{cells[best]}**"
        n_runs, n_splits = line.cells[name].n_runs, len(line.splits)
        mark = f" {OTHER_COMMIT}" if label in marked else ""
        rows.append(
            [
                title(board.results, label) + mark,
                half.get(label, "chosen on"),
                f"{plural(n_runs, 'run')}, {plural(n_splits, 'split')}",
                *cells.values(),
            ]
        )
    return table(["set", "half", "runs", name, *rivals], rows, left=3)


# --- standings ----------------------------------------------------------------------


def count_tables(board: Board) -> str:
    """Return how a preset stands to each rival, a table for each way to count."""
    rivals = [name for name in board.names if name != board.preset.name]
    counts = {
        rival: [count(board, rival, labels) for labels in PARTS.values()]
        for rival in rivals
    }
    ways: Mapping[str, Callable[[Count], str]] = {
        "better / worse": lambda c: _slashes(c.better, c.worse),
        "win / tie / loss": lambda c: _slashes(*c.outcomes),
        "error": lambda c: _percent(c.error),
    }
    tables = [
        table(
            [f"{way}, against", *PARTS],
            [[rival, *map(show, counts[rival])] for rival in rivals],
        )
        for way, show in ways.items()
    ]
    return "\n\n".join(tables)


def _slashes(*numbers: int) -> str:
    return " / ".join(map(str, numbers)) if any(numbers) else ABSENT


def _percent(value: float) -> str:
    return ABSENT if math.isnan(value) else f"{value:+.1f} %"


def standing_table(board: Board) -> str:
    """Return mean ranks and shares of the gap closed, the best first."""
    sizes = {
        part: sum(label in labels for label in board.common_sets)
        for part, labels in PARTS.items()
    }
    ranks = {part: mean_ranks(board, labels) for part, labels in PARTS.items()}
    gaps = {part: gaps_closed(board, labels) for part, labels in PARTS.items()}
    header = [
        "",
        *(f"rank, {part} ({n})" for part, n in sizes.items()),
        *(f"gap closed, {part}" for part in PARTS),
    ]
    rows = [
        [
            name,
            *(_number(ranks[part].get(name), "{:.2f}") for part in PARTS),
            *(_number(gaps[part].get(name), "{:.0%}") for part in PARTS),
        ]
        for name in sorted(board.names, key=lambda n: ranks["all"].get(n, math.inf))
    ]
    return table(header, rows)


def _number(value: float | None, how: str) -> str:
    return ABSENT if value is None else how.format(value).replace("%", " %")


# --- measures, times, commits, levers -----------------------------------------------


def measure_table(lines: Sequence[MeasureLine]) -> str:
    """Return log loss and others of the presets and trees, the best in bold."""
    shown = [c.name for c in CONTESTANTS if any(c.name in x.cells for x in lines)]
    rows = []
    for line in lines:
        digits = max(decimals_of(cell) for cell in line.cells.values())
        cells = []
        for name in shown:
            cell = line.cells.get(name)
            text = figure(cell, min(4, digits)) if cell else ABSENT
            alone = " (1 run)" if cell and cell.n_runs == 1 else ""
            cells.append((f"**{text}**" if name in line.best else text) + alone)
        arrow = "↓" if line.measure.smaller_is_better else "↑"
        splits = str(len(line.splits))
        rows.append([line.label, f"{line.measure.label} {arrow}", splits, *cells])
    return table(["set", "measure", "splits", *shown], rows, left=2)


def time_table(rows_of: Mapping[str, Sequence[Time]]) -> str:
    """Return the seconds of a fit, each hardware by itself."""
    rows = []
    for hardware, times in rows_of.items():
        enough, common = comparable(times)
        for time in times:
            labels = common if time in enough else []
            seconds = time.seconds.values()
            rows.append(
                [
                    hardware,
                    time.contestant.name,
                    " or ".join("all" if n is None else str(n) for n in time.threads),
                    " to ".join(map(str, dict.fromkeys(time.workers))),
                    str(time.n_runs),
                    _seconds(mean_seconds(time, labels)),
                    str(len(labels) or ABSENT),
                    f"{_seconds(min(seconds))} to {_seconds(max(seconds))}",
                    str(len(time.seconds)),
                ]
            )
    header = ["hardware", "", "threads of a run", "runs at a time", "runs"]
    header += ["mean seconds", "on sets", "least to most", "on all its sets"]
    return table(header, rows, left=2)


def _seconds(value: float) -> str:
    if math.isnan(value):
        return ABSENT
    return f"{value:,.{0 if value >= 100 else 1 if value >= 1 else 2}f}"


def commit_table(made_by: Mapping[str, Sequence[Commit]]) -> str:
    """Return the commits of each preset's runs."""
    rows = []
    for name, commits in made_by.items():
        for i, commit in enumerate(commits):
            mark = f" {OTHER_COMMIT}" if i else ""
            rows.append([name, f"{commit}{mark}", str(commit.n_runs), _sets(commit)])
    return table(["preset", "commit", "runs", "sets"], rows, left=2)


def _sets(commit: Commit) -> str:
    few = len(commit.sets) <= len(SETS) // 3
    return ", ".join(commit.sets) if few else str(len(commit.sets))


def lever_table(changes: pd.DataFrame, lines: pd.DataFrame) -> str:
    """Return the change of the error without each lever, a column a lever."""
    rows = []
    for label, row in changes.iterrows():
        part = lines[lines["table"] == label]
        (whole,) = part[part["lever"] == NONE].to_dict("records")
        few, many = min(part["runs"]), max(part["runs"])
        runs = plural(many, "run") if few == many else f"{few} to {many} runs"
        score = f"{whole['metric']} {whole['score']:.4g}, {runs}"
        rows.append([str(label), score, *map(_percent, row)])
    rows.append(["mean", "", *map(_percent, means(changes))])
    return table(["table", "with all levers", *map(str, changes.columns)], rows, left=2)

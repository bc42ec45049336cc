"""The page of the presets and its pictures, made from the results folder alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from reproduction.paper.scores import read_results
from reproduction.presets import pictures, text
from reproduction.presets.boards import (
    BEST,
    DEFAULT,
    NETWORKS,
    PRESETS,
    SETS,
    Board,
    Contestant,
    board,
    halves,
)
from reproduction.presets.commits import Commit, commits, other_sets
from reproduction.presets.levers import FILE, NONE, changes, read_levers
from reproduction.presets.measures import CLASSIFIED, measure_lines
from reproduction.presets.times import times
from reproduction.results_folder import ResultsFolder
from tabr.config import PRESETS as LIBRARY
from tabr.tables.files import write_bytes

PICTURES = ("default", "best", "seconds", "levers")  # after the page's name

_TEXT = """# The presets of this library

How the presets `default` (one network, `tabr-d`) and `best` (`tabr-best`, a pack of
{n_networks} networks) stand to boosted trees and to the paper's TabR-S: one network
to single models, the pack to ensembles of five. Made from the run tables and the
published figures in `reproduction/results` by

    python -m reproduction presets

The runs come from `tabr bench run --data FOLDER --benchmark all --methods
tabr-d,tabr-best`.

## The two halves

The {n_sets} sets in the order of their names in lower case, `why/` among the name, are
taken in turn: the first is one to choose recipes on, the second is kept, and so on. The
list and the rule are in `reproduction/presets/boards.py` and do not depend on what was
run.

- Chosen on: {chosen_on}.
- Kept: {kept}.

The rule is younger than the presets. The kept half was not out of sight when they were
made: commit 1bfa003 tells of a near relative of `default` that was compared with TabR-S
on 29 first splits, commit 3756685 of batch sizes that were chosen on 300 rows of twelve
tables. A choice that is made on the first half alone, from here on, can be judged by
the kept one.

{parts}
"""

_NOTHING = """## Scores

No run of a preset is in the tables yet: {names} were not run."""

_READING = """\
- A figure is the mean over all runs of all splits, and of two runs or more ± their
  standard deviation (divided by n). With several splits it holds what sets these apart.
  A single run has no deviation.
- A rival's figure is over the same splits as the preset's. *Tuned* and *TabR-S default*
  are the published runs; the other defaults are runs of ours.
- Bold: every rival with a better mean than the preset, or the preset if there is none.
- ↓ is RMSE, ↑ accuracy. \\* is a split of ours: there the published runs had another,
  so those comparisons are of the same table, not of the same rows.
- Tuned models had a search for each set; no preset had."""

_COUNTS = """\
- *Paper's splits*: without the sets whose split is ours.
- *Better / worse*: sets by the mean scores alone; equal ones are in neither.
- *Win / tie / loss*: by the paper's rule, means that differ by more than the deviation
  of the better one; only sets where both have two runs or more.
- *Error*: RMSE or the share of rows with a wrong class, the preset's over the rival's,
  geometric mean over the sets, in percent; below zero the preset is better."""

_STANDINGS = """\
Over the sets that all of the table have; their number is in brackets. *Rank*: of the
mean scores; equal ones share theirs. *Gap closed*: (worst - score) / (worst - best) on
a set, worst and best among those of the table; the mean over the sets. It is 0 % for
the worst on every set, and 100 % for the best."""

_NETWORKS = """\
Runs of ours, on the sets where a network has run on all splits of the preset's; they
are not among the standings above."""

_TIMES = """## Seconds of a fit

Preprocessing and validation included. Each hardware is by itself, as its runs name it:
times of different hardware cannot be compared. *Mean*: geometric, over the sets that
all on the hardware have; who lacks a fifth of the preset's sets there has none. Runs
that share the hardware slow one another down: those count that shared it with the
fewest others. Threads are as the runs state them.

{table}"""

_SECONDS = """\
The picture has a panel for each hardware that a preset and another ran on. Errors are
over those of the tuned trees (published) that are best on the set, so 1 is no library's
own score; both means are over the same sets."""

_COMMITS = """## Where the runs come from

A preset may change from commit to commit, so its runs are those of a commit.
{verdict}

{table}"""


def to_markdown(folder: ResultsFolder, path: Path) -> str:
    """Return the page; its pictures are looked for beside its path."""
    results = read_results(folder)
    boards = {preset: board(results, preset) for preset in PRESETS}
    made_by = {preset: commits(folder.runs, preset) for preset in PRESETS}
    parts = []
    for preset in PRESETS:
        if boards[preset].lines:
            marked = other_sets(made_by[preset])
            parts.append(_verdict(boards[preset], marked, path))
    if boards[DEFAULT].lines:
        marked = other_sets(made_by[DEFAULT])
        parts.append(_beside_networks(board(results, DEFAULT, NETWORKS), marked))
    absent = [preset for preset in PRESETS if not boards[preset].lines]
    if DEFAULT in absent and BEST in absent:
        names = " and ".join(f"`{preset.model.method}`" for preset in absent)
        parts.append(_NOTHING.format(names=names))
    elif absent:
        parts.append(f"Not run: {', '.join(f'`{p.model.method}`' for p in absent)}.")
    if len(absent) < len(PRESETS):
        parts += [_measures(folder), _times(folder, path), _commits(made_by)]
    parts.append(_levers(folder, path))
    half, pack = halves(), LIBRARY["best"]
    return _TEXT.format(
        n_networks=pack.n_members(0) * len(pack.recipes),
        n_sets=len(SETS),
        chosen_on=", ".join(half.chosen_on),
        kept=", ".join(half.kept),
        parts="\n\n".join(parts),
    )


def _verdict(board: Board, marked: set[str], path: Path) -> str:
    """Return scores, counts and standings of a preset."""
    preset = board.preset
    name = short_name(preset)
    parts = [
        f"## `{name}`, set by set",
        text.score_table(board, marked),
        _remarks(board, marked),
        f"## `{name}`, counted",
        text.count_tables(board),
        _COUNTS,
        *_picture(_beside(path, name), f"errors of {name} over those of tuned rivals"),
        text.standing_table(board),
        _STANDINGS,
    ]
    return "\n\n".join(parts)


def _beside_networks(board: Board, marked: set[str]) -> str:
    """Return scores and counts of the default beside networks, where these ran."""
    board = board.with_rivals()
    words = f"## `{short_name(board.preset)}` beside other networks"
    if not board.lines:
        names = ", ".join(f"`{rival.model.method}`" for rival in board.rivals)
        return f"{words}\n\nOf {names} no run is on a split of the preset's."
    tables = text.score_table(board, marked), text.count_tables(board)
    return "\n\n".join([words, _NETWORKS, *tables])


def _remarks(board: Board, marked: set[str]) -> str:
    """Return how the scores are read, and what was not run."""
    absent = [label for label in SETS if label not in board.lines]
    alone = [
        label
        for label, line in board.lines.items()
        if line.cells[board.preset.name].n_runs == 1
    ]
    method = board.preset.model.method
    words = [_READING]
    if marked:
        words.append(
            f"- {text.OTHER_COMMIT}: some runs are of another commit than most."
        )
    words.append(f"- `{method}` was not run on: {', '.join(absent) or 'nothing'}.")
    if alone:
        words.append(f"- 1 run on: {', '.join(alone)}.")
    return "\n".join(words)


def _measures(folder: ResultsFolder) -> str:
    lines = measure_lines(folder.runs)
    words = "## Log loss, ROC AUC, average precision"
    shown = {line.label for line in lines}
    absent = [label for label in CLASSIFIED if label not in shown]
    left_out = (
        "Left out, as no preset and a rival have kept these scores there on a common"
        f" split: {', '.join(absent) or 'nothing'}."
    )
    if not lines:
        return f"{words}\n\n{left_out}"
    table = text.measure_table(lines)
    about = (
        "Of the test rows, runs of ours that have kept them, with defaults, on common"
        " splits; bold is best. ROC AUC and average precision of several classes are"
        " means over each against the rest."
    )
    return f"{words}\n\n{about}\n\n{table}\n\n{left_out}"


def _times(folder: ResultsFolder, path: Path) -> str:
    words = _TIMES.format(table=text.time_table(times(folder.runs)))
    picture = _picture(_beside(path, "seconds"), "mean errors against mean seconds")
    if picture:
        picture.append(_SECONDS)
    return "\n\n".join([words, *picture])


def _commits(made_by: Mapping[Contestant, Sequence[Commit]]) -> str:
    known = {preset.name: part for preset, part in made_by.items() if part}
    names = {commit.name for part in known.values() for commit in part}
    if len(names) == 1:
        verdict = "All runs of presets are of one commit."
    else:
        verdict = (
            f"{text.OTHER_COMMIT} marks another commit than that of most runs of a"
            " preset; its sets are marked above."
        )
    return _COMMITS.format(verdict=verdict, table=text.commit_table(known))


def _levers(folder: ResultsFolder, path: Path) -> str:
    words = "## Levers taken out"
    lines = read_levers(folder.path)
    if lines is None:
        how = "`python -m reproduction levers --data FOLDER`"
        return f"{words}\n\nNot run: `reproduction/results/{FILE}` comes from {how}."
    names = ", ".join(f"`{name}`" for name in sorted(set(lines["commit"])) if name)
    about = (
        "The default preset without one lever: the change of its error (RMSE, the share"
        " of wrong classes, log loss) in percent, above zero if the lever was of use,"
        " against the same table with all levers (the lines of"
        f" `reproduction/results/{FILE}` whose lever is `{NONE}`). *Mean*: geometric."
        f" Commits: {names or 'not known'}."
    )
    table = text.lever_table(changes(lines), lines)
    picture = _picture(_beside(path, "levers"), "more error without each lever")
    return "\n\n".join([words, about, table, *picture])


def short_name(preset: Contestant) -> str:
    """Return the name of a preset alone."""
    return preset.name.removeprefix("preset ")


def _beside(path: Path, picture: str) -> Path:
    """Return the path of a picture of the page."""
    return path.with_name(f"{path.stem}-{picture}.svg")


def _picture(path: Path, words: str) -> list[str]:
    """Return the line of a picture if it was drawn."""
    return [f"![{words}]({path.name})"] if path.is_file() else []


def draw(folder: ResultsFolder, path: Path) -> None:
    """Draw the pictures of a page beside its path, and take old ones away."""
    results, lines = read_results(folder), read_levers(folder.path)
    for name in PICTURES:
        _beside(path, name).unlink(missing_ok=True)
    for preset in PRESETS:
        to = _beside(path, short_name(preset))
        pictures.draw_errors(board(results, preset), to)
    pictures.draw_seconds(results, times(folder.runs), _beside(path, "seconds"))
    if lines is not None:
        pictures.draw_levers(changes(lines), _beside(path, "levers"))


def write(folder: ResultsFolder, path: Path) -> None:
    """Write the page after its pictures, which it names if they are there."""
    draw(folder, path)
    write_bytes(path, to_markdown(folder, path).encode())

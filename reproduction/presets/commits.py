"""The commits of the code that the runs of the presets were made with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from reproduction.presets.boards import SETS, Contestant, runs_of
from reproduction.runs import Run

_LENGTH = 10  # of a commit's name on a page


class Commit(NamedTuple):
    """A commit, and the runs and sets that a preset has of it; None is not known."""

    name: str | None
    n_runs: int
    sets: tuple[str, ...]

    def __str__(self) -> str:
        if self.name is None:
            return "not known"
        short, dirty, _ = self.name.partition("-dirty")
        return f"`{short[:_LENGTH]}`" + (", with changed files" if dirty else "")


def commits(runs: Iterable[Run], preset: Contestant) -> list[Commit]:
    """Return the commits of a preset's runs, that of most runs first."""
    n_runs: Counter[str | None] = Counter()
    sets: dict[str | None, set[str]] = {}
    for _, label, result in runs_of(runs, [preset]):
        n_runs[result.commit] += 1
        sets.setdefault(result.commit, set()).add(label)
    in_order = sorted(n_runs, key=lambda name: (-n_runs[name], name or ""))
    return [
        Commit(name, n_runs[name], tuple(s for s in SETS if s in sets[name]))
        for name in in_order
    ]


def other_sets(made_by: Sequence[Commit]) -> set[str]:
    """Return the sets with runs of another commit than most runs."""
    return {label for commit in made_by[1:] for label in commit.sets}

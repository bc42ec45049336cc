"""TabR-S against boosted trees, all with default parameters, on both benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from reproduction.paper.grid import SETS
from reproduction.paper.scores import Model, Results, RunKind
from reproduction.paper.text import DASH, absence, figure, title
from reproduction.paper.win_tie_loss import OUTCOMES, TREES, Match, match, record_text

CHALLENGER = Model("tabr-s", "default")


def comparable_sets(results: Results) -> list[str]:
    """Return the sets of both benchmarks with runs of ours."""
    labels = results.at_hand
    second = sorted(filter(_second, labels), key=str.lower)
    return [label for label in SETS if label in labels] + second


def default_matches(results: Results, kind: RunKind) -> dict[str, Match]:
    """Let TabR-S meet each library of trees on all sets that can be compared."""
    sets = comparable_sets(results)
    return {
        tree: match(results, CHALLENGER, Model(method, "default"), kind, sets)
        for tree, method in TREES.items()
    }


def has_runs(results: Results, kind: RunKind) -> bool:
    """Tell whether anything of ours could be compared."""
    return any(found.ours for found in default_matches(results, kind).values())


def total_rows(results: Results, kind: RunKind) -> list[list[str]]:
    """Return the counts for each library and benchmark."""
    rows = []
    for tree, found in default_matches(results, kind).items():
        for name, is_second in (("first", False), ("second", True)):
            part = Match(
                *([d for d in ds if _second(d.label) == is_second] for ds in found)
            )
            rows.append(
                [
                    tree,
                    name,
                    str(len(part.ours) or DASH),
                    record_text(part.ours),
                    record_text(part.same),
                    str(part.n_agreeing) if part.ours else DASH,
                    record_text(part.every),
                ]
            )
    return rows


def _second(label: str) -> bool:
    return label.startswith("why/")


def set_rows(results: Results, kind: RunKind) -> list[list[str]]:
    """Return a line for each set: all scores of ours, and who won on either side."""
    found = default_matches(results, kind)
    rows = []
    for label in comparable_sets(results):
        cell = results.ours.cell(CHALLENGER, kind, label)
        row = [title(results, label), figure(cell.score) if cell else DASH]
        for tree, method in TREES.items():
            model = Model(method, "default")
            theirs = results.ours.cell(model, kind, label)
            row.append(figure(theirs.score) if theirs else DASH)
            row.append(_outcomes(found[tree], label))
        rows.append(row)
    return rows


def _outcomes(found: Match, label: str) -> str:
    """Write the outcome of ours and, after a slash, the published one."""
    ours = {duel.label: OUTCOMES[duel.outcome] for duel in found.ours}
    every = found.same if label in ours else found.every
    published = {duel.label: OUTCOMES[duel.outcome] for duel in every}
    return f"{ours.get(label, DASH)} / {published.get(label, DASH)}"


def not_run(results: Results, kind: RunKind) -> str:
    """Name the sets on which TabR-S or trees have no runs of ours."""
    models = {"TabR-S": CHALLENGER}
    models |= {tree: Model(method, "default") for tree, method in TREES.items()}
    run = {name: results.ours.labels(model, kind) for name, model in models.items()}
    absent = {
        name: [label for label in comparable_sets(results) if label not in labels]
        for name, labels in run.items()
    }
    return absence(absent, [name for name, labels in run.items() if labels])


def to_frame(results: Results, kinds: Sequence[RunKind]) -> pd.DataFrame:
    """Return a line for each set and library that have runs of either side."""
    lines = []
    for kind in kinds:
        for tree, found in default_matches(results, kind).items():
            ours = {duel.label: duel for duel in found.ours}
            published = {d.label: d for d in [*found.every, *found.same]}
            for label in comparable_sets(results):
                line: dict[str, object] = {"set": label, "against": tree, "kind": kind}
                line["metric"] = results.metrics[label]
                for name, side in (("ours", ours), ("published", published)):
                    duel = side.get(label)
                    line |= {
                        f"{name}_splits": duel and len(duel.splits),
                        f"{name}_tabr": duel and duel.one.score.mean,
                        f"{name}_tabr_std": duel and duel.one.score.std,
                        f"{name}_trees": duel and duel.other.score.mean,
                        f"{name}_trees_std": duel and duel.other.score.std,
                        f"{name}_outcome": duel and OUTCOMES[duel.outcome],
                    }
                lines.append(line)
    frame = pd.DataFrame(lines)
    whole = [column for column in frame.columns if column.endswith("_splits")]
    return frame.astype(dict.fromkeys(whole, "Int64"))

"""TabR-S against boosted trees, all with default parameters, on both benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from reproduction.paper.grid import SETS
from reproduction.paper.scores import Model, Results
from reproduction.paper.text import absence, figure, title
from reproduction.paper.win_tie_loss import (
    TREES,
    WORDS,
    Outcomes,
    count_text,
    outcomes_of,
)
from reproduction.runs import RunKind
from tabr.text import ABSENT

CHALLENGER = Model("tabr-s", "default")


def comparable_sets(results: Results) -> list[str]:
    """Return the sets of both benchmarks with runs of ours."""
    labels = results.at_hand
    second = sorted(filter(_second, labels), key=str.lower)
    return [label for label in SETS if label in labels] + second


def default_outcomes(results: Results, kind: RunKind) -> dict[str, Outcomes]:
    """Return the outcomes of TabR-S against each library of trees."""
    sets = comparable_sets(results)
    return {
        tree: outcomes_of(results, (CHALLENGER, Model(method, "default")), kind, sets)
        for tree, method in TREES.items()
    }


def has_runs(results: Results, kind: RunKind) -> bool:
    """Whether anything of ours could be compared."""
    return any(part.ours for part in default_outcomes(results, kind).values())


def total_rows(results: Results, kind: RunKind) -> list[list[str]]:
    """Return the counts for each library and benchmark."""
    rows = []
    for tree, outcomes in default_outcomes(results, kind).items():
        for name, is_second in (("first", False), ("second", True)):
            part = Outcomes(
                *(
                    [line for line in side if _second(line.label) == is_second]
                    for side in outcomes
                )
            )
            rows.append(
                [
                    tree,
                    name,
                    str(len(part.ours) or ABSENT),
                    count_text(part.ours),
                    count_text(part.same_sets),
                    str(part.n_agreeing) if part.ours else ABSENT,
                    count_text(part.all_sets),
                ]
            )
    return rows


def _second(label: str) -> bool:
    return label.startswith("why/")


def set_rows(results: Results, kind: RunKind) -> list[list[str]]:
    """Return a line for each set: our scores, and the outcomes of either side."""
    outcomes = default_outcomes(results, kind)
    models = {tree: Model(method, "default") for tree, method in TREES.items()}
    rows = []
    for label in comparable_sets(results):
        row = [title(results, label), _figure(results, CHALLENGER, kind, label)]
        for tree, model in models.items():
            row.append(_figure(results, model, kind, label))
            row.append(_outcome_text(outcomes[tree], label))
        rows.append(row)
    return rows


def _figure(results: Results, model: Model, kind: RunKind, label: str) -> str:
    cell = results.ours.cell(model, kind, label)
    return figure(cell.score) if cell else ABSENT


def _outcome_text(outcomes: Outcomes, label: str) -> str:
    """Return the outcome of ours and, after a slash, the published one."""
    ours = {line.label: WORDS[line.outcome] for line in outcomes.ours}
    lines = outcomes.same_sets if label in ours else outcomes.all_sets
    published = {line.label: WORDS[line.outcome] for line in lines}
    return f"{ours.get(label, ABSENT)} / {published.get(label, ABSENT)}"


def not_run(results: Results, kind: RunKind) -> str:
    """Return a sentence on the sets on which TabR-S or trees have no runs of ours."""
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
        for tree, outcomes in default_outcomes(results, kind).items():
            ours = {part.label: part for part in outcomes.ours}
            published = {part.label: part for part in outcomes.all_sets}
            published |= {part.label: part for part in outcomes.same_sets}
            for label in comparable_sets(results):
                line: dict[str, object] = {"set": label, "against": tree, "kind": kind}
                line["metric"] = results.metrics[label]
                for name, side in (("ours", ours), ("published", published)):
                    part = side.get(label)
                    line |= {
                        f"{name}_splits": part and len(part.splits),
                        f"{name}_tabr": part and part.first.score.mean,
                        f"{name}_tabr_std": part and part.first.score.std,
                        f"{name}_trees": part and part.second.score.mean,
                        f"{name}_trees_std": part and part.second.score.std,
                        f"{name}_outcome": part and WORDS[part.outcome],
                    }
                lines.append(line)
    frame = pd.DataFrame(lines)
    whole = [column for column in frame.columns if column.endswith("_splits")]
    return frame.astype(dict.fromkeys(whole, "Int64"))

"""The first page: what there is, in short, how to read it, and what was run."""

from __future__ import annotations

from reproduction.paper import defaults, steps, tables, times, win_tie_loss
from reproduction.paper.grid import SETS, STDS, Grid, comparisons
from reproduction.paper.scores import Model, Results
from reproduction.paper.text import table
from reproduction.runs import RunKind
from tabr.bench.methods import METHODS
from tabr.text import ABSENT

_INDEX = """# The paper's tables and figures, ours and published

Made from `reproduction/results` alone, its run tables and `published.csv`, by

    python -m reproduction paper

which also writes all figures with ten digits to `reproduction/results/paper/*.csv`. The
runs are made by `tabr bench run`, and `python -m reproduction fold` puts them into the
tables.

{contents}

## How to read the tables

- A figure is the mean over seeds, or over ensembles of five seeds, with its standard
  deviation where there is room. Tuned parameters are those that the paper's authors
  published.
- ↓ RMSE, ↑ accuracy. A star: our split is not the paper's but another one by chance
  (64 / 16 / 20), so the two sides need not agree closely. {absent}
- Two means are apart if they differ by more than the standard deviation of the better
  one. **Bold**: the best of its side on a set and all that are not apart from it, if
  there are two or more to compare.
- Ranks follow the same rule: all that are not apart from the best share rank 1, and so
  on among the others. *Rank, n sets* is that of both sides over the sets that every
  model run by us has; *rank, all sets* that of the published runs.
- Several splits of a set are pooled; two models meet on the splits that both have. On a
  set whose rows or columns are not the paper's there are no comparisons.
- A dash: not run, or not published.

## What was run

Seeds and sets of the first and the second benchmark, then ensembles.

{coverage}

Methods without any run: {never}.
"""


def to_markdown(results: Results) -> str:
    """Return the first page."""
    absent = ", ".join(label for label in SETS if label not in results.at_hand)
    header = ["model", "hardware", "seeds, first", "second", "ensembles, first"]
    header.append("second")
    return _INDEX.format(
        contents=table(["page", "of the paper", "in short"], _contents(results), 3),
        absent=f"Nothing was run on {absent}: their tables are not at hand.",
        coverage=table(header, coverage_rows(results), 2),
        never=", ".join(f"`{name}`" for name in never_run(results)) or "none",
    )


def _contents(results: Results) -> list[list[str]]:
    """Return a line for each page: its name, what it holds, the shortest summary."""
    design = [tables.design(results), tables.ablation(results)]
    trees = [*tables.trees(results, "single").values()]
    return [
        [
            "[Design steps and ablation](design.md)",
            "`tab:design`, `A:tab:ablation`",
            f"{_steps(design[0])}; {_cells(design)}",
        ],
        [
            "[Retrieval models and networks](networks.md)",
            "`tab:exp-revisiting`",
            _cells([tables.networks(results)]),
        ],
        [
            "[Boosted trees](trees.md)",
            "`tab:exp-gbdt-ours`, `A:tab:xgboost-with-neighbors`",
            _cells([*trees, tables.neighbors(results, "single")]),
        ],
        [
            "[The second benchmark](second.md)",
            "`tab:exp-gbdt-why`, `fig:timeline`",
            _second(results),
        ],
        [
            "[Nobody tuned](defaults.md)",
            "not in it",
            _defaults(results),
        ],
        [
            "[Training times](times.md)",
            "`A:tab:training-time-all`",
            f"{len(times.timed(results).run)} models timed by us",
        ],
    ]


def _steps(design: Grid) -> str:
    run = [pair for pair in steps.ordered_pairs(design) if pair.ours is not None]
    if not run:
        return "no clear step run yet"
    n_same = sum(pair.agrees for pair in run)
    return f"{n_same} of {len(run)} clear steps go the published way"


def _cells(grids: list[Grid]) -> str:
    """Return how many cells lie near the published ones; shared cells count once."""
    cells = {(c.model, c.label): c for grid in grids for c in comparisons(grid)}
    if not cells:
        return "nothing to compare on the paper's own splits yet"
    within = sum(cell.is_within for cell in cells.values())
    return (
        f"on the paper's own splits {within} of {len(cells)} cells within {STDS:g}"
        " published standard deviations"
    )


def _second(results: Results) -> str:
    outcomes = win_tie_loss.second_outcomes(results, "ensemble").values()
    n_run = sum(bool(part.ours) for part in outcomes)
    return f"{n_run} of {len(outcomes)} comparisons of ensembles have runs of ours"


def _defaults(results: Results) -> str:
    records = [
        f"{tree} {win_tie_loss.count_text(part.ours)}"
        for tree, part in defaults.default_outcomes(results, "single").items()
        if part.ours
    ]
    return f"wins / ties / losses of TabR-S: {', '.join(records) or 'not run'}"


# --- what was run -----------------------------------------------------------------


def coverage_rows(results: Results) -> list[list[str]]:
    """Return a line for each model that has runs of ours, in the registry's order."""
    models = {model for model, _, _ in results.ours.parts}
    order = list(METHODS)
    return [
        [
            f"`{model.method}`, {model.config}",
            _hardware(results, model),
            _extent(results, model, "single", second=False),
            _extent(results, model, "single", second=True),
            _extent(results, model, "ensemble", second=False),
            _extent(results, model, "ensemble", second=True),
        ]
        for model in sorted(models, key=lambda m: (order.index(m.method), m.config))
    ]


def _extent(results: Results, model: Model, kind: RunKind, *, second: bool) -> str:
    labels = results.ours.labels(model, kind)
    labels = [label for label in labels if label.startswith("why/") == second]
    cells = [results.ours.cell(model, kind, label) for label in labels]
    n_runs = sum(cell.n_runs for cell in cells if cell is not None)
    return f"{n_runs} on {len(labels)}" if labels else ABSENT


def _hardware(results: Results, model: Model) -> str:
    names = set[str]()
    for (run, _, _), parts in results.ours.parts.items():
        if run == model:
            names |= {name for cell in parts.values() for name in cell.hardware}
    return " and ".join(sorted(names))


def never_run(results: Results) -> list[str]:
    """Return the methods of the registry that have no runs of ours at all."""
    run = {model.method for model, _, _ in results.ours.parts}
    return [name for name in METHODS if name not in run]

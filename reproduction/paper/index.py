"""The first page: what there is, in short, how to read it, and what was run."""

from __future__ import annotations

from reproduction.paper import coverage, defaults, steps, tables, times, win_tie_loss
from reproduction.paper.grid import SETS, STDS, Grid, comparisons
from reproduction.paper.scores import Results
from reproduction.paper.text import table

_INDEX = """# The paper's tables and figures, ours and published

Made from the files in `results/` alone, our runs and `published.csv`, by

    python -m reproduction paper --out results --write docs/paper

which also writes all figures with ten digits to `results/paper/*.csv`. The runs are
made by `python -m tabr.bench run` and kept one file each.

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
        coverage=table(header, coverage.rows(results), 2),
        never=", ".join(f"`{name}`" for name in coverage.never_run(results)) or "none",
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
    """Count the cells that lie near the published ones, those of two tables once."""
    found = {(c.model, c.label): c for grid in grids for c in comparisons(grid)}
    if not found:
        return "nothing to compare on the paper's own splits yet"
    within = sum(c.is_within for c in found.values())
    return (
        f"on the paper's own splits {within} of {len(found)} cells within {STDS:g}"
        " published standard deviations"
    )


def _second(results: Results) -> str:
    matches = win_tie_loss.matches(results, "ensemble").values()
    n_run = sum(bool(match.ours) for match in matches)
    return f"{n_run} of {len(matches)} comparisons of ensembles have runs of ours"


def _defaults(results: Results) -> str:
    records = [
        f"{tree} {win_tie_loss.record_text(match.ours)}"
        for tree, match in defaults.default_matches(results, "single").items()
        if match.ours
    ]
    return f"wins / ties / losses of TabR-S: {', '.join(records) or 'not run'}"

"""The pages of the paper's comparisons, and the command that writes them."""

from __future__ import annotations

from pathlib import Path

from reproduction.paper import (
    defaults,
    index,
    steps,
    tables,
    timeline,
    times,
    win_tie_loss,
)
from reproduction.paper.grid import Grid
from reproduction.paper.pictures import draw
from reproduction.paper.scores import KINDS, Results, read_results
from reproduction.paper.text import (
    Marks,
    bullets,
    grid_table,
    remarks,
    spread_table,
    table,
)
from reproduction.results_folder import ResultsFolder, to_csv
from reproduction.runs import RunKind
from tabr.tables.files import write_bytes

FOLDER = "paper"  # of the files of figures, in the results folder
_KIND_TITLES: dict[RunKind, str] = {
    "ensemble": "Ensembles of five",
    "single": "Single models",
}

_DESIGN = """# Design steps and ablation

How to read the tables: [index](index.md). Made by `python -m reproduction paper`.

## Step by step

The paper's `tab:design`. Underlined: better than the step above by more than the
standard deviation.

![scores of each step, ours and published](design.svg)

{steps}

{order}

## Which part of Step-2 matters

The paper's `A:tab:ablation`: the similarity (dot product or L2 distance), queries of
their own or keys alone, and the neighbours' labels or not. In the published code of the
two rows with L2 and queries a row's similarity to itself had the wrong sign, so these
need not match.

{ablation}
"""

_NETWORKS = """# Retrieval models and networks

How to read the tables: [index](index.md). Made by `python -m reproduction paper`.

The paper's `tab:exp-revisiting`: single models with tuned parameters. DNNR has one-hot
categories where there are any; TabR has the embeddings that the paper chose, PLR-lite
or, on the largest sets, LR. No published run of NPT on otto is known, so ranks differ a
little from those that the paper prints.

{networks}
"""

_TREES = """# Boosted trees

How to read the tables: [index](index.md). Made by `python -m reproduction paper`.

The paper's `tab:exp-gbdt-ours` compares ensembles of five; single models follow. Where
we have no ensembles, our figures are in the tables of single models alone.

{trees}

## XGBoost that sees the average neighbour

The paper's `A:tab:xgboost-with-neighbors`: ensembles of tuned models; single ones
follow.

{neighbors}
"""

_SECOND = """# The second benchmark: wins, ties and losses

How to read the tables: [index](index.md). Made by `python -m reproduction paper`.

Win / tie / loss of a model against boosted trees over the sets of the second benchmark
(Grinsztajn et al.), tuned against tuned and default against default. Beside ours: the
published runs on the same sets and splits, on how many sets the outcome is the same,
the published runs on all {n_published} sets that they cover, and what the paper says of
its own {n_paper}. Of these {n_published} nothing was run that could be compared on
{absent}: their tables are not at hand, or not as the paper has them.

## Single models over the years

The paper's `fig:timeline`: single networks against a single XGBoost, tuned, and the
defaults of both.

![wins, ties and losses against XGBoost over the years](timeline.svg)

{timeline}

{parts}"""

_DEFAULTS = """# TabR-S against boosted trees, nobody tuned

How to read the tables: [index](index.md). Made by `python -m reproduction paper`.

TabR-S with default parameters against XGBoost, CatBoost and LightGBM with theirs, on
all sets of both benchmarks that can be compared. Outcomes are those of TabR-S, ours /
published; scores are ours.

{parts}"""

_TIMES = """# Training times

How to read the tables: [index](index.md). Made by `python -m reproduction paper`.

The paper's `A:tab:training-time-all`: seconds of one fit, with tuned parameters unless
a name says otherwise. Ours includes preprocessing and validation. Runs that share a
machine slow one another down: of ours the mean is over those seeds that shared it with
the fewest others. Times of different hardware cannot be compared.

![seconds of a fit, ours and published](times.svg)

{times}
"""


_SECOND_HEADER = (
    "model",
    "against",
    "sets of ours",
    "ours",
    "published, the same",
    "same outcome",
    "published, all",
    "paper",
)


def pages(results: Results) -> dict[str, str]:
    """Return the text of each page by its file name."""
    return {
        "index.md": index.to_markdown(results),
        "design.md": _design(results),
        "networks.md": _NETWORKS.format(networks=_part(tables.networks(results))),
        "trees.md": _trees(results),
        "second.md": _second(results),
        "defaults.md": _defaults(results),
        "times.md": _times(results),
    }


def write(results_folder: ResultsFolder, folder: Path) -> None:
    """Write pages and pictures into a folder, and figures into the results folder."""
    results = read_results(results_folder)
    for name, text in pages(results).items():
        write_bytes(folder / name, text.encode())
    for name, text in files(results).items():
        write_bytes(results_folder.path / FOLDER / name, text.encode())
    draw(results, folder)


def files(results: Results) -> dict[str, str]:
    """Return the text of each file of figures by its name."""
    frames = tables.frames(results)
    return {f"{name}.csv": to_csv(frame) for name, frame in frames.items()}


def _part(grid: Grid, marks: Marks = "best") -> str:
    """Return a table, what to know of it, and its standard deviations."""
    parts = (grid_table(grid, marks), bullets(remarks(grid)), spread_table(grid, marks))
    return "\n\n".join(parts)


def _design(results: Results) -> str:
    grid = tables.design(results)
    return _DESIGN.format(
        steps=_part(grid, "improved"),
        order=steps.order_text(steps.ordered_pairs(grid)),
        ablation=_part(tables.ablation(results)),
    )


def _trees(results: Results) -> str:
    parts = []
    for kind in KINDS:
        for config, grid in tables.trees(results, kind).items():
            parts.append(f"## {_KIND_TITLES[kind]}, {config}\n\n{_part(grid)}")
    neighbors = [
        f"### {_KIND_TITLES[kind]}\n\n{_part(tables.neighbors(results, kind))}"
        for kind in KINDS
    ]
    return _TREES.format(trees="\n\n".join(parts), neighbors="\n\n".join(neighbors))


def _second(results: Results) -> str:
    sets = win_tie_loss.second_sets(results)
    published = {label for _, _, label in results.published.parts}
    header = ["model", "sets of ours", "ours", "published, the same"]
    header += ["published sets", "published"]
    parts = [
        f"## {_KIND_TITLES[kind]}\n\n"
        + table(_SECOND_HEADER, win_tie_loss.rows(results, kind), left=2)
        + f"\n\n{bullets([win_tie_loss.not_run(results, kind)])}"
        for kind in KINDS
    ]
    return _SECOND.format(
        n_published=len(published & set(sets)),
        n_paper=win_tie_loss.N_PAPER,
        absent=", ".join(
            s.removeprefix("why/") for s in win_tie_loss.not_ours(results)
        ),
        timeline=table(header, timeline.rows(results)),
        parts="\n\n".join(parts) + "\n",
    )


def _defaults(results: Results) -> str:
    trees = [text for tree in win_tie_loss.TREES for text in (tree, "outcome")]
    parts = []
    for kind in KINDS[::-1]:  # single runs are more
        if kind == "ensemble" and not defaults.has_runs(results, kind):
            continue
        header = ["against", "benchmark", "sets of ours", "ours"]
        header += ["published, the same", "same outcome", "published, all"]
        totals = table(header, defaults.total_rows(results, kind), left=2)
        sets = table(["set", "TabR-S", *trees], defaults.set_rows(results, kind))
        absent = bullets([defaults.not_run(results, kind)])
        parts.append(f"## {_KIND_TITLES[kind]}\n\n{totals}\n\n{sets}\n\n{absent}")
    return _DEFAULTS.format(parts="\n\n".join(parts) + "\n")


def _times(results: Results) -> str:
    grid = times.timed(results)
    header = ["model", "", "hardware", *grid.sets]
    return _TIMES.format(times=table(header, times.rows(grid), left=3))

"""The page of the studies and its pictures, made from their files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from reproduction.results_folder import ResultsFolder
from reproduction.studies import STUDIES, pictures, standings, tables
from reproduction.studies.methods import N_NEAREST, N_TREES, PATIENCE
from reproduction.studies.rare import SIZES
from reproduction.studies.small import MOST_TESTED, N_TRAIN
from reproduction.studies.time_trees import MOST_ROWS
from tabr.tables.files import write_bytes


class Picture(NamedTuple):
    """A picture: what its name has after the page's, what it shows, what draws it."""

    suffix: str
    words: str
    draw: Callable[[pd.DataFrame, Path], None]


class Part(NamedTuple):
    """A table or a remark, and perhaps a picture below it.

    Attributes:
        write: Makes the text from records.
        picture: The picture, or None.
        what: Which of the records it is about; None is all of them.
    """

    write: Callable[[pd.DataFrame], str]
    picture: Picture | None = None
    what: str | None = None

    def chosen(self, records: pd.DataFrame) -> pd.DataFrame:
        """Return the records it is about."""
        return records if self.what is None else records[records.what == self.what]


_STOPPING = (
    "All stop early by the same rows: the presets as always, CatBoost and LightGBM with"
    f" their own defaults after {PATIENCE} rounds that bring nothing, of {N_TREES:,} at"
    " most. **Bold**: the best of a line."
)
# Title, and the text before the tables.
_TITLES: Mapping[str, tuple[str, str]] = {
    "attention": (
        "Where attention falls",
        "California: the mean weight that test rows give to neighbours within 10 km,"
        " and to themselves where a step has them in their context.",
    ),
    "entropy": (
        "How diverse contexts are",
        "The weights that test rows give to candidates, averaged over the rows, and the"
        " entropy of that average in nats; what rows give to themselves counts as one"
        " candidate more. Step 1 has the similarity of usual attention, step 2 that of"
        " distances between keys; both have the published tuned parameters. *Uniform*:"
        " all training rows weigh the same.",
    ),
    "projection": (
        "What corrects the labels of neighbours",
        "TabR-S with the published tuned parameters, whose scores are those of the"
        " paper's table. A trained model predicts again without the projection of"
        " T(k - k_i) on a direction: a random one, the mean of several, or that of"
        " embedded labels, along which T corrects the labels of neighbours. Test RMSE,"
        " for house in dollars.",
    ),
    "freeze": (
        "Context freeze",
        "TabR-S with its defaults: after so many epochs, 0 is before the first, the"
        " neighbours of training rows stay the same. *Share of time*: of a whole fit,"
        " against never freezing, however many epochs either took; the published times"
        " are of other hardware. *Share of an epoch*: the same for one epoch."
        " *Delta-context*: the weight of neighbours that are new since the last epoch,"
        " and by how much that of the others has grown, the mean over training rows;"
        " epochs are counted from 0.",
    ),
    "new-candidates": (
        "New candidates without training",
        "Trained on a tenth of the training rows; the rest is added afterwards, and"
        " nothing is trained again. covtype: accuracy; nycflights13, split in time:"
        " RMSE of the delay in minutes.",
    ),
    "time": (
        "Through time",
        "The first 64 % of the rows train, the next 16 % stop early, the last 20 % are"
        " predicted. *Refreshed*: validation rows are candidates too. *past*:"
        " `PastOnly`, in training too, and refreshed. *Living*: besides, test rows"
        " arrive in twenty parts and become candidates once they are predicted. *Time"
        " ignored*: the column of times rules, but is no feature.",
    ),
    "time-trees": (
        "Trees through time",
        "The presets beside trees on the same tables, split in time as above; of the"
        f" rows that train, the latest {MOST_ROWS:,} at most. Nobody has a rule, and no"
        " label of a test row becomes known. *Column of times*: a feature, of trees as"
        f" days since 1970, or left out. {_STOPPING}",
    ),
    "small": (
        "Small tables",
        f"Draws of {N_TRAIN} rows from each table, and up to {MOST_TESTED:,} others to"
        " test; mean scores over draws. Nobody has rows to stop by: presets hold out"
        " some of theirs, CatBoost and LightGBM have their own defaults. *Nearest"
        f" rows*: the mean label of {N_NEAREST}, numbers standardised, categories"
        " one-hot. *Better than CatBoost*: the share of draws; who is equal has a half."
        " *Mean rank*: among all columns, 1 is the best. **Bold**: the best of a line.",
    ),
    "rare": (
        "One row in a hundred",
        "One class has 1 % of the rows of each part. adult: the paper's split, without"
        " most rows of the rarer class. covtype: the rarest class against the others,"
        f" {SIZES[0]:,} rows to learn from, {SIZES[1]:,} to stop by and {SIZES[2]:,} to"
        f" test. Which rows, is drawn anew for each seed. {_STOPPING}",
    ),
}
_CANDIDATES = Picture(
    "",
    "scores against the share of candidates: each seed, and their mean",
    pictures.plot_new_candidates,
)
_CONTEXTS = Picture(
    "-contexts",
    "mean Delta-context by epoch, a line for each table",
    pictures.plot_contexts,
)


def _parts(results: ResultsFolder) -> Mapping[str, tuple[Part, ...]]:
    """Return the parts of each study's section; some show published figures."""
    published = tables.read_figures(results)
    freezing = Picture(
        "-freeze",
        "scores against the share of time, ours and published",
        partial(pictures.plot_freeze, published=published),
    )
    freeze_table = partial(tables.freeze_table, published=published)
    return {
        "attention": (Part(tables.attention_table),),
        "entropy": (Part(tables.entropy_table), Part(tables.entropy_remark)),
        "projection": (Part(tables.projection_table), Part(tables.projection_remark)),
        "freeze": (
            Part(freeze_table, freezing, "fit"),
            Part(tables.context_table, _CONTEXTS, "contexts"),
        ),
        "new-candidates": (
            Part(tables.new_candidates_table),
            Part(tables.new_candidates_remark, _CANDIDATES),
        ),
        "time": (Part(tables.time_table), Part(tables.time_remark)),
        "time-trees": _beside_trees("time-trees"),
        "small": (*_beside_trees("small"), Part(standings.ranks_table)),
        "rare": (*_beside_trees("rare"), Part(standings.rare_remark)),
    }


def _beside_trees(name: str) -> tuple[Part, ...]:
    """Return the parts of a study that sets the presets beside trees."""
    layout = standings.LAYOUTS[name]
    return (
        Part(partial(standings.scores_table, layout=layout)),
        Part(partial(standings.trees_remark, layout=layout)),
    )


def to_markdown(results: ResultsFolder, page: str = "studies") -> str:
    """Return the page of all studies; pictures begin with the name of the page."""
    text = ["# Studies", "", "Means ± standard deviations over seeds.", ""]
    for name, parts in _parts(results).items():
        title, words = _TITLES[name]
        text += [f"## {title}", "", words, ""]
        study = results.study(name)
        if study is None:
            command = f"python -m reproduction study {name} --data FOLDER"
            text += [f"Not run yet: `{command}`.", ""]
            continue
        command, records = study
        text += [f"`{command}`", ""]
        absent = _absent(name, records)
        if absent:
            text += [f"Not run on {', '.join(absent)}.", ""]
        for part, chosen in _parts_with_records(parts, records):
            text += [part.write(chosen), ""]
            if part.picture is not None:
                file = f"{page}{part.picture.suffix}.svg"
                text += [f"![{part.picture.words}]({file})", ""]
    text += ["This page is made by `python -m reproduction studies`.", ""]
    return "\n".join(text)


def _absent(name: str, records: pd.DataFrame) -> list[str]:
    """Return the tables that a study looks at but has no record of."""
    if "table" not in records:  # it looks at one alone
        return []
    return [table for table in STUDIES[name].tables if table not in set(records.table)]


def write_page(results: ResultsFolder, page: Path) -> None:
    """Write the page of all studies, and its pictures beside it."""
    write_bytes(page, to_markdown(results, page.stem).encode())
    for name, parts in _parts(results).items():
        study = results.study(name)
        if study is None:
            continue
        for part, chosen in _parts_with_records(parts, study[1]):
            if part.picture is not None:
                path = page.with_name(f"{page.stem}{part.picture.suffix}.svg")
                part.picture.draw(chosen, path)


def _parts_with_records(
    parts: Iterable[Part], records: pd.DataFrame
) -> Iterator[tuple[Part, pd.DataFrame]]:
    """Yield the parts that have records, and these."""
    for part in parts:
        chosen = part.chosen(records)
        if len(chosen):
            yield part, chosen

"""Tables and remarks of the studies, ours beside what the paper says."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pandas as pd

from reproduction.results_folder import ResultsFolder
from reproduction.studies import TIMED, way_through_time
from reproduction.studies.entropy import STEPS
from tabr.text import markdown_table

# The paper's appendix on the similarity module, California: the step, the share of
# attention within 10 km, and on the row itself.
NEARBY = {"step-1": (0.01, 0.0007), "step-2": (0.77, 0.07)}
# Its table of entropies: step 1, step 2, and of a uniform distribution.
ENTROPY = {
    "churn": (6.6, 8.4, 8.8),
    "california": (6.1, 9.0, 9.5),
    "house": (7.0, 9.3, 9.6),
    "adult": (7.1, 9.7, 10.2),
    "diamond": (5.8, 10.3, 10.4),
    "otto": (5.3, 10.1, 10.6),
}
# Its table of RMSEs without a projection: none left out, a random one, that on labels.
# House is in dollars here, in tens of thousands of them there.
PROJECTION = {
    "california": (0.403, 0.403, 0.465),
    "house": (30670.0, 30710.0, 36490.0),
    "diamond": (0.133, 0.133, 0.364),
    "black-friday": (0.690, 0.690, 0.695),
}
NEVER = -1  # in the place of a number of epochs
_PLAIN = "TabR-S default"
_FIGURES = {
    "test_mean": "published",
    "test_std": "published_std",
    "train_seconds": "published_seconds",
}
SHOWN_EPOCHS = (1, 2, 4, 8, 16, 32)  # of the curves of Delta-context; the first is 0


def spread(values: pd.Series[Any], digits: int = 4) -> str:
    """Return the mean and the standard deviation over seeds; one seed has none.

    >>> spread(pd.Series([1.0, 2.0, 3.0]), 2)
    '2.00 ± 0.82'
    >>> spread(pd.Series([2.0]), 2)
    '2.00'
    """
    text = f"{values.mean():.{digits}f}"
    return f"{text} ± {values.std(ddof=0):.{digits}f}" if len(values) > 1 else text


def _digits(value: float) -> int:
    """Return how many decimals a score is written with: house is in dollars."""
    return 4 if abs(value) < 1000 else 0


def _score(values: pd.Series[Any]) -> str:
    return spread(values, _digits(float(values.mean())))


# --- attention, entropy, projection -----------------------------------------------


def attention_table(records: pd.DataFrame) -> str:
    """Return where attention falls, a line for each model."""
    rows = []
    for name, part in records.groupby("model", sort=False):
        published = NEARBY.get(str(name))
        row = [str(name), f"{100 * part.within_10_km.mean():.1f} %"]
        row.append("" if published is None else f"{100 * published[0]:.0f} %")
        row.append(f"{100 * part.on_itself.mean():.2f} %")
        row.append("" if published is None else f"{100 * published[1]:.2f} %")
        rows.append([*row, spread(part.test)])
    header = ["model", "within 10 km", "published", "on the row itself", "published"]
    return markdown_table([*header, "test RMSE"], rows)


def entropy_table(records: pd.DataFrame) -> str:
    """Return entropies, a line for each table."""
    rows = []
    for name, part in records.groupby("table", sort=False):
        published = ENTROPY.get(str(name), (None, None, None))
        row = [str(name)]
        for step, figure in zip(STEPS, published, strict=False):
            entropies = part[part.model == step].entropy
            row.append(spread(entropies, 2) if len(entropies) else "")
            row.append("" if figure is None else f"{figure:.1f}")
        row.append(f"{part.uniform.iloc[0]:.2f}")
        rows.append([*row, "" if published[2] is None else f"{published[2]:.1f}"])
    header = ["table", "step 1", "published", "step 2", "published"]
    return markdown_table([*header, "uniform", "published"], rows)


def entropy_remark(records: pd.DataFrame) -> str:
    """Return the number of tables on which step 2 has the more diverse contexts."""
    means = records.pivot_table(index="table", columns="model", values="entropy")
    means = means.reindex(columns=list(STEPS)).dropna()
    n_more = int((means["step-2"] > means["step-1"]).sum())
    return f"Step 2 is the more diverse on {n_more} of {len(means)} tables."


def projection_table(records: pd.DataFrame) -> str:
    """Return RMSEs without a projection, a line for each table."""
    rows = []
    for name, part in records.groupby("table", sort=False):
        published = PROJECTION.get(str(name), (None, None, None))
        row = [str(name)]
        columns = ("test", "without_random", "without_label")
        for column, figure in zip(columns, published, strict=True):
            row.append(_score(part[column]))
            decimals = 0 if figure is None else max(0, _digits(figure) - 1)
            row.append("" if figure is None else f"{figure:.{decimals}f}")
        rows.append(row)
    header = ["table", "nothing left out", "published", "a random one", "published"]
    return markdown_table([*header, "that on labels", "published"], rows)


def projection_remark(records: pd.DataFrame) -> str:
    """Return a sentence on how much worse predictions become, in percent."""
    label = 100 * (records.without_label / records.test - 1)
    means = label.groupby(records.table).mean()
    worst = float((100 * (records.worst_random / records.test - 1)).max())
    return (
        f"Without the projection on labels the RMSE changes by {means.min():+.1f} % to"
        f" {means.max():+.1f} %, the mean of a table; without the worst random one by"
        f" {worst:+.1f} % at most."
    )


# --- context freeze -----------------------------------------------------------------


def read_figures(results: ResultsFolder) -> pd.DataFrame:
    """Return the published figures of single models; there may be none."""
    if not results.has_published:
        return pd.DataFrame(columns=["dataset", "model", *_FIGURES])
    rows = results.all_published
    return rows[rows["kind"] == "single"] if "kind" in rows else rows


def freeze_figures(records: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each table and number of epochs, ours and the published.

    Shares are against never freezing, of the time of a fit or of an epoch. What is not
    known is NaN.
    """
    fits = records.assign(after=records.freeze_after.fillna(NEVER).astype(int))
    groups = fits.groupby(["table", "after"], sort=False)
    ours = groups[["test", "epochs", "seconds", "seconds_per_epoch"]].mean()
    ours["test_std"], ours["seeds"] = groups.test.std(ddof=0), groups.size()
    ours = ours.reset_index()
    ours["model"] = [_PLAIN if n == NEVER else f"TabR-S CF-{n}" for n in ours.after]
    figures = published.rename(columns={"dataset": "table", **_FIGURES})
    figures = figures.drop_duplicates(["table", "model"])
    figures = figures[["table", "model", *_FIGURES.values()]]
    never = ours[ours.after == NEVER], figures[figures.model == _PLAIN]
    for table, plain, names in (
        (ours, never[0], {"seconds": "share", "seconds_per_epoch": "epoch_share"}),
        (figures, never[1], {"published_seconds": "published_share"}),
    ):
        for column, share in names.items():
            usual = plain.set_index("table")[column]
            table[share] = table[column] / table.table.map(usual)
    return ours.merge(figures, how="left", on=["table", "model"])


def freeze_table(records: pd.DataFrame, published: pd.DataFrame) -> str:
    """Return scores and times by the epoch after which contexts were frozen."""

    def figure(mean: float, std: float) -> str:
        digits = _digits(mean)
        text = "" if pd.isna(mean) else f"{mean:.{digits}f}"
        return text if pd.isna(std) else f"{text} ± {std:.{digits}f}"

    rows = []
    for line in freeze_figures(records, published).to_dict("records"):
        never = line["after"] == NEVER
        row = [line["table"], "never" if never else str(line["after"])]
        row.append(str(line["seeds"]))
        alone = line["seeds"] == 1
        row.append(figure(line["test"], math.nan if alone else line["test_std"]))
        row.append(figure(line["published"], line["published_std"]))
        row += [f"{line['epochs']:.1f}", f"{line['seconds']:.1f}"]
        for name in ("share", "published_share", "epoch_share"):
            row.append("" if pd.isna(line[name]) else f"{line[name]:.2f}")
        rows.append(row)
    header = ["table", "frozen after", "seeds", "test score", "published", "epochs"]
    shares = ["share of time", "published", "share of an epoch"]
    return markdown_table([*header, "seconds", *shares], rows)


def context_curves(records: pd.DataFrame) -> dict[str, list[float]]:
    """Return the mean Delta-context of each table from the second epoch on.

    It is that of the epochs which all seeds have come to: a mean over fewer would jump
    where one stops.
    """
    curves = {}
    for name, part in records.groupby("table", sort=False):
        length = min(map(len, part.context_change))
        mean = pd.DataFrame([c[:length] for c in part.context_change]).mean()
        curves[str(name)] = mean.tolist()
    return curves


def context_table(records: pd.DataFrame) -> str:
    """Return Delta-context at some epochs, a line for each table."""
    rows = []
    for name, curve in context_curves(records).items():
        at = [f"{curve[e - 1]:.3f}" if e <= len(curve) else "" for e in SHOWN_EPOCHS]
        last = f"{curve[-1]:.3f} ({len(curve)})" if curve else ""
        rows.append([name, *at, last])
    epochs = [f"epoch {epoch}" for epoch in SHOWN_EPOCHS]
    return markdown_table(["Delta-context", *epochs, "last of all seeds"], rows)


# --- new candidates, time -------------------------------------------------------------


def new_candidates_table(records: pd.DataFrame) -> str:
    """Return scores by the share of rows that are candidates."""
    rows = []
    for (name, share), part in records.groupby(["table", "share"], sort=False):
        count = f"{round(part.candidates.mean()):,}"
        seconds = f"{part.add_seconds.mean():.2f}"
        rows.append([str(name), f"{share:.0%}", count, spread(part.test), seconds])
    header = ["table", "of the rows", "candidates", "test score", "seconds to add"]
    return markdown_table(header, rows)


def new_candidates_remark(records: pd.DataFrame) -> str:
    """Return on how many seeds all rows are better candidates than the fewest."""
    parts = []
    for name, part in records.groupby("table", sort=False):
        scores = part.pivot(index="seed", columns="share", values="test")
        gain = scores[scores.columns.max()] - scores[scores.columns.min()]
        n_better = int((gain > 0).sum() if name == "covtype" else (gain < 0).sum())
        parts.append(f"{name} for {n_better} of {len(gain)} seeds")
    return f"All rows are better than a tenth: on {', on '.join(parts)}."


def time_table(records: pd.DataFrame) -> str:
    """Return scores of ways to retrieve through time, a column for each table."""
    tables = [(name, kind) for name, _, kind in TIMED if (records.table == name).any()]
    header = ["way"]
    for name, kind in tables:
        header.append(f"{name}, {'RMSE' if kind == 'regression' else 'accuracy'}")
    rows = []
    for ignored, past in itertools.product((False, True), (False, True)):
        for more in (None, "living" if past else "refreshed"):
            way = way_through_time(past, ignored, more)
            row = [way]
            for name, kind in tables:
                scores = records[(records.table == name) & (records.way == way)].test
                digits = 2 if kind == "regression" else 3
                row.append(spread(scores, digits) if len(scores) else "")
            rows.append(row)
    return markdown_table(header, rows)


def time_remark(records: pd.DataFrame) -> str:
    """Return a sentence on where the past alone, refreshed, beats the plain model."""
    better = []
    means = records.groupby(["table", "way"]).test.mean()
    for name, _, kind in TIMED:
        if (name, "plain") in means and (name, "past") in means:
            gain = float(means[name, "past"] - means[name, "plain"])
            if gain > 0 if kind == "classification" else gain < 0:
                better.append(name)
    n_tables = records.table.nunique()
    names = f": {', '.join(better)}" if better else ""
    n_seeds = records.groupby("table", sort=False).seed.nunique()
    few = [f"{name} has {n} seeds" for name, n in n_seeds.items() if n < n_seeds.max()]
    more = f" ({'; '.join(few)})" if few else ""
    return f"*past* beats *plain* on {len(better)} of {n_tables} tables{names}{more}."

"""The pictures of the page, one function each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.report.evidence import Evidence
from tabr.report.pictures import COLORS, MOST_DOTS, Paint, draw
from tabr.report.places import Coordinates
from tabr.report.trust import Coverage, Reliability
from tabr.text import number, percent

Floats = NDArray[np.float64]

MAP = (4.4, 4.2)  # inches
FIFTHS = ("e1", "e2", "e3", "e4", "e5")  # colours of errors, small to large


def _some(n: int) -> NDArray[np.int64]:
    """Return the rows that become dots: a page with all of many would be slow."""
    return np.sort(np.random.RandomState(0).permutation(n)[:MOST_DOTS])


def _share(value: float) -> str:
    return percent(round(float(value), 6))


def _rough(value: float) -> str:
    return number(float(value), 3)


def training(history: pd.DataFrame, best: Sequence[int], column: str, name: str) -> str:
    """Draw a column of the history, a line for each member, best epochs marked."""

    def paint(axis: Any) -> None:
        for k, (member, part) in enumerate(history.groupby("member")):
            values = part[column].to_numpy(float)
            if name.startswith("validation RMSE"):
                values = -values
            epochs = part["epoch"].to_numpy() + 1
            axis.plot(epochs, values, color=COLORS["first"], linewidth=1.3, alpha=0.8)
            at = best[int(str(member))]
            if 0 <= at < len(values) and np.isfinite(values[at]):
                label = "kept" if k == 0 else None
                style = {"color": COLORS["second"], "markersize": 6, "zorder": 3}
                axis.plot(at + 1, values[at], "o", label=label, **style)
        if axis.get_legend_handles_labels()[0]:
            _legend(axis)
        if column == "context_change":
            axis.set_ylim(bottom=0)
        axis.xaxis.get_major_locator().set_params(integer=True)

    return draw(f"training {column}", paint, x="epoch", y=name)


def _legend(axis: Any, **more: Any) -> None:
    axis.legend(frameon=False, labelcolor=COLORS["ink"], fontsize=9, **more)


def predicted_and_true(evidence: Evidence) -> str:
    """Draw predictions against truth."""
    rows = _some(len(evidence))
    truth, values = evidence.truth[rows].astype(float), evidence.prediction[rows]

    def paint(axis: Any) -> None:
        low, high = min(truth.min(), values.min()), max(truth.max(), values.max())
        axis.plot([low, high], [low, high], color=COLORS["muted"], linewidth=1)
        _dots(axis, truth, values)

    x, y = f"true {evidence.target}", f"predicted {evidence.target}"
    return draw("predicted", paint, x=x, y=y)


def residuals(evidence: Evidence) -> str:
    """Draw errors against predictions."""
    rows = _some(len(evidence))
    values = evidence.prediction[rows]
    errors = evidence.truth[rows].astype(float) - values

    def paint(axis: Any) -> None:
        axis.axhline(0, color=COLORS["muted"], linewidth=1)
        _dots(axis, values, errors)

    name = f"predicted {evidence.target}"
    return draw("residuals", paint, x=name, y="true minus predicted")


def _dots(axis: Any, x: Floats, y: Floats) -> None:
    axis.plot(
        x,
        y,
        "o",
        markersize=3,
        markeredgewidth=0,
        color=COLORS["first"],
        alpha=0.45,
    )


def coverage(found: Coverage, what: str) -> str:
    """Draw observed against asked coverage."""

    def paint(axis: Any) -> None:
        ends = (min(found.asked) - 0.03, 1.0)
        axis.plot(ends, ends, color=COLORS["muted"], linewidth=1, label="as promised")
        style = {"color": COLORS["first"], "linewidth": 1.3, "markersize": 5}
        axis.plot(found.asked, found.observed, "o-", label="observed", **style)
        _legend(axis, loc="upper left")

    x, y = f"coverage that {what} promise", "rows whose truth is inside"
    return draw("coverage", paint, x=x, y=y, ticks=(_share, _share))


def reliability(found: Reliability) -> str:
    """Draw what happened against probabilities, with twice its standard error."""
    variance = found.happened * (1 - found.happened) / np.maximum(found.counts, 1)
    whiskers = 2 * np.sqrt(variance)
    low = np.minimum(whiskers, found.happened)
    high = np.minimum(whiskers, 1 - found.happened)

    def paint(axis: Any) -> None:
        axis.plot([0, 1], [0, 1], color=COLORS["muted"], linewidth=1, label="reliable")
        axis.errorbar(
            found.given,
            found.happened,
            yerr=np.stack([low, high]),
            fmt="o-",
            markersize=5,
            linewidth=1.3,
            elinewidth=1,
            color=COLORS["first"],
            label="observed",
        )
        _legend(axis, loc="upper left")

    y = "share of rows where it was so"
    return draw("reliability", paint, x=found.what, y=y, ticks=(_share, _share))


def histogram(name: str, values: Floats, x: str, *, shares: bool = False) -> str:
    """Draw how values are distributed over rows, and their median."""
    middle = float(np.median(values))
    write = _share if shares else _rough

    def paint(axis: Any) -> None:
        # Edges of our own: numpy refuses bins of values that are all but equal.
        low, high = float(values.min()), float(values.max())
        span = max(high - low, 1e-6 * max(abs(high), 1e-6))
        edges = low + span * np.linspace(0, 1, 31)
        axis.hist(values, bins=edges, color=COLORS["first"], alpha=0.75)
        label = f"median {write(middle)}"
        axis.axvline(middle, color=COLORS["second"], linewidth=1.5, label=label)
        _legend(axis)

    return draw(name, paint, x=x, y="rows", ticks=(write, number))


def error_map(evidence: Evidence, at: Coordinates) -> str:
    """Draw rows where they are, coloured by the fifth that their error is in."""
    rows = _some(len(evidence))
    x, y = _place(evidence.frame.iloc[rows], at)
    errors = evidence.errors
    limits = np.quantile(errors, [0.2, 0.4, 0.6, 0.8])
    fifth = np.searchsorted(limits, errors[rows])

    def paint(axis: Any) -> None:
        # In the table's order: with the largest on top, crowds would look wrong.
        colors = [COLORS[FIFTHS[k]] for k in fifth]
        axis.scatter(x, y, s=11, c=colors, linewidths=0, alpha=0.85)
        for k, words in ((0, "smallest fifth"), (2, "middle"), (4, "largest fifth")):
            style = {"markersize": 6, "markeredgewidth": 0}
            axis.plot([], [], "o", color=COLORS[FIFTHS[k]], label=words, **style)
        _legend(axis, title="error", loc="best")
        axis.get_legend().get_title().set_color(COLORS["ink"])
        _frame(axis, x, y)

    return _draw_map("error map", paint, at)


def neighbor_map(evidence: Evidence, at: Coordinates, row: int) -> str:
    """Draw one row's neighbours where they are, lines as wide as their weights."""
    shown = _some(len(evidence))
    x, y = _place(evidence.frame.iloc[shown], at)
    here = [part[0] for part in _place(evidence.frame.iloc[[row]], at)]
    ids, weights = evidence.table.ids[row], evidence.table.weights[row]
    weights = weights[ids >= 0]
    known = evidence.model.candidates_.look_up(ids[ids >= 0])
    there = _place(known, at)

    def paint(axis: Any) -> None:
        faint = {"markersize": 2.5, "markeredgewidth": 0, "alpha": 0.25}
        axis.plot(x, y, "o", color=COLORS["muted"], **faint)
        heaviest = max(float(weights.max(initial=0.0)), 1e-12)
        for k in np.argsort(weights):
            width = 0.3 + 3.2 * weights[k] / heaviest
            line = [here[0], there[0][k]], [here[1], there[1][k]]
            axis.plot(*line, color=COLORS["first"], linewidth=width, alpha=0.55)
        dots = {"markersize": 4, "markeredgewidth": 0, "zorder": 3}
        axis.plot(*there, "o", color=COLORS["first"], label="its neighbours", **dots)
        style = {"markersize": 11, "zorder": 4, "markeredgewidth": 0}
        axis.plot(*here, "*", color=COLORS["second"], label="the row", **style)
        _legend(axis, loc="best")
        # As near as the neighbours allow: theirs is the picture.
        _frame(axis, np.append(there[0], here[0]), np.append(there[1], here[1]))

    return _draw_map("neighbour map", paint, at)


def _draw_map(name: str, paint: Paint, at: Coordinates) -> str:
    def degrees(value: float) -> str:
        return f"{value:.6g}"

    names = at.longitude, at.latitude
    ticks = degrees, degrees
    return draw(name, paint, x=names[0], y=names[1], size=MAP, ticks=ticks)


def _place(frame: pd.DataFrame, at: Coordinates) -> tuple[Floats, Floats]:
    x, y = (
        frame[name].to_numpy(np.float64, na_value=np.nan)
        for name in (at.longitude, at.latitude)
    )
    return x, y


def _frame(axis: Any, x: Floats, y: Floats) -> None:
    """Show these places in a square, a degree east as long as it is there."""
    middle = [(float(np.nanmin(v)) + float(np.nanmax(v))) / 2 for v in (x, y)]
    east = float(np.cos(np.radians(np.clip(middle[1], -75, 75))))
    spans = [float(np.nanmax(v) - np.nanmin(v)) for v in (x, y)]
    reach = 0.55 * max(spans[0] * east, spans[1], 0.02)
    axis.set_xlim(middle[0] - reach / east, middle[0] + reach / east)
    axis.set_ylim(middle[1] - reach, middle[1] + reach)
    axis.set_aspect(1 / east)

"""The pictures of the page: each function returns one as an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.report.evaluation import Evaluation, random_rows
from tabr.report.reliability import Coverage, Reliability
from tabr.report.svg import COLORS, MOST_DOTS, Paint, draw
from tabr.tables.coordinates import Coordinates
from tabr.text import number, percent

Floats = NDArray[np.float64]

MAP = (4.4, 4.2)  # inches
FIFTHS = ("e1", "e2", "e3", "e4", "e5")  # colours of errors, small to large


def _share(value: float) -> str:
    return percent(round(float(value), 6))


def _rough(value: float) -> str:
    return number(float(value), 3)


def training(history: pd.DataFrame, best: Sequence[int], column: str, name: str) -> str:
    """A column of the history, a line for each member, best epochs marked."""

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


def predicted_and_true(evaluation: Evaluation) -> str:
    """Predictions against truth."""
    rows = random_rows(len(evaluation), MOST_DOTS)
    truth, values = evaluation.truth[rows].astype(float), evaluation.prediction[rows]

    def paint(axis: Any) -> None:
        low, high = min(truth.min(), values.min()), max(truth.max(), values.max())
        axis.plot([low, high], [low, high], color=COLORS["muted"], linewidth=1)
        _dots(axis, truth, values)

    x, y = f"true {evaluation.target}", f"predicted {evaluation.target}"
    return draw("predicted", paint, x=x, y=y)


def residuals(evaluation: Evaluation) -> str:
    """Errors against predictions."""
    rows = random_rows(len(evaluation), MOST_DOTS)
    values = evaluation.prediction[rows]
    errors = evaluation.truth[rows].astype(float) - values

    def paint(axis: Any) -> None:
        axis.axhline(0, color=COLORS["muted"], linewidth=1)
        _dots(axis, values, errors)

    name = f"predicted {evaluation.target}"
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


def coverage(measured: Coverage, what: str) -> str:
    """Observed against asked coverage."""

    def paint(axis: Any) -> None:
        ends = (min(measured.asked) - 0.03, 1.0)
        axis.plot(ends, ends, color=COLORS["muted"], linewidth=1, label="as promised")
        style = {"color": COLORS["first"], "linewidth": 1.3, "markersize": 5}
        axis.plot(measured.asked, measured.observed, "o-", label="observed", **style)
        _legend(axis, loc="upper left")

    x, y = f"coverage that {what} promise", "rows whose truth is inside"
    return draw("coverage", paint, x=x, y=y, ticks=(_share, _share))


def reliability(measured: Reliability) -> str:
    """Observed shares against probabilities, with twice their standard error."""
    observed = measured.observed
    variance = observed * (1 - observed) / np.maximum(measured.counts, 1)
    whiskers = 2 * np.sqrt(variance)
    low, high = np.minimum(whiskers, observed), np.minimum(whiskers, 1 - observed)

    def paint(axis: Any) -> None:
        axis.plot([0, 1], [0, 1], color=COLORS["muted"], linewidth=1, label="reliable")
        axis.errorbar(
            measured.predicted,
            observed,
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
    return draw("reliability", paint, x=measured.what, y=y, ticks=(_share, _share))


def histogram(name: str, values: Floats, x: str, *, shares: bool = False) -> str:
    """The distribution of values over rows, and their median."""
    middle = float(np.median(values))
    write = _share if shares else _rough

    def paint(axis: Any) -> None:
        # With edges by hand, as numpy refuses bins of values that are all but equal.
        low, high = float(values.min()), float(values.max())
        span = max(high - low, 1e-6 * max(abs(high), 1e-6))
        edges = low + span * np.linspace(0, 1, 31)
        axis.hist(values, bins=edges, color=COLORS["first"], alpha=0.75)
        label = f"median {write(middle)}"
        axis.axvline(middle, color=COLORS["second"], linewidth=1.5, label=label)
        _legend(axis)

    return draw(name, paint, x=x, y="rows", ticks=(write, number))


def error_map(evaluation: Evaluation, names: Coordinates) -> str:
    """Rows where they are, coloured by the fifth that their error is in."""
    rows = random_rows(len(evaluation), MOST_DOTS)
    x, y = _degrees(evaluation.frame.iloc[rows], names)
    errors = evaluation.errors
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

    return _draw_map("error map", paint, names)


def neighbor_map(evaluation: Evaluation, names: Coordinates, row: int) -> str:
    """One row's neighbours where they are, lines as wide as their weights."""
    shown = random_rows(len(evaluation), MOST_DOTS)
    x, y = _degrees(evaluation.frame.iloc[shown], names)
    row_x, row_y = (part[0] for part in _degrees(evaluation.frame.iloc[[row]], names))
    ids, weights = evaluation.table.ids[row], evaluation.table.weights[row]
    weights = weights[ids >= 0]
    neighbors = evaluation.model.candidates_.look_up(ids[ids >= 0])
    neighbor_x, neighbor_y = _degrees(neighbors, names)

    def paint(axis: Any) -> None:
        faint = {"markersize": 2.5, "markeredgewidth": 0, "alpha": 0.25}
        axis.plot(x, y, "o", color=COLORS["muted"], **faint)
        heaviest = max(float(weights.max(initial=0.0)), 1e-12)
        for k in np.argsort(weights):
            width = 0.3 + 3.2 * weights[k] / heaviest
            line = [row_x, neighbor_x[k]], [row_y, neighbor_y[k]]
            axis.plot(*line, color=COLORS["first"], linewidth=width, alpha=0.55)
        dots: dict[str, Any] = {"markersize": 4, "markeredgewidth": 0, "zorder": 3}
        dots |= {"color": COLORS["first"], "label": "its neighbours"}
        axis.plot(neighbor_x, neighbor_y, "o", **dots)
        star: dict[str, Any] = {"markersize": 11, "zorder": 4, "markeredgewidth": 0}
        star |= {"color": COLORS["second"], "label": "the row"}
        axis.plot(row_x, row_y, "*", **star)
        _legend(axis, loc="best")
        # As near as the neighbours allow: the picture is about them.
        _frame(axis, np.append(neighbor_x, row_x), np.append(neighbor_y, row_y))

    return _draw_map("neighbour map", paint, names)


def _draw_map(name: str, paint: Paint, names: Coordinates) -> str:
    def degrees(value: float) -> str:
        return f"{value:.6g}"

    x, y, ticks = names.longitude, names.latitude, (degrees, degrees)
    return draw(name, paint, x=x, y=y, size=MAP, ticks=ticks)


def _degrees(frame: pd.DataFrame, names: Coordinates) -> tuple[Floats, Floats]:
    """Return longitudes and latitudes."""
    x, y = (
        frame[name].to_numpy(np.float64, na_value=np.nan)
        for name in (names.longitude, names.latitude)
    )
    return x, y


def _frame(axis: Any, x: Floats, y: Floats) -> None:
    """Set the limits to a square around places, with degrees as long as they are."""
    middle = [(float(np.nanmin(v)) + float(np.nanmax(v))) / 2 for v in (x, y)]
    east = float(np.cos(np.radians(np.clip(middle[1], -75, 75))))
    spans = [float(np.nanmax(v) - np.nanmin(v)) for v in (x, y)]
    reach = 0.55 * max(spans[0] * east, spans[1], 0.02)
    axis.set_xlim(middle[0] - reach / east, middle[0] + reach / east)
    axis.set_ylim(middle[1] - reach, middle[1] + reach)
    axis.set_aspect(1 / east)

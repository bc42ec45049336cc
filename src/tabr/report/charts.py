"""The pictures of the page: each function returns one as an SVG.

Colours are variables of the page, so that pictures follow its scheme.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.optional import require
from tabr.report.evaluation import Evaluation
from tabr.report.reliability import Coverage, Reliability
from tabr.tables.coordinates import Coordinates
from tabr.tables.frame import random_rows
from tabr.text import number, percent, short

Floats = NDArray[np.float64]
P = ParamSpec("P")

# matplotlib writes these colours, the page reads them as variables of its scheme.
# Each must differ from all others.
COLORS = {
    "ink": "#1c2733",
    "muted": "#5f6b78",
    "line": "#d5dbe1",
    "first": "#2563a8",
    "second": "#c2570c",
    "third": "#2e7d4f",
    "e1": "#8fb8de",
    "e2": "#6f8fc0",
    "e3": "#8a6fae",
    "e4": "#b24c84",
    "e5": "#c0263f",
}
FIFTHS = ("e1", "e2", "e3", "e4", "e5")  # colours of errors, small to large
SIZE, MAP = (4.2, 2.9), (4.4, 4.2)  # inches; on the page a point is about a pixel
MOST_DOTS = 1500


def picture(paint: Callable[Concatenate[Any, P], None]) -> Callable[P, str]:
    """Return a function that paints on an axis of its own and returns the SVG."""

    @wraps(paint)
    def draw(*args: P.args, **options: P.kwargs) -> str:
        matplotlib: Any = require("matplotlib", "report")
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        settings = {
            "svg.fonttype": "none",  # text as text, in the page's font
            "text.parse_math": False,  # a name may hold dollars
            "font.size": 10,
            "axes.unicode_minus": True,
        }
        with matplotlib.rc_context(settings), warnings.catch_warnings():
            # A glyph that matplotlib's font lacks is there in the reader's.
            warnings.simplefilter("ignore")
            axis: Any = Figure(figsize=SIZE, layout="constrained").subplots()
            axis.xaxis.set_major_locator(MaxNLocator(6))
            axis.yaxis.set_major_locator(MaxNLocator(6))
            axis.grid(color=COLORS["line"], linewidth=0.6)
            axis.set_axisbelow(True)
            axis.tick_params(colors=COLORS["muted"], length=0, labelsize=9)
            axis.spines[:].set_visible(False)
            paint(axis, *args, **options)
            # Makes the ids inside differ from those of other pictures.
            salt = f"tabr {paint.__name__} {axis.get_xlabel()} {axis.get_ylabel()}"
            matplotlib.rcParams["svg.hashsalt"] = salt
            file = io.StringIO()
            metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # none
            axis.figure.savefig(file, format="svg", transparent=True, metadata=metadata)
        # Escaped by matplotlib already.
        markup: str = require("markupsafe", "report").Markup(_for_page(file.getvalue()))
        return markup

    return draw


def _label(
    axis: Any,
    x: str,
    y: str,
    x_text: Callable[[Any], str] = number,
    y_text: Callable[[Any], str] = number,
) -> None:
    """Set what the two axes show, and how their numbers are written."""
    axis.set_xlabel(short(x, 60), color=COLORS["ink"])
    axis.set_ylabel(short(y, 44), color=COLORS["ink"])
    axis.xaxis.set_major_formatter(lambda value, _: x_text(value))
    axis.yaxis.set_major_formatter(lambda value, _: y_text(value))


def _share(value: float) -> str:
    return percent(round(float(value), 6))


def _legend(axis: Any, **options: Any) -> None:
    axis.legend(frameon=False, labelcolor=COLORS["ink"], fontsize=9, **options)


def _dots(axis: Any, x: Any, y: Any, size: float = 3, **style: Any) -> None:
    axis.plot(x, y, "o", markersize=size, markeredgewidth=0, **style)


@picture
def training(
    axis: Any, history: pd.DataFrame, best: Sequence[int], column: str, name: str
) -> None:
    """A column of the history, a line for each member, best epochs marked."""
    for k, (member, part) in enumerate(history.groupby("member")):
        values = part[column].to_numpy(float)
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
    _label(axis, "epoch", name)


@picture
def predicted_and_true(axis: Any, evaluation: Evaluation) -> None:
    """Predictions against truth."""
    rows = random_rows(len(evaluation), MOST_DOTS)
    truth, values = evaluation.truth[rows].astype(float), evaluation.prediction[rows]
    ends = [min(truth.min(), values.min()), max(truth.max(), values.max())]
    axis.plot(ends, ends, color=COLORS["muted"], linewidth=1)
    _dots(axis, truth, values, color=COLORS["first"], alpha=0.45)
    _label(axis, f"true {evaluation.target}", f"predicted {evaluation.target}")


@picture
def residuals(axis: Any, evaluation: Evaluation) -> None:
    """Errors against predictions."""
    rows = random_rows(len(evaluation), MOST_DOTS)
    values = evaluation.prediction[rows]
    errors = evaluation.truth[rows].astype(float) - values
    axis.axhline(0, color=COLORS["muted"], linewidth=1)
    _dots(axis, values, errors, color=COLORS["first"], alpha=0.45)
    _label(axis, f"predicted {evaluation.target}", "true minus predicted")


@picture
def coverage(axis: Any, measured: Coverage, what: str) -> None:
    """Observed against asked coverage."""
    ends = (min(measured.asked) - 0.03, 1.0)
    axis.plot(ends, ends, color=COLORS["muted"], linewidth=1, label="as promised")
    style = {"color": COLORS["first"], "linewidth": 1.3, "markersize": 5}
    axis.plot(measured.asked, measured.observed, "o-", label="observed", **style)
    _legend(axis, loc="upper left")
    x, y = f"coverage that {what} promise", "rows whose truth is inside"
    _label(axis, x, y, _share, _share)


@picture
def reliability(axis: Any, measured: Reliability) -> None:
    """Observed shares against probabilities, with twice their standard error."""
    observed = measured.observed
    variance = observed * (1 - observed) / np.maximum(measured.counts, 1)
    whiskers = 2 * np.sqrt(variance)
    low, high = np.minimum(whiskers, observed), np.minimum(whiskers, 1 - observed)
    axis.plot([0, 1], [0, 1], color=COLORS["muted"], linewidth=1, label="reliable")
    style = {"color": COLORS["first"], "linewidth": 1.3, "markersize": 5}
    style |= {"fmt": "o-", "elinewidth": 1, "label": "observed"}
    axis.errorbar(measured.predicted, observed, yerr=np.stack([low, high]), **style)
    _legend(axis, loc="upper left")
    _label(axis, measured.what, "share of rows where it was so", _share, _share)


@picture
def histogram(axis: Any, values: Floats, x: str, *, shares: bool = False) -> None:
    """The distribution of values over rows, and their median."""
    middle = float(np.median(values))
    text = _share if shares else lambda value: number(float(value), 3)
    # With edges by hand, as numpy refuses bins of values that are all but equal.
    low, high = float(values.min()), float(values.max())
    span = max(high - low, 1e-6 * max(abs(high), 1e-6))
    edges = low + span * np.linspace(0, 1, 31)
    axis.hist(values, bins=edges, color=COLORS["first"], alpha=0.75)
    label = f"median {text(middle)}"
    axis.axvline(middle, color=COLORS["second"], linewidth=1.5, label=label)
    _legend(axis)
    _label(axis, x, "rows", text)


@picture
def error_map(axis: Any, evaluation: Evaluation, names: Coordinates) -> None:
    """Rows where they are, coloured by the fifth that their error is in."""
    rows = random_rows(len(evaluation), MOST_DOTS)
    x, y = _degrees(evaluation.frame.iloc[rows], names)
    errors = evaluation.errors
    limits = np.quantile(errors, [0.2, 0.4, 0.6, 0.8])
    # In the table's order: with the largest on top, crowds would look wrong.
    colors = [COLORS[FIFTHS[k]] for k in np.searchsorted(limits, errors[rows])]
    axis.scatter(x, y, s=11, c=colors, linewidths=0, alpha=0.85)
    for k, words in ((0, "smallest fifth"), (2, "middle"), (4, "largest fifth")):
        _dots(axis, [], [], 6, color=COLORS[FIFTHS[k]], label=words)
    _legend(axis, title="error", loc="best")
    axis.get_legend().get_title().set_color(COLORS["ink"])
    _frame(axis, x, y, names)


@picture
def neighbor_map(
    axis: Any, evaluation: Evaluation, names: Coordinates, row: int
) -> None:
    """One row's neighbours where they are, lines as wide as their weights."""
    shown = random_rows(len(evaluation), MOST_DOTS)
    x, y = _degrees(evaluation.frame.iloc[shown], names)
    row_x, row_y = _degrees(evaluation.frame.iloc[[row]], names)
    ids, weights = evaluation.table.ids[row], evaluation.table.weights[row]
    weights = weights[ids >= 0]
    neighbors = evaluation.model.candidates_.look_up(ids[ids >= 0])
    neighbor_x, neighbor_y = _degrees(neighbors, names)
    _dots(axis, x, y, 2.5, color=COLORS["muted"], alpha=0.25)
    heaviest = max(float(weights.max(initial=0.0)), 1e-12)
    for k in np.argsort(weights):
        width = 0.3 + 3.2 * weights[k] / heaviest
        line = [row_x[0], neighbor_x[k]], [row_y[0], neighbor_y[k]]
        axis.plot(*line, color=COLORS["first"], linewidth=width, alpha=0.55)
    style: dict[str, Any] = {"color": COLORS["first"], "zorder": 3}
    _dots(axis, neighbor_x, neighbor_y, 4, label="its neighbours", **style)
    style = {"color": COLORS["second"], "zorder": 4, "markersize": 11}
    axis.plot(row_x, row_y, "*", markeredgewidth=0, label="the row", **style)
    _legend(axis, loc="best")
    # As near as the neighbours allow: the picture is about them.
    _frame(axis, np.append(neighbor_x, row_x), np.append(neighbor_y, row_y), names)


def _degrees(frame: pd.DataFrame, names: Coordinates) -> tuple[Floats, Floats]:
    """Return longitudes and latitudes."""
    x, y = (
        frame[name].to_numpy(np.float64, na_value=np.nan)
        for name in (names.longitude, names.latitude)
    )
    return x, y


def _frame(axis: Any, x: Floats, y: Floats, names: Coordinates) -> None:
    """Set the limits to a square around places, with degrees as long as they are."""
    middle = [(float(np.nanmin(v)) + float(np.nanmax(v))) / 2 for v in (x, y)]
    east = float(np.cos(np.radians(np.clip(middle[1], -75, 75))))
    spans = [float(np.nanmax(v) - np.nanmin(v)) for v in (x, y)]
    reach = 0.55 * max(spans[0] * east, spans[1], 0.02)
    axis.set_xlim(middle[0] - reach / east, middle[0] + reach / east)
    axis.set_ylim(middle[1] - reach, middle[1] + reach)
    axis.set_aspect(1 / east)
    axis.figure.set_size_inches(MAP)
    _label(axis, names.longitude, names.latitude, "{:.6g}".format, "{:.6g}".format)


def _for_page(svg: str) -> str:
    """Return what a browser needs inside a page: no names of spaces, no sizes."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", svg, flags=re.S)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))
    svg = re.sub(r"<[^>]*>", lambda tag: _tag_for_page(tag.group(0), used), svg)
    return re.sub(r">\s+<", "><", svg)


def _tag_for_page(tag: str, used: set[str]) -> str:
    """Return a shorter tag; texts between tags stay as they are."""
    tag = re.sub(r'\s(xmlns(:\w+)?|version)="[^"]*"', "", tag)
    if tag.startswith("<svg"):
        tag = re.sub(r'\s(width|height)="[^"]*"', "", tag)
    tag = tag.replace("xlink:href=", "href=")
    # Ids that nothing points to would stand on the page once for each picture.
    tag = re.sub(
        r'\sid="([^"]*)"', lambda m: m.group(0) if m.group(1) in used else "", tag
    )
    tag = re.sub(r"(\d\.\d\d)\d+", r"\1", tag)
    for name, color in COLORS.items():
        tag = tag.replace(color, f"var(--{name})")
    return tag

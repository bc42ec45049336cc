"""One axis of matplotlib as an SVG that follows the colours of the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

from tabr.optional import require
from tabr.text import number, short

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
SIZE = (4.2, 2.9)  # inches; on the page a point is about a pixel
MOST_DOTS = 1500

Paint = Callable[[Any], None]


def draw(
    name: str,
    paint: Paint,
    *,
    x: str,
    y: str,
    size: tuple[float, float] = SIZE,
    ticks: tuple[Callable[[Any], str], Callable[[Any], str]] = (number, number),
) -> str:
    """Return the SVG of one axis.

    Args:
        name: Makes the ids inside differ from those of other pictures.
        paint: Draws on the axis.
        x: What the horizontal axis shows.
        y: What the vertical axis shows.
        size: In inches.
        ticks: How numbers on the two axes are written.
    """
    matplotlib: Any = require("matplotlib", "report")
    from matplotlib.figure import Figure

    settings = {
        "svg.fonttype": "none",  # text as text, in the page's font
        "svg.hashsalt": f"tabr {name}",
        "text.parse_math": False,  # a name may hold dollars
        "font.size": 10,
        "axes.unicode_minus": True,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A glyph that matplotlib's font lacks is there in the reader's.
        warnings.simplefilter("ignore")
        figure = Figure(figsize=size, layout="constrained")
        axis: Any = figure.subplots()
        _style(axis, ticks)
        paint(axis)
        axis.set_xlabel(short(x, 60), color=COLORS["ink"])
        axis.set_ylabel(short(y, 44), color=COLORS["ink"])
        file = io.StringIO()
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # none
        figure.savefig(file, format="svg", transparent=True, metadata=metadata)
    return _for_page(file.getvalue())


def _style(axis: Any, ticks: tuple[Callable[[Any], str], ...]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for side, write in zip((axis.xaxis, axis.yaxis), ticks, strict=True):
        side.set_major_locator(MaxNLocator(6))
        side.set_major_formatter(
            FuncFormatter(lambda value, _, write=write: write(value))
        )
    axis.grid(color=COLORS["line"], linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(colors=COLORS["muted"], length=0, labelsize=9)
    for side in ("top", "right", "left", "bottom"):
        axis.spines[side].set_visible(False)


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

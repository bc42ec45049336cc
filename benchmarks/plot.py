"""The picture of docs/speed.md: step times as bars, cost curves as lines."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tabr.optional import require
from tabr.tables.files import write_bytes

Record = dict[str, Any]

_INK, _GRID = "#24303d", "#dde4ea"
_COLORS = {"plain": "#8a97a6", "plain-tf32": "#c2ccd6", "tabr": "#1f77b4"}
_FROZEN = "#e08a3c"


def plot(steps: Sequence[Record], curves: Sequence[Record], path: Path) -> None:
    """Draw the records of the benchmarks `step` and `curve`; none draws nothing."""
    panels: list[Callable[[Any], None]] = [partial(_bars, record) for record in steps]
    for record in curves:
        shapes = dict.fromkeys((r["d_in"], r["batch"]) for r in record["sizes"])
        panels += [partial(_curve, record, shape) for shape in shapes]
    if not panels:
        return
    n_columns = min(2, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure = new_figure(5.2 * n_columns, 3.6 * n_rows)
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis, draw in zip(axes, panels, strict=False):
        draw(axis)
        axis.tick_params(labelsize=8, colors=_INK, length=0, which="both")
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    save_figure(figure, path)


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of matplotlib, in inches."""
    require("matplotlib", extra="plots")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Path) -> None:
    """Write a picture: text as text, and the same file for the same figures."""
    matplotlib = require("matplotlib", extra="plots")
    kind = path.suffix.removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else None
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tabr"}):
        figure.savefig(content, format=kind, dpi=150, metadata=metadata)
    picture = content.getvalue()
    write_bytes(path, _with_plain_ids(picture) if kind == "svg" else picture)


def _with_plain_ids(svg: bytes) -> bytes:
    """Return an SVG whose clip paths are numbered.

    Their names are hashes of floats, whose last digits differ from run to run.
    """
    names = dict.fromkeys(re.findall(rb'<clipPath id="(p[0-9a-f]{10})"', svg))
    for i, name in enumerate(names):
        svg = svg.replace(name, b"clip%d" % i)
    return svg


def _bars(record: Record, axis: Any) -> None:
    """Step times of each form; shorter is better."""
    names = list(dict.fromkeys(n for r in record["sizes"] for n in r["forms"]))
    height = 0.8 / len(names)
    all_times: list[float] = []
    for i, name in enumerate(names):
        places, times = [], []
        for place, result in enumerate(record["sizes"]):
            ms = result["forms"].get(name, {}).get("step_ms")
            if ms is not None:
                places.append(place + (i - (len(names) - 1) / 2) * height)
                times.append(ms)
        bars = axis.barh(places, times, height * 0.9, color=_COLORS[name], label=name)
        labels = [f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}" for ms in times]
        axis.bar_label(bars, labels, padding=2, fontsize=7, color=_INK)
        all_times += times
    sizes = [
        f"{r['candidates']:,} x {r['d_in']}\nbatch {r['batch']}"
        for r in record["sizes"]
    ]
    axis.set_yticks(range(len(sizes)), sizes)
    axis.invert_yaxis()
    axis.set_xscale("log")
    first = 10 ** math.floor(math.log10(min(all_times) / 2))
    axis.set_xlim(first, max(all_times) * 3)  # room for the labels
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter("")
    _describe(axis, f"one training step, {_place(record)}", "milliseconds, log scale")
    axis.legend(fontsize=8, frameon=False, labelcolor=_INK, loc="best")


def _curve(record: Record, shape: tuple[int, int], axis: Any) -> None:
    """Step time against candidates, for one input width and batch."""
    d_in, batch = shape
    results = [r for r in record["sizes"] if (r["d_in"], r["batch"]) == shape]
    lines = (
        ("plain", "plain", "step_ms", _COLORS["plain"], "-"),
        ("tabr", "tabr", "step_ms", _COLORS["tabr"], "-"),
        ("tabr", "tabr, frozen contexts", "learning_ms", _FROZEN, "--"),
    )
    for form, label, part, color, style in lines:
        points = [
            (r["candidates"], r["forms"][form][part])
            for r in results
            if part in r["forms"].get(form, {})
        ]
        if points:
            axis.plot(
                *zip(*points, strict=True),
                linestyle=style,
                marker="o",
                markersize=3.5,
                color=color,
                label=label,
            )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.grid(color=_GRID, linewidth=0.6)
    title = f"{d_in} inputs, batch {batch}, {_place(record)}"
    _describe(axis, title, "candidates", "milliseconds a step")
    axis.legend(fontsize=8, frameon=False, labelcolor=_INK)


def _place(record: Record) -> str:
    if record["device"] == "cuda":
        return str(record["hardware"])
    return f"{record['threads']} CPU threads"


def _describe(axis: Any, title: str, x: str, y: str = "") -> None:
    axis.set_title(title, loc="left", fontsize=9, color=_INK)
    axis.set_xlabel(x, fontsize=8, color=_INK)
    axis.set_ylabel(y, fontsize=8, color=_INK)

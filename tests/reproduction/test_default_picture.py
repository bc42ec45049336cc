"""The picture of the reproduction."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from reproduction.default_picture import plot

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'tabr[plots]'")


def table() -> pd.DataFrame:
    sets = ["california", "covtype", "why/wine", "why/jannis-part"]
    return pd.DataFrame(
        {
            "set": sets,
            "bound": ["1.5 std", "2 %", "2 std", ""],
            "verdict": ["within", "worse", "better", "not comparable"],
            "published": [0.4, 0.97, 0.8, 0.8],
            "published_std": [0.003, 0.001, 0.0, 0.01],
            "ours_std": [0.002, 0.001, 0.01, 0.0],
            "better_by_stds": [0.5, -4.0, 3.0, 0.0],
            "better_by_percent": [0.2, -3.0, 1.0, 0.0],
        }
    )


def test_the_same_table_gives_the_same_picture(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "x.svg", tmp_path / "b.svg"
    plot(table(), first)
    plot(table(), second)
    assert first.read_bytes() == second.read_bytes()
    text = first.read_text("utf-8")
    assert "california" in text and "wine" in text
    assert "jannis" not in text  # what cannot be compared is not shown

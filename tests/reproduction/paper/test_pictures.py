"""The pictures, with and without runs of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.paper.pictures import draw

from ..folders import add_runs, publish, results_of

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'tabr[plots]'")
NAMES = ["design.svg", "timeline.svg", "times.svg"]


def test_the_same_results_give_the_same_pictures(tmp_path: Path) -> None:
    fifa = "why/regression-num-medium-0-fifa"
    publish(
        tmp_path,
        {
            ("adult", "MLP", "single"): (0.8, 0.1),
            (fifa, "TabR-S default", "single"): (0.8, 0.0),
            (fifa, "XGBoost default", "single"): (0.9, 0.0),
        },
    )
    add_runs(tmp_path, "adult", "mlp-tuned", [0.8])
    add_runs(tmp_path, "adult", "tabm-default", [0.8])
    results = results_of(tmp_path)
    first, second = tmp_path / "a" / "b", tmp_path / "c"
    draw(results, first)
    draw(results, second)
    assert sorted(path.name for path in first.iterdir()) == NAMES
    for name in NAMES:
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert "tabm, default" in (first / "times.svg").read_text("utf-8")
    timeline = (first / "timeline.svg").read_text("utf-8")
    assert "published, 1 sets" in timeline and "not run" in timeline


def test_a_folder_without_runs_can_be_drawn(tmp_path: Path) -> None:
    publish(tmp_path, {})
    draw(results_of(tmp_path), tmp_path / "pictures")
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == NAMES

"""Seconds of a fit."""

from __future__ import annotations

from pathlib import Path

from reproduction.paper import times
from reproduction.paper.grid import SETS

from ..folders import add_runs, publish, results_of


def test_ours_and_published_stand_below_one_another(tmp_path: Path) -> None:
    publish(tmp_path, {("adult", "MLP", "single"): (0.8, 0.1)})
    add_runs(tmp_path, "adult", "mlp-tuned", [0.8], seconds=4.0, workers=2)
    add_runs(tmp_path, "house", "mlp-tuned", [3.0], seconds=1234.0, hardware="a CPU")
    add_runs(tmp_path, "adult", "tabm-default", [0.8], seconds=2.5)
    add_runs(tmp_path, "why/fifa", "realmlp-default", [0.8])  # not the first benchmark
    grid = times.timed(results_of(tmp_path))
    rows = times.rows(grid)
    (place,) = [i for i, row in enumerate(rows) if row[0] == "MLP"]
    ours, published = (
        dict(zip(SETS, row[3:], strict=True)) for row in rows[place:][:2]
    )
    assert rows[place][1:3] == ["ours", "a CPU and a GPU, 2 to 4 at a time"]
    assert rows[place + 1][:3] == ["", "published", "A100"]
    assert (ours["adult"], ours["house"], ours["otto"]) == ("4.0", "1,234", "-")
    assert (published["adult"], published["house"]) == ("30.0", "-")
    # What the paper does not have follows, without a line of published seconds.
    assert rows[-1][:3] == ["tabm, default", "ours", "a GPU, 4 at a time"]
    frame = times.to_frame(grid)
    assert list(zip(frame["model"], frame["set"], strict=True)) == [
        ("MLP", "house"),
        ("MLP", "adult"),
        ("tabm, default", "adult"),
    ]


def test_nothing_run_is_an_empty_file(tmp_path: Path) -> None:
    publish(tmp_path, {})
    grid = times.timed(results_of(tmp_path))
    assert len(times.to_frame(grid)) == 0
    assert {row[2] for row in times.rows(grid)} == {"-"}

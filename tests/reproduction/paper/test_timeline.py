"""The first figure."""

from __future__ import annotations

from pathlib import Path

from reproduction.paper import timeline

from ..folders import add_runs, publish, results_of


def test_single_networks_meet_xgboost_of_their_kind(tmp_path: Path) -> None:
    fifa = "why/regression-num-medium-0-fifa"
    publish(
        tmp_path,
        {
            (fifa, "MLP", "single"): (0.9, 0.0),
            (fifa, "XGBoost", "single"): (0.8, 0.0),
            (fifa, "XGBoost default", "single"): (0.8, 0.0),
            (fifa, "TabR-S default", "single"): (0.8, 0.0),
            (fifa, "TabR (PLR-lite)", "ensemble of 5"): (0.1, 0.0),
        },
    )
    add_runs(tmp_path, "why/fifa", "tabr-s-default", [0.7])
    add_runs(tmp_path, "why/fifa", "xgboost-default", [0.8])
    results = results_of(tmp_path)
    rows = {row[0]: row[1:] for row in timeline.rows(results)}
    assert rows["MLP, baseline"] == ["-", "-", "-", "1", "0 / 0 / 1"]
    assert rows["TabR, 2023"] == ["-"] * 5  # no single runs
    own = ["1", "1 / 0 / 0", "0 / 1 / 0", "1", "0 / 1 / 0"]
    assert rows["TabR-S, both default"] == own
    frame = timeline.to_frame(results)
    assert frame[frame["side"] == "ours"]["win"].sum() == 1

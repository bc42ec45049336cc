"""TabR-S against boosted trees, nobody tuned."""

from __future__ import annotations

from pathlib import Path

from reproduction.paper import defaults
from reproduction.paper.scores import Results

from ..folders import add_runs, publish, results_of


def make(out: Path) -> Results:
    add_runs(out, "california", "tabr-s-default", [0.40, 0.41])
    add_runs(out, "california", "xgboost-default", [0.47])
    add_runs(out, "california", "catboost-default", [0.402])
    add_runs(out, "adult", "tabr-s-default", [0.85, 0.86])
    add_runs(out, "why/fifa", "tabr-s-default", [0.8])
    add_runs(out, "why/fifa", "xgboost-default", [0.7])
    fifa = "why/regression-num-medium-0-fifa"
    figures = {}
    for name, tabr, tree in (
        ("california", 0.4, 0.5),
        ("adult", 0.85, 0.87),
        (fifa, 0.8, 0.9),
    ):
        figures[name, "TabR-S default", "single"] = (tabr, 0.01)
        figures[name, "XGBoost default", "single"] = (tree, 0.0)
    publish(out, figures)
    return results_of(out)


def test_each_set_has_scores_and_both_outcomes(tmp_path: Path) -> None:
    results = make(tmp_path)
    rows = {row[0]: row[1:] for row in defaults.set_rows(results, "single")}
    assert list(rows) == ["california ↓", "adult ↑", "why/fifa ↓"]
    assert rows["california ↓"] == [
        "0.4050 ± 0.0050",
        "0.47000 ± 0.00000",
        "win / win",
        "0.40200 ± 0.00000",
        "loss / -",  # a single run has no spread, and is better
        "-",
        "- / -",
    ]
    assert rows["adult ↑"][1:3] == ["-", "- / loss"]
    assert rows["why/fifa ↓"][2] == "loss / win"


def test_totals_are_counted_for_each_benchmark(tmp_path: Path) -> None:
    rows = {tuple(r[:2]): r[2:] for r in defaults.total_rows(make(tmp_path), "single")}
    assert rows["XGBoost", "first"] == ["1", "1 / 0 / 0", "1 / 0 / 0", "1", "1 / 0 / 1"]
    assert rows["XGBoost", "second"][:4] == ["1", "0 / 0 / 1", "1 / 0 / 0", "0"]
    assert rows["LightGBM", "first"] == ["-"] * 5


def test_what_was_not_run_is_named(tmp_path: Path) -> None:
    text = defaults.not_run(make(tmp_path), "single")
    assert text.startswith("Not run: LightGBM on any set; XGBoost on adult;")
    assert defaults.has_runs(make(tmp_path), "single")
    assert not defaults.has_runs(make(tmp_path), "ensemble")


def test_the_file_has_all_sets_and_trees(tmp_path: Path) -> None:
    frame = defaults.to_frame(make(tmp_path), ["single"])
    assert len(frame) == 3 * 3
    line = frame[(frame["set"] == "why/fifa") & (frame["against"] == "XGBoost")].iloc[0]
    assert (line["ours_outcome"], line["published_outcome"]) == ("loss", "win")
    assert line["ours_splits"] == 1


def test_outcomes_are_of_the_same_splits(tmp_path: Path) -> None:
    figures = {}
    for split, score in enumerate([0.7, 0.1, 0.1]):
        name = f"why/classif-cat-medium-{split}-rl"
        figures[name, "TabR-S default", "single"] = (score, 0.0)
        figures[name, "XGBoost default", "single"] = (0.5, 0.0)
    publish(tmp_path, figures)

    def outcome() -> str:
        rows = defaults.set_rows(results_of(tmp_path), "single")
        return next(row[3] for row in rows if row[0] == "why/rl ↑")

    add_runs(tmp_path, "why/rl", "tabr-s-default", [0.9])
    assert outcome() == "- / loss"  # over all splits
    add_runs(tmp_path, "why/rl", "xgboost-default", [0.8])
    assert outcome() == "win / win"  # on the first

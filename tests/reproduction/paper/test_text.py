"""The tables as one reads them."""

from __future__ import annotations

from pathlib import Path

from reproduction.paper.grid import Grid, Row, fill
from reproduction.paper.text import grid_table, not_run, remarks, spread_table
from reproduction.runs import RunKind

from ..folders import add_runs, publish, results_of

ROWS = (Row("MLP", ("mlp",)), Row("SAINT", ("saint",)), Row("TabR-S", ("tabr-s",)))
SETS = ("churn", "house", "microsoft")


def make(out: Path, kind: RunKind = "single") -> Grid:
    publish(
        out,
        {
            ("churn", "MLP", "single"): (0.85, 0.01),
            ("churn", "TabR-S", "single"): (0.86, 0.02),
            ("house", "MLP", "single"): (30000.0, 100.0),
            ("house", "SAINT", "single"): (33000.0, 100.0),
            ("house", "TabR-S", "single"): (32000.0, 100.0),
            ("microsoft", "SAINT (fixed)", "single"): (0.75, 0.01),
        },
    )
    add_runs(out, "churn", "mlp-tuned", [0.80, 0.84])
    add_runs(out, "house", "mlp-tuned", [31000.0])
    add_runs(out, "house", "tabr-s-tuned", [29000.0, 29500.0])
    add_runs(out, "house", "tabr-s-tuned", [28000.0] * 3, kind="ensemble")
    return fill(results_of(out), ROWS, SETS, kind)


def cells(text: str, model: str) -> list[list[str]]:
    """The two lines of a model, without its name."""
    lines = [line[2:-2].split(" | ") for line in text.splitlines() if "|" in line]
    place = next(i for i, line in enumerate(lines) if line[0] == model)
    return [line[1:] for line in lines[place : place + 2]]


def test_missing_cells_are_dashes_and_the_best_is_bold(tmp_path: Path) -> None:
    text = grid_table(make(tmp_path))
    assert "| churn\\* ↑ | house ↓, 10⁴ | microsoft ↓ | rank, 1 set |" in text
    assert cells(text, "MLP") == [
        ["ours", "0.8200", "3.1000", "-", "2.0\u00a0±\u00a00.0", "-"],
        [
            "published",
            "**0.8500**",
            "**3.0000**",
            "-",
            "1.0\u00a0±\u00a00.0",
            "1.0\u00a0±\u00a00.0",
        ],
    ]
    ours, published = cells(text, "SAINT")
    assert ours == ["ours", "-", "-", "-", "-", "-"]
    # One model alone is not the best of anything.
    assert published[:4] == ["published", "-", "3.3000", "0.7500"]
    assert cells(text, "TabR-S")[0][2] == "**2.9250**"


def test_steps_are_underlined_instead(tmp_path: Path) -> None:
    text = grid_table(make(tmp_path), "improved")
    assert "**" not in text
    assert cells(text, "TabR-S")[1][2] == "<u>3.2000</u>"
    assert cells(text, "SAINT")[1][2] == "3.3000"
    assert cells(text, "TabR-S")[0][2] == "2.9250"  # the step above was not run


def test_deviations_are_shown_where_there_are_several_runs(tmp_path: Path) -> None:
    text = spread_table(make(tmp_path))
    assert text.startswith("<details>") and text.endswith("</details>")
    assert cells(text, "MLP")[0] == ["ours", "0.8200\u00a0±\u00a00.0200", "3.1000", "-"]


def test_remarks_say_what_a_table_rests_on(tmp_path: Path) -> None:
    assert remarks(make(tmp_path)) == [
        "Ranks of both sides over house, among MLP, TabR-S.",
        "Seeds of ours in a cell: 2; 1 of MLP on house.",
        "On the paper's own splits 0 of 2 cells lie within 2 published standard"
        " deviations. Further away, positive if better: MLP on house (-10.0), TabR-S on"
        " house (+27.5).",
        # We have no table of microsoft.
        "Not run: SAINT on any set; TabR-S on churn.",
    ]


def test_distance_from_equal_published_runs_is_told_in_percent(tmp_path: Path) -> None:
    publish(
        tmp_path,
        {
            ("house", "MLP", "single"): (30000.0, 0.0),
            ("house", "TabR-S", "single"): (32000.0, 0.0),
        },
    )
    add_runs(tmp_path, "house", "mlp-tuned", [30300.0, 30300.0])
    add_runs(tmp_path, "house", "tabr-s-tuned", [32000.0002])  # float32 knows no better
    (within,) = (
        text
        for text in remarks(fill(results_of(tmp_path), ROWS, ("house",)))
        if "deviation" in text
    )
    assert "1 of 2 cells" in within
    assert "MLP on house (-1.00 %). In percent: the published runs are equal" in within


def test_ensembles_are_another_table(tmp_path: Path) -> None:
    grid = make(tmp_path, "ensemble")
    assert cells(grid_table(grid), "TabR-S")[0][2] == "2.8000"
    assert remarks(grid)[0] == "Ensembles of five seeds of ours in a cell: 3."


def test_sets_without_a_table_are_not_missed(tmp_path: Path) -> None:
    names = ("otto", "microsoft", "house")
    publish(tmp_path, {(name, "MLP", "single"): (1.0, 0.1) for name in names})
    add_runs(tmp_path, "house", "mlp-tuned", [1.0])
    add_runs(tmp_path, "otto", "knn-tuned", [1.0])  # so its table is at hand
    grid = fill(results_of(tmp_path), ROWS, names)
    assert not_run(grid) == "Not run: MLP on otto."

"""The design, step by step."""

from __future__ import annotations

from pathlib import Path

from reproduction.paper.grid import improved
from reproduction.paper.steps import order_text, ordered_pairs, to_frame
from reproduction.paper.tables import design
from reproduction.results_folder import RESULTS

from ..folders import add_runs, publish, results_of

# What the paper's table of design steps underlines.
UNDERLINED = {
    "churn": {"Step-2"},
    "california": {"Step-0", "Step-2", "Step-3", "TabR-S"},
    "house": {"Step-2", "TabR-S"},
    "adult": {"Step-0", "Step-3"},
    "diamond": {"Step-2", "Step-3", "TabR-S"},
    "otto": {"TabR-S"},
    "higgs-small": set(),
    "black-friday": {"Step-2", "TabR-S"},
    "weather-small": {"Step-2", "TabR-S"},
    "covtype": {"Step-1", "Step-2", "Step-3"},
}


def test_published_runs_are_underlined_as_in_the_paper() -> None:
    grid = design(results_of(RESULTS))
    assert tuple(grid.sets) == tuple(UNDERLINED)
    for label, names in UNDERLINED.items():
        assert improved(grid, grid.published, label) == names


def test_steps_that_are_apart_are_compared_by_their_direction(tmp_path: Path) -> None:
    publish(
        tmp_path,
        {
            ("california", "MLP", "single"): (0.50, 0.001),
            ("california", "design dp-qk-v-self-scaled", "single"): (0.48, 0.001),
            ("california", "design dp-qk-yv-self-scaled", "single"): (0.49, 0.001),
            # not apart from the step before
            ("california", "design l2-k-yv-self-scaled", "single"): (0.4895, 0.02),
            ("adult", "MLP", "single"): (0.80, 0.001),
            ("adult", "design dp-qk-v-self-scaled", "single"): (0.82, 0.001),
        },
    )
    add_runs(tmp_path, "california", "mlp-tuned", [0.50])
    add_runs(tmp_path, "california", "step-0-tuned", [0.499])  # the same way, if barely
    add_runs(tmp_path, "california", "step-1-tuned", [0.48])  # the other way
    add_runs(tmp_path, "california", "step-2-tuned", [0.60])
    pairs = ordered_pairs(design(results_of(tmp_path)))
    found = [(p.label, p.before, p.after, p.ours and p.agrees) for p in pairs]
    assert found == [
        ("california", "MLP", "Step-0", True),
        ("california", "Step-0", "Step-1", False),
        ("adult", "MLP", "Step-0", None),
    ]
    text = order_text(pairs)
    assert "published runs 3 of the steps" in text
    assert "Of 2 that we ran, 1 go the same way" in text
    assert "Step-0 to Step-1 on california (published 0.48 to 0.49, ours 0.499" in text
    assert to_frame(pairs)["same_way"].tolist() == [True, False, None]


def test_without_runs_no_order_is_claimed(tmp_path: Path) -> None:
    publish(tmp_path, {})
    grid = design(results_of(tmp_path))
    assert ordered_pairs(grid) == []
    assert "None of these was run" in order_text([])
    assert len(to_frame([])) == 0

"""The page of the presets, from results that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.presets.page import to_markdown
from reproduction.results_folder import DOCS, ResultsFolder

from ..folders import add_runs, publish, run

PICTURES = ("default", "best", "seconds", "levers")


def make(results: Path) -> None:
    """Make runs of both presets, of which one set has one run."""
    publish(
        results,
        {
            ("california", "XGBoost", "single"): (0.43, 0.001),
            ("california", "TabR-S default", "single"): (0.406, 0.003),
            ("california", "XGBoost", "ensemble of 5"): (0.42, 0.001),
            ("adult", "XGBoost", "single"): (0.872, 0.001),
        },
    )
    add_runs(results, "california", "tabr-d-default", [0.39, 0.40], commit="a" * 40)
    add_runs(results, "adult", "tabr-d-default", [0.869], commit="b" * 40)
    add_runs(results, "adult", "catboost-default", [0.87])
    add_runs(results, "california", "tabr-best-default", [0.38], commit="a" * 40)


def page_of(results: Path, to: Path) -> str:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    assert run("presets", "--results", results, "--write", to).exit_code == 0
    return to.read_text("utf-8")


def test_a_single_run_has_no_deviation_and_the_better_one_is_bold(
    tmp_path: Path,
) -> None:
    make(tmp_path)
    text = page_of(tmp_path, tmp_path / "docs" / "presets.md")
    assert (
        "| california ↓ | chosen on | 2 runs, 1 split"
        " | **0.3950 ± 0.0050** | 0.4300 | 0.4060 | - |"
    ) in text
    assert (
        "| adult ↑ † | chosen on | 1 run, 1 split"
        " | 0.8690 | **0.8720** | - | **0.8700 (1 run)** |"
    ) in text
    assert "- 1 run on: adult." in text
    assert "`tabr-d` was not run on: black-friday, churn," in text
    assert "| five XGBoost tuned | 1 / 0 | 1 / 0 | - | 1 / 0 |" in text
    assert "| preset default | `bbbbbbbbbb` † | 1 | adult |" in text
    assert (
        "`reproduction/results/levers.csv` comes from `python -m reproduction levers"
        in text
    )
    assert "have kept these scores there on a common split: adult, churn," in text


def test_networks_have_a_table_of_the_sets_that_they_ran_on(tmp_path: Path) -> None:
    make(tmp_path)
    page = tmp_path / "docs" / "presets.md"
    nobody = page_of(tmp_path, page)
    assert "Of `realmlp`, `tabm`, `modern-nca` no run is on a split" in nobody
    add_runs(tmp_path, "california", "tabm-default", [0.41])
    text = page_of(tmp_path, page)
    before, after = text.split("beside other networks")
    assert "TabM" not in before
    table = after.split("## ")[0]
    assert "| **0.3950 ± 0.0050** | 0.4100 (1 run) |" in table
    assert "adult" not in table


def test_a_preset_that_is_alone_on_its_hardware_has_no_picture_of_seconds(
    tmp_path: Path,
) -> None:
    publish(tmp_path, {("california", "XGBoost", "single"): (0.43, 0.001)})
    add_runs(tmp_path, "california", "tabr-d-default", [0.39])
    add_runs(tmp_path, "california", "catboost-default", [0.43], hardware="another")
    page = tmp_path / "docs" / "presets.md"
    assert "presets-seconds.svg" not in page_of(tmp_path, page)
    add_runs(tmp_path, "california", "catboost-default", [0.43])
    assert "presets-seconds.svg" in page_of(tmp_path, page)


def test_the_page_shows_the_pictures_that_were_drawn(tmp_path: Path) -> None:
    make(tmp_path)
    add_runs(tmp_path, "california", "catboost-default", [0.43])
    page = tmp_path / "docs" / "presets.md"
    text = page_of(tmp_path, page)
    for name in PICTURES:
        picture = page.with_name(f"presets-{name}.svg")
        assert picture.exists() == (f"({picture.name})" in text) == (name != "levers")
    before = page.with_name("presets-default.svg").read_bytes()
    lines = "table,lever,score,metric,runs,commit\n" + "".join(
        f"adult,{lever},{score},accuracy,1,abc\n"
        for lever, score in (("none", 0.87), ("betas", 0.86))
    )
    (tmp_path / "levers.csv").write_text(lines, "utf-8")
    text = page_of(tmp_path, page)
    assert "| adult | accuracy 0.87, 1 run | +7.7 % |" in text
    assert "(presets-levers.svg)" in text
    assert page.with_name("presets-default.svg").read_bytes() == before


def test_without_runs_of_presets_the_page_says_so(tmp_path: Path) -> None:
    make(tmp_path / "some")
    page = tmp_path / "docs" / "presets.md"
    page_of(tmp_path / "some", page)
    publish(tmp_path / "none", {})
    text = page_of(tmp_path / "none", page)
    assert "No run of a preset is in the tables yet: `tabr-d` and `tabr-best`" in text
    assert "**" not in text and ".svg" not in text
    assert not list(page.parent.glob("*.svg"))  # those of before are gone


def test_the_page_in_the_docs_is_that_of_the_results() -> None:
    page = DOCS / "presets.md"
    assert page.read_text("utf-8") == to_markdown(ResultsFolder(), page)

"""The pages, the files of figures, and the command."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from reproduction.paper.pages import FOLDER, files, pages
from reproduction.results_folder import DOCS as PAGES
from reproduction.results_folder import RESULTS

from ..folders import add_runs, publish, results_of, run

DOCS = PAGES / "paper"


def test_the_pages_in_the_docs_are_those_of_the_results() -> None:
    texts = pages(results_of(RESULTS))
    assert {path.name for path in DOCS.glob("*.md")} == set(texts)
    for name, text in texts.items():
        assert (DOCS / name).read_text("utf-8") == text


def test_the_files_of_figures_are_those_of_the_results() -> None:
    texts = files(results_of(RESULTS))
    folder = RESULTS / FOLDER
    assert {path.name for path in folder.iterdir()} == set(texts)
    for name, text in texts.items():
        assert (folder / name).read_text("utf-8") == text


def test_links_and_pictures_of_the_pages_exist() -> None:
    targets = set()
    for page in DOCS.glob("*.md"):
        targets |= set(re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")))
    assert {path.name for path in DOCS.iterdir()} == targets


def test_the_pictures_in_the_docs_show_the_numbers_of_the_results(
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    from reproduction.paper.pictures import draw

    draw(results_of(RESULTS), tmp_path)
    for picture in tmp_path.iterdir():
        # What is written in it; places may differ between versions.
        kept, drawn = (
            re.findall(r">([^<>]*)</text>", path.read_text("utf-8"))
            for path in (DOCS / picture.name, picture)
        )
        assert len(drawn) > 10
        assert kept == drawn


def test_the_command_writes_everything_from_few_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    out, docs = tmp_path / "results", tmp_path / "docs" / "paper"
    add_runs(out, "california", "mlp-tuned", [0.49, 0.50])
    add_runs(out, "california", "step-0-tuned", [0.47, 0.48])
    add_runs(out, "california", "tabr-tuned", [0.38, 0.38, 0.39], kind="ensemble")
    publish(
        out,
        {
            ("california", "MLP", "single"): (0.499, 0.004),
            ("california", "design dp-qk-v-self-scaled", "single"): (0.484, 0.006),
            ("california", "TabR (PLR-lite)", "ensemble of 5"): (0.391, 0.002),
        },
    )
    assert run("paper", "--results", out, "--write", docs).exit_code == 0
    design = (docs / "design.md").read_text("utf-8")
    assert "| Step-0 | ours | - | <u>0.4750</u> | - |" in design
    trees = (docs / "trees.md").read_text("utf-8")
    assert "| TabR | ours | - | 0.3833 | - |" in trees
    frame = pd.read_csv(out / FOLDER / "xgboost-with-neighbors.csv")
    (line,) = frame[frame["ours"].notna()].to_dict("records")
    assert (line["model"], line["kind"], line["ours_runs"]) == ("TabR", "ensemble", 3)

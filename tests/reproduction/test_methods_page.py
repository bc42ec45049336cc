"""The page of all methods."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.methods_page import compare_methods, to_markdown
from reproduction.results_folder import DOCS, ResultsFolder
from tabr.bench.tasks.catalog import select

from .folders import add_runs, publish, run

(CALIFORNIA,) = select(["california"])


def publish_models(folder: Path, scores: dict[str, tuple[float, float]]) -> None:
    publish(folder, {("california", m, "single"): s for m, s in scores.items()})


@pytest.mark.parametrize(
    ("score", "verdict"),
    [(0.509, "within"), (0.491, "within"), (0.53, "worse"), (0.47, "better")],
)
def test_two_percent_are_allowed_where_deviations_are_smaller(
    tmp_path: Path, score: float, verdict: str
) -> None:
    publish_models(tmp_path, {"MLP": (0.5, 0.001)})
    add_runs(tmp_path, "california", "mlp-tuned", [score - 0.001, score + 0.001])
    table = compare_methods(ResultsFolder(tmp_path), CALIFORNIA)
    (line,) = table[table.runs > 0].to_dict("records")
    assert (line["method"], line["runs"], line["verdict"]) == ("mlp", 2, verdict)


def test_two_deviations_are_allowed_where_they_are_larger(tmp_path: Path) -> None:
    publish_models(tmp_path, {"MLP": (0.5, 0.05)})
    add_runs(tmp_path, "california", "mlp-tuned", [0.59])
    table = compare_methods(ResultsFolder(tmp_path), CALIFORNIA).set_index("method")
    assert table.loc["mlp", "verdict"] == "within"


def test_the_page_names_who_was_not_run_and_who_cannot_be_compared(
    tmp_path: Path,
) -> None:
    publish_models(
        tmp_path, {"MLP": (0.5, 0.001), "design l2-qk-v-self-scaled": (0.488, 0.003)}
    )
    add_runs(tmp_path, "california", "l2-qk-v-tuned", [0.41])
    add_runs(tmp_path, "california", "mlp-lr-tuned", [0.47])
    page = tmp_path / "methods.md"
    assert run("methods", "--results", tmp_path, "--write", page).exit_code == 0
    text = page.read_text("utf-8")
    assert "| mlp |  |  | 0.5000 ± 0.0010 | not run yet | - / 30.0 |" in text
    assert "| mlp-lr | 1 | 0.4700 |  | no figure | 2.0 / - |" in text
    assert "0.4880 ± 0.0030 | not comparable |" in text
    assert "On a GPU: mlp-lr, l2-qk-v." in text


def test_untuned_methods_are_listed_best_first_if_they_were_run(tmp_path: Path) -> None:
    publish_models(tmp_path, {"MLP": (0.5, 0.001), "XGBoost default": (0.47, 0.001)})
    for method, score in {"tabm": 0.45, "xgboost": 0.47, "tabr-s": 0.4}.items():
        add_runs(tmp_path, "california", f"{method}-default", [score])
    text = to_markdown(ResultsFolder(tmp_path))
    _, untuned = text.split("## Without tuning")
    lines = [line.split(" | ") for line in untuned.splitlines() if " | 1 | " in line]
    assert [line[0].strip("| ") for line in lines] == ["tabr-s", "tabm", "xgboost"]
    assert [line[4] for line in lines] == ["no figure", "no figure", "within"]
    assert "churn, a split of our own" in untuned


def test_the_page_in_the_docs_is_that_of_the_results() -> None:
    page = DOCS / "methods.md"
    assert page.read_text("utf-8") == to_markdown(ResultsFolder())

from pathlib import Path

import pandas as pd
import pytest

from reproduction.default_table import compare, read_runs, to_markdown
from reproduction.results_folder import (
    COLUMNS,
    DOCS,
    MODEL,
    PUBLISHED,
    ResultsFolder,
    extract,
)
from tabr.bench.results import DEFAULT_PLAN
from tabr.bench.tasks.catalog import select
from tabr.errors import DataError

from .folders import add_runs, publish, run

PLAN = DEFAULT_PLAN.name


def line(folder: Path, figures: dict[str, tuple[float, float]]) -> pd.Series:
    publish(folder, {(name, MODEL, "single"): score for name, score in figures.items()})
    results = ResultsFolder(folder)
    table = compare(read_runs(results), results.published())
    assert len(table) == 1
    return table.iloc[0]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(0.414, "within"), (0.386, "within"), (0.416, "worse"), (0.384, "better")],
)
def test_official_split_is_held_to_one_and_a_half_deviations(
    tmp_path: Path, ours: float, verdict: str
):
    add_runs(tmp_path, "california", PLAN, [ours - 0.01, ours + 0.01])
    row = line(tmp_path, {"california": (0.4, 0.01)})
    assert row["verdict"] == verdict
    assert row["ours"] == pytest.approx(ours)
    assert row["ours_std"] == pytest.approx(0.01)
    assert row["better_by_stds"] == pytest.approx((0.4 - ours) / 0.01)
    assert row["better_by_percent"] == pytest.approx((0.4 - ours) / 0.004)
    assert row["runs"] == 2


@pytest.mark.parametrize(
    ("ours", "verdict"), [(0.79, "within"), (0.78, "worse"), (0.82, "better")]
)
def test_own_split_is_held_to_two_percent_and_higher_accuracy_is_better(
    tmp_path: Path, ours: float, verdict: str
):
    add_runs(tmp_path, "churn", PLAN, [ours])
    row = line(tmp_path, {"churn": (0.8, 1e-4)})
    assert row["verdict"] == verdict
    assert row["better_by_percent"] == pytest.approx((ours - 0.8) / 0.008)


def test_splits_are_averaged_first_whatever_their_number_of_seeds(tmp_path: Path):
    first, second, *_ = select(["why/rl"])
    add_runs(tmp_path, "why/rl", PLAN, [0.7, 0.8, 0.9], split=first.split)
    add_runs(tmp_path, "why/rl", PLAN, [0.6], split=second.split)
    figures = {
        first.published: (0.8, 0.03),
        second.published: (0.7, 0.01),
        "why/classif-cat-medium-2-rl": (0.1, 0.5),  # has no runs: does not count
    }
    row = line(tmp_path, figures)
    assert row["ours"] == pytest.approx(0.7)
    assert row["published"] == pytest.approx(0.75)
    assert row["published_std"] == pytest.approx(0.02)
    assert row["better_by_stds"] == pytest.approx(-2.5)
    assert row["verdict"] == "worse"  # two deviations are allowed
    assert (row["splits"], row["all_splits"], row["runs"]) == (2, 3, 4)


def test_rounding_of_the_published_figures_is_no_fault_of_ours(tmp_path: Path):
    task = select(["why/Ailerons"])[0]
    add_runs(tmp_path, task.label, PLAN, [0.0001612])
    row = line(tmp_path, {task.published: (0.00016, 0.0)})
    assert row["verdict"] == "within"
    assert pd.isna(row["better_by_stds"])


def test_incomplete_tables_get_no_verdict(tmp_path: Path):
    task = select(["why/jannis-part"])[0]
    add_runs(tmp_path, task.label, PLAN, [0.5])
    assert line(tmp_path, {task.published: (0.8, 0.1)})["verdict"] == "not comparable"


def test_trials_and_ensembles_are_not_read_as_runs(tmp_path: Path):
    add_runs(tmp_path, "california", PLAN, [0.4])
    add_runs(tmp_path, "california", "tabr-s-trial", [0.2], params={"width": 8})
    add_runs(tmp_path, "california", PLAN, [0.3], kind="ensemble")
    assert read_runs(ResultsFolder(tmp_path))["test"].tolist() == [0.4]


def test_without_results_or_figures_one_sentence_says_what_to_do(tmp_path: Path):
    with pytest.raises(DataError, match="bench run"):
        read_runs(ResultsFolder(tmp_path))
    with pytest.raises(DataError, match="reproduction extract"):
        ResultsFolder(tmp_path).published()


def test_extract_keeps_all_figures_and_single_runs_are_read_unless_asked(
    tmp_path: Path,
):
    names = ["weather-big", "california", "california", "california"]
    rows = pd.DataFrame({"dataset": names, "model": ["TabR-S default"] * 4})
    rows["kind"] = ["single", "single", "ensemble of 5", "single"]
    rows.loc[3, "model"] = "MLP"
    for name in COLUMNS[3:]:
        rows[name] = 1.0
    rows["remark"] = "not a figure"
    rows.to_csv(tmp_path / "all.csv", index=False)
    extract(tmp_path / "all.csv", tmp_path / PUBLISHED)
    results = ResultsFolder(tmp_path)
    kept = results.published()
    assert kept["dataset"].tolist() == ["california", "weather-big"]
    assert set(kept["kind"]) == {"single"}
    assert tuple(kept.columns) == COLUMNS
    assert results.published("MLP")["dataset"].tolist() == ["california"]
    assert len(results.published(kind=None)) == 3
    assert len(results.published(None)) == 3
    assert len(results.published(None, None)) == 4


def test_command_writes_markdown_and_csv(tmp_path: Path):
    out, page, csv = tmp_path / "out", tmp_path / "docs" / "x.md", tmp_path / "x.csv"
    add_runs(out, "california", PLAN, [0.405, 0.407])
    add_runs(out, "why/california", PLAN, [0.2])
    second = "why/regression-num-medium-0-california"
    publish(
        out,
        {
            ("california", MODEL, "single"): (0.406, 0.0029),
            (second, MODEL, "single"): (0.1, 0.01),
        },
    )
    command = ["table", "--results", out]
    assert run(*command, "--write", page, "--csv", csv).exit_code == 0
    text = page.read_text("utf-8")
    assert "| california | rmse | 1 | 2 | 0.4060 ± 0.0010 | 0.4060 ± 0.0029 |" in text
    assert "Within the bound or better: 1 of 2 comparable sets." in text
    assert "a GPU, 4 runs at a time" in text
    assert "tabr 1, torch 2, python 3" in text
    assert "Not run yet: house, adult, churn" in text
    assert run(*command).output == text  # printed if no file is named
    assert pd.read_csv(csv)["verdict"].tolist() == ["within", "worse"]


def test_the_page_in_the_docs_is_that_of_the_results():
    results = ResultsFolder()
    runs = read_runs(results)
    text = to_markdown(compare(runs, results.published()), runs)
    assert (DOCS / "reproduction.md").read_text("utf-8") == text

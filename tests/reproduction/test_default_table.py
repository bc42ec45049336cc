from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from reproduction.__main__ import main
from reproduction.default_table import (
    COLUMNS,
    MODEL,
    PUBLISHED,
    compare,
    extract,
    read_published,
    read_runs,
    to_markdown,
)
from tabr.bench.results import DEFAULT_PLAN, Plan, Result, result_path, write
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import Task
from tabr.errors import DataError

RESULT = Result(
    benchmark="default",
    task="california",
    method=DEFAULT_PLAN.name,
    split=0,
    seed=0,
    params={},
    test=0.4,
    val=0.4,
    seconds=2.0,
    best_epoch=10,
    n_parameters=100,
    hardware="a GPU",
    workers=4,
    versions={"tabr": "1", "torch": "2", "python": "3"},
)


def keep(out: Path, task: Task, scores: list[float]) -> None:
    for seed, score in enumerate(scores):
        result = replace(
            RESULT,
            benchmark=task.benchmark,
            task=task.name,
            split=task.split,
            seed=seed,
            test=score,
        )
        write(result, result_path(out, task, seed))


def published(figures: dict[str, tuple[float, float]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            [name, MODEL, "single", "rmse", 15, mean, std, 30.0, 20.0, 365, ""]
            for name, (mean, std) in figures.items()
        ],
        columns=list(COLUMNS),
    )


def line(out: Path, figures: dict[str, tuple[float, float]]) -> pd.Series:
    table = compare(read_runs(out), published(figures))
    assert len(table) == 1
    return table.iloc[0]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(0.414, "within"), (0.386, "within"), (0.416, "worse"), (0.384, "better")],
)
def test_official_split_is_held_to_one_and_a_half_deviations(
    tmp_path: Path, ours: float, verdict: str
):
    keep(tmp_path, select(["california"])[0], [ours - 0.01, ours + 0.01])
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
    keep(tmp_path, select(["churn"])[0], [ours])
    row = line(tmp_path, {"churn": (0.8, 1e-4)})
    assert row["verdict"] == verdict
    assert row["better_by_percent"] == pytest.approx((ours - 0.8) / 0.008)


def test_splits_are_averaged_first_whatever_their_number_of_seeds(tmp_path: Path):
    first, second, *_ = select(["why/rl"])
    keep(tmp_path, first, [0.7, 0.8, 0.9])
    keep(tmp_path, second, [0.6])
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
    keep(tmp_path, task, [0.0001612])
    row = line(tmp_path, {task.published: (0.00016, 0.0)})
    assert row["verdict"] == "within"
    assert pd.isna(row["better_by_stds"])


def test_incomplete_tables_get_no_verdict(tmp_path: Path):
    task = select(["why/jannis-part"])[0]
    keep(tmp_path, task, [0.5])
    assert line(tmp_path, {task.published: (0.8, 0.1)})["verdict"] == "not comparable"


def test_drafts_and_trials_are_not_read(tmp_path: Path):
    task = select(["california"])[0]
    keep(tmp_path, task, [0.4])
    path = result_path(tmp_path, task, 0)
    path.with_suffix(".77.tmp").write_text("{")
    plan = Plan("tabr-s", "trial", {"width": 8})
    write(replace(RESULT, method=plan.name), result_path(tmp_path, task, 5, plan))
    assert len(read_runs(tmp_path)) == 1


def test_ensembles_are_not_read_as_runs(tmp_path: Path):
    task = select(["california"])[0]
    keep(tmp_path, task, [0.4])
    folder = result_path(tmp_path, task, 0).parent
    write(replace(RESULT, test=0.3), folder / "split-0-ensemble-0.json")
    assert read_runs(tmp_path)["test"].tolist() == [0.4]


def test_without_results_or_figures_one_sentence_says_what_to_do(tmp_path: Path):
    with pytest.raises(DataError, match="bench run"):
        read_runs(tmp_path)
    with pytest.raises(DataError, match="reproduction extract"):
        read_published(tmp_path)


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
    kept = read_published(tmp_path)
    assert kept["dataset"].tolist() == ["california", "weather-big"]
    assert set(kept["kind"]) == {"single"}
    assert tuple(kept.columns) == COLUMNS
    assert read_published(tmp_path, "MLP")["dataset"].tolist() == ["california"]
    assert len(read_published(tmp_path, kind=None)) == 3
    assert len(read_published(tmp_path, None)) == 3
    assert len(read_published(tmp_path, None, None)) == 4


def test_command_writes_markdown_and_csv(tmp_path: Path):
    out, page, csv = tmp_path / "out", tmp_path / "docs" / "x.md", tmp_path / "x.csv"
    keep(out, select(["california"])[0], [0.405, 0.407])
    keep(out, select(["why/california"])[0], [0.2])
    figures = {
        "california": (0.406, 0.0029),
        "why/regression-num-medium-0-california": (0.1, 0.01),
    }
    published(figures).to_csv(out / PUBLISHED, index=False)
    assert (
        main(["table", "--out", str(out), "--write", str(page), "--csv", str(csv)]) == 0
    )
    text = page.read_text("utf-8")
    assert "| california | rmse | 1 | 2 | 0.4060 ± 0.0010 | 0.4060 ± 0.0029 |" in text
    assert "Within the bound or better: 1 of 2 comparable sets." in text
    assert "a GPU, 4 runs at a time" in text
    assert "tabr 1, torch 2, python 3" in text
    assert "Not run yet: house, adult, churn" in text
    runs = read_runs(out)
    assert to_markdown(compare(runs, read_published(out)), runs) == text
    assert pd.read_csv(csv)["verdict"].tolist() == ["within", "worse"]

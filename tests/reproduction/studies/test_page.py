"""The page of the studies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reproduction.results_folder import DOCS, ResultsFolder
from reproduction.studies import STUDIES
from reproduction.studies.entropy import STEPS
from reproduction.studies.page import to_markdown, write_page

from ..folders import run

RECORDS: dict[str, list[dict[str, Any]]] = {
    "attention": [
        {"model": "step-2", "seed": s, "within_10_km": 0.7 + s / 10, "on_itself": 0.05,
         "test": 0.41}
        for s in (0, 1)
    ] + [
        {"model": "TabR-S", "seed": 0, "within_10_km": 0.5, "on_itself": 0, "test": 0.4}
    ],
    "entropy": [
        {"table": table, "model": model, "seed": s, "config": "tuned",
         "entropy": 6.0 + k + s / 10, "uniform": 9.4887, "on_itself": 0.1, "test": 0.4}
        for table in ("california", "covtype") for k, model in enumerate(STEPS)
        for s in (0, 1)
    ],
    "projection": [
        {"table": "california", "seed": s, "test": 0.4, "without_random": 0.402,
         "worst_random": 0.404, "without_label": 0.48 + s / 50}
        for s in (0, 1)
    ] + [
        {"table": "house", "seed": 0, "test": 30000, "without_random": 30300,
         "worst_random": 30600, "without_label": 36000}
    ],
    "freeze": [
        {"table": "california", "seed": s, "what": "fit", "freeze_after": after,
         "test": test, "seconds": seconds + s, "epochs": 60 + s,
         "seconds_per_epoch": seconds / 100}
        for s in (0, 1) for after, test, seconds in ((4, 0.41, 3), (None, 0.405, 4))
    ] + [
        {"table": "california", "seed": s, "what": "contexts",
         "context_change": [0.4 + s / 10, 0.2, 0.1, 0.1][:3 + s]}
        for s in (0, 1)
    ],
    "new-candidates": [
        {"table": "covtype", "seed": s, "share": share, "candidates": 1000 * share,
         "fit_seconds": 1, "add_seconds": 0.25, "test": 0.9 + share / 100}
        for s in (0, 1) for share in (0.1, 1.0)
    ],
    "time": [
        {"table": "elec2", "seed": s, "way": way, "test": 0.8 + s / 100}
        for s in (0, 1) for way in ("plain", "plain, refreshed", "past", "past, living")
    ],
    "time-trees": [
        {"table": "bike-sharing", "seed": s, "time": time, "method": method,
         "most_rows": 60_000, "rmse": rmse + s}
        for s in (0, 1) for time, method, rmse in (
            ("a feature", "tabr-d", 80), ("a feature", "catboost", 90),
            ("ignored", "catboost", 70))
    ],
    "small": [
        {"table": "california", "seed": s, "method": method, "rmse": rmse}
        for s in (0, 1) for method, rmse in (
            ("tabr-best", 0.5), ("catboost", 0.75 - s / 2), ("lightgbm", 0.7))
    ],
    "rare": [
        {"table": "covtype", "seed": 0, "method": method, "rows": 30_000,
         "rare_rows": 300, "average-precision": value, "roc-auc": 0.99,
         "log-loss": 0.0123456}
        for method, value in (
            ("tabr-d", 0.9), ("tabr-best", 0.85), ("catboost", 0.89), ("lightgbm", 0.8))
    ],
}  # fmt: skip


PUBLISHED = """dataset,model,kind,test_mean,test_std,train_seconds
california,TabR-S CF-4,ensemble of 5,0.4,0.001,
california,TabR-S CF-4,single,0.409,0.003,25.0
california,TabR-S default,single,0.406,0.003,50.0
"""


def write(results: Path, names: Iterable[str] = RECORDS) -> None:
    (results / "studies").mkdir(exist_ok=True)
    for name in names:
        content = {"command": f"command of {name}", "params": {}}
        content |= {"records": RECORDS[name]}
        path = results / "studies" / f"{name}.json"
        path.write_text(json.dumps(content), "utf-8")


def test_the_page_has_every_figure(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "published.csv").write_text(PUBLISHED, "utf-8")
    page = tmp_path / "docs" / "studies.md"
    assert run("studies", "--results", tmp_path, "--write", page).exit_code == 0
    text = page.read_text("utf-8")
    for row in (
        "| step-2 | 75.0 % | 77 % | 5.00 % | 7.00 % | 0.4100 ± 0.0000 |",
        "| TabR-S | 50.0 % |  | 0.00 % |  | 0.4000 |",
        "| california | 6.05 ± 0.05 | 6.1 | 7.05 ± 0.05 | 9.0 | 9.49 | 9.5 |",
        "| covtype | 6.05 ± 0.05 |  | 7.05 ± 0.05 |  | 9.49 |  |",
        "Step 2 is the more diverse on 2 of 2 tables.",
        "| california | 0.4000 ± 0.0000 | 0.403 | 0.4020 ± 0.0000 | 0.403"
        " | 0.4900 ± 0.0100 | 0.465 |",
        "| house | 30000 | 30670 | 30300 | 30710 | 36000 | 36490 |",
        "changes by +20.0 % to +22.5 %, the mean of a table; without the worst random"
        " one by +2.0 % at most.",
        "| california | 4 | 2 | 0.4100 ± 0.0000 | 0.4090 ± 0.0030 | 60.5 | 3.5 | 0.78"
        " | 0.50 | 0.75 |",
        "| california | never | 2 | 0.4050 ± 0.0000 | 0.4060 ± 0.0030 | 60.5 | 4.5"
        " | 1.00 | 1.00 | 1.00 |",
        "| california | 0.450 | 0.200 |  |  |  |  | 0.100 (3) |",
        "Not run on diamond, black-friday, covtype.",
        "(studies-freeze.svg)",
        "(studies-contexts.svg)",
        "| covtype | 100% | 1,000 | 0.9100 ± 0.0000 | 0.25 |",
        "| way | elec2, accuracy |",
        "| past, living | 0.805 ± 0.005 |",
        "`command of time`",
        "All rows are better than a tenth: on covtype for 2 of 2 seeds.",
        "*past* beats *plain* on 0 of 1 tables.",
        "| table | column of times | measure | draws | preset default | CatBoost |",
        "| bike-sharing | a feature | RMSE | 2 | **80.50 ± 0.50** | 90.50 ± 0.50 |",
        "| bike-sharing | ignored | RMSE | 2 |  | 70.50 ± 0.50 |",
        "No line has a preset beside CatBoost and LightGBM.",
        "| california | RMSE | 2 | **0.5000** | **0.5000** | 0.7000 |",
        "No worse than CatBoost and LightGBM: *preset best* on 1 of 1 lines.",
        "| preset best | 50% | 1.50 | 50% | 1.50 |",
        "| CatBoost |  | 2.00 |  | 2.00 |",
        "| LightGBM | 50% | 2.50 | 50% | 2.50 |",
        "Over 2 draws of 1 tables.",
        "| covtype | log-loss | 1 | **0.01235** |",
        "*preset default* on 3 of 3 lines, *preset best* on 2 of 3 lines.",
        "Rare rows to learn from: 300 of 30,000 in covtype.",
    ):
        assert row in text, row
    assert "Not run yet" not in text
    for name in re.findall(r"\((studies.*\.svg)\)", text):
        assert page.with_name(name).read_text("utf-8").startswith("<?xml")
    assert len(list(page.parent.iterdir())) == 4


def test_the_page_does_without_published_figures(tmp_path: Path) -> None:
    write(tmp_path, ["freeze"])
    row = "| california | 4 | 2 | 0.4100 ± 0.0000 |  | 60.5 | 3.5 | 0.78 |  | 0.75 |"
    assert row in to_markdown(ResultsFolder(tmp_path))
    # As it was before it had ensembles too, and the freezes.
    kept = "\n".join(line for line in PUBLISHED.splitlines() if "CF" not in line)
    kept = kept.replace("single,", "").replace("kind,", "")
    (tmp_path / "published.csv").write_text(kept, "utf-8")
    text = to_markdown(ResultsFolder(tmp_path))
    assert row in text
    assert (
        "| never | 2 | 0.4050 ± 0.0000 | 0.4060 ± 0.0030 | 60.5 | 4.5 | 1.00 |" in text
    )


def test_a_study_that_has_just_begun_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "studies" / "freeze.json"
    path.parent.mkdir()
    for records, shown in (
        (RECORDS["freeze"][:1], "| california | 4 | 1 | 0.4100 |  | 60.0 | 3.0 |"),
        (RECORDS["freeze"][-1:], "| california | 0.500 | 0.200 | 0.100 |"),
    ):
        content = {"command": "command", "params": {}, "records": records}
        path.write_text(json.dumps(content), "utf-8")
        page = tmp_path / "studies.md"
        write_page(ResultsFolder(tmp_path), page)
        assert shown in page.read_text("utf-8")
        assert page.read_text("utf-8").count(".svg") == 1


def test_the_same_records_give_the_same_pictures(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "published.csv").write_text(PUBLISHED, "utf-8")
    for folder in ("a", "b"):
        write_page(ResultsFolder(tmp_path), tmp_path / folder / "studies.md")
    for path in (tmp_path / "a").glob("*.svg"):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    freeze = (tmp_path / "a" / "studies-freeze.svg").read_text("utf-8")
    assert "published" in freeze and "never" in freeze


def test_what_was_not_run_is_said(tmp_path: Path) -> None:
    text = to_markdown(ResultsFolder(tmp_path))
    assert text.count("Not run yet: `python -m reproduction study ") == len(STUDIES)


def test_the_page_in_the_docs_is_that_of_the_results() -> None:
    page = DOCS / "studies.md"
    assert page.read_text("utf-8") == to_markdown(ResultsFolder())

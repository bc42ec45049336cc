"""The page of the studies."""

from __future__ import annotations

import json
from pathlib import Path

from tabr.bench import study_report
from tabr.bench.__main__ import main

ROOT = Path(__file__).parents[2]
RECORDS = {
    "attention": [
        {"model": "step-2", "seed": s, "within_10_km": 0.7 + s / 10, "on_itself": 0.05,
         "test": 0.41}
        for s in (0, 1)
    ] + [
        {"model": "TabR-S", "seed": 0, "within_10_km": 0.5, "on_itself": 0, "test": 0.4}
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
}  # fmt: skip


def test_the_page_has_every_figure(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    for name, records in RECORDS.items():
        content = {"command": f"command of {name}", "params": {}, "records": records}
        path = tmp_path / "studies" / f"{name}.json"
        path.write_text(json.dumps(content), "utf-8")
    page = tmp_path / "docs" / "studies.md"
    assert main(["studies", "--out", str(tmp_path), "--write", str(page)]) == 0
    text = page.read_text("utf-8")
    for row in (
        "| step-2 | 75.0 % | 77 % | 5.00 % | 7.00 % | 0.4100 ± 0.0000 |",
        "| TabR-S | 50.0 % |  | 0.00 % |  | 0.4000 ± 0.0000 |",
        "| covtype | 100% | 1,000 | 0.9100 ± 0.0000 | 0.25 |",
        "| way | elec2, accuracy |",
        "| past, living | 0.805 ± 0.005 |",
        "`command of time`",
        "All rows are better than a tenth: on covtype for 2 of 2 seeds.",
        "*past* beats *plain* on 0 of 1 tables.",
    ):
        assert row in text
    assert "Not run yet" not in text
    assert page.with_suffix(".svg").read_text("utf-8").startswith("<?xml")


def test_what_was_not_run_is_said(tmp_path: Path) -> None:
    text = study_report.to_markdown(tmp_path)
    assert text.count("Not run yet: `python -m tabr.bench study ") == 3


def test_the_page_in_the_docs_is_that_of_the_results() -> None:
    page = ROOT / "docs" / "studies.md"
    assert page.read_text("utf-8") == study_report.to_markdown(ROOT / "results")

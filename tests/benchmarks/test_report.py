"""The page is made from the files of benchmarks/results/speed alone."""

from __future__ import annotations

import copy
import doctest
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.timing import SPEED
from reproduction.readme import speed

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "speed.md"
SERVING_PAGE = ROOT / "docs" / "serving.md"


def form(step_ms: float, **more: Any) -> dict[str, Any]:
    return {"step_ms": step_ms, "search_ms": 1.0, "learning_ms": 2.0, **more}


SIZE = {"candidates": 12_345, "d_in": 8, "batch": 256}
FIT = {"seconds": 4.0, "epochs": 50, "best_epoch": [33], "test": 0.4061}
RESULTS: dict[str, dict[str, Any]] = {
    "step": {
        "sizes": [
            {**SIZE, "forms": {"plain": form(300.0), "tabr": form(20.0)}},
            {
                **SIZE,
                "candidates": 3_000_000,
                "forms": {
                    "plain": {"failed": "out of memory"},
                    "tabr": form(60.0, peak_bytes=2_500_000_000),
                },
            },
        ]
    },
    "curve": {
        "sizes": [
            {**SIZE, "forms": {"plain": form(400.0), "tabr": form(20.0)}},
            {**SIZE, "candidates": 10**7, "forms": {"tabr": form(77.7)}},
        ]
    },
    "freeze": {
        "sizes": [
            {**SIZE, "step_ms": 2.0},
            {**SIZE, "candidates": 10**6, "step_ms": 2.1, "freeze_seconds": 12.0},
        ],
        "ratio": 1.05,
    },
    "search": {
        "m": 96,
        "sizes": [
            {
                "candidates": 10**7,
                "width": 128,
                "queries": 1024,
                "ways": {"tabr": {"ms": 31.4}, "topk": {"ms": 314.0}},
                "largest_difference": 0.0,
                "same": True,
            }
        ],
    },
    "predict": {
        "candidates": 100_000,
        "features": 50,
        "single_ms": 3.21,
        "single_95_percent_ms": 4.32,
        "bulk_rows": 10_000,
        "bulk_seconds": 2.0,
        "bulk_rows_per_second": 5000.0,
    },
    "memory": {
        "features": 50,
        "changed": 10_000,
        "candidates": 1_000_000,
        "add_seconds": 0.0512,
        "remove_seconds": 0.004,
        "relabel_seconds": 0.003,
        "explained_candidates": 100_000,
        "explain_one_ms": 36.1,
        "explain_many_rows": 100,
        "explain_many_ms_each": 26.0,
    },
    "train": {
        "california": {
            "first": FIT,
            "second": FIT,
            "first_five_members": FIT,
            "five_members": FIT,
            "five_to_one": 4.2,
            "five_to_one_per_epoch": 4.1,
        },
    },
    "covtype": {"rows": 300_000, "first": {**FIT, "test": 0.9751}},
    "presets": {
        "tables": {
            "adult": {
                "rows": 26_048,
                "presets": {
                    "paper": {**FIT, "test": 0.8577},
                    "default": {**FIT, "seconds": 3.0, "epochs": 30, "test": 0.8711},
                },
            }
        }
    },
}


def write_results(folder: Path, device: str) -> None:
    for name, result in RESULTS.items():
        origin = {
            "command": f"python -m benchmarks.{name}",
            "hardware": "Abacus 9",
            "device": device,
            "threads": 2,
            "versions": {"tabr": "0.1", "torch": "2.0", "python": "3.11"},
        }
        text = json.dumps({**origin, **copy.deepcopy(result)})
        (folder / f"{name}-{device}.json").write_text(text, "utf-8")


def test_page_has_every_figure_and_keeps_its_words(tmp_path: Path) -> None:
    write_results(tmp_path, "cuda")
    before = PAGE.read_text("utf-8")
    text = report.updated(before, tmp_path)
    for row in (
        "| 12,345 x 8, 256 | plain | 300 | 1.00 | 2.00 |  | 15.0 |",
        "| 3,000,000 x 8, 256 | plain | out of memory | out of memory |",
        "| 3,000,000 x 8, 256 | tabr | 60.0 | 1.00 | 2.00 | 2.50 |  |",
        "| 10,000,000 x 8, 256 | left out | 77.7 | 1.00 | 2.00 |  |",
        "| 1,000,000 x 8, 256 | 2.10 | 1.05 |",
        "1,000,000 rows took 12.0 s",
        "| 10,000,000 x 128, 1024 | 314 | 31.4 |  |  | yes |",
        "| 100,000 x 50 | 3.21 | 4.32 | 10,000 | 5,000 |",
        "| add 10,000 of 1,000,000 candidates | 0.051 s |",
        "| explain one row, 100,000 candidates | 36.1 ms |",
        "| california, five members, second fit | 4.00 | 50 | 0.4061 |",
        "| covtype, one model | 4.00 | 50 | 0.9751 |",
        "4.20 times one",
        "| adult | paper | 1 | 4.00 | 50 | 1.00 | 0.8577 |",
        "| adult | default | 1 | 3.00 | 30 | 1.25 | 0.8711 |",
        "On Abacus 9, torch 2.0:\n`python -m benchmarks.step`",
    ):
        assert row in text
    assert report.updated(text, tmp_path) == text
    assert before.split("<!-- step: begin -->")[0] in text
    assert "Not measured yet" not in text


def test_both_devices_are_shown_the_gpu_first(tmp_path: Path) -> None:
    for device in ("cpu", "cuda"):
        write_results(tmp_path, device)
    text = report.updated(PAGE.read_text("utf-8"), tmp_path)
    assert text.count("| covtype, one model |") == 2
    assert text.index("On Abacus 9,") < text.index("On 2 CPU threads, Abacus 9,")


def test_page_without_results_says_what_to_run(tmp_path: Path) -> None:
    text = report.updated(PAGE.read_text("utf-8"), tmp_path)
    assert text.count("Not measured yet: `python -m benchmarks.") == len(report.BLOCKS)


def test_examples_of_the_words_hold() -> None:
    assert doctest.testmod(report).failed == 0


def test_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="'step' once"):
        report.fill("no markers", "step", "")


def test_pages_of_the_docs_are_those_of_the_results() -> None:
    text = PAGE.read_text("utf-8")
    assert report.updated(text, SPEED) == text
    text = SERVING_PAGE.read_text("utf-8")
    assert report.updated(text, SPEED, report.SERVING) == text


def test_readme_tells_when_the_plain_form_ran_out_of_memory(tmp_path: Path) -> None:
    write_results(tmp_path, "cuda")
    text = speed(tmp_path)
    assert "| 12,345 x 8, 256 | 300 ms | 20.0 ms | 15.0 |" in text
    assert "| 3,000,000 x 8, 256 | out of memory | 60.0 ms |  |" in text


def test_the_same_results_give_the_same_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: 'tabr[plots]'")
    write_results(tmp_path, "cuda")
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text("utf-8"), "utf-8")
    serving = tmp_path / "serving.md"
    serving.write_text(SERVING_PAGE.read_text("utf-8"), "utf-8")
    pictures = []
    for name in ("a.svg", "b.svg"):
        options = ["--results", str(tmp_path), "--page", str(page)]
        options += ["--serving", str(serving), "--plot", str(tmp_path / name)]
        report.main(options)
        pictures.append((tmp_path / name).read_text("utf-8"))
    assert pictures[0] == pictures[1]
    assert "12,345 x 8" in pictures[0]
    assert "tabr, frozen contexts" in pictures[0]
    assert "Not measured yet" not in page.read_text("utf-8")

"""All pages in one call, and their index."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.pages import PAGES, index_page
from reproduction.results_folder import DOCS, MODEL, ROOT

from .folders import add_runs, publish, run


def test_the_index_in_the_docs_names_all_pages() -> None:
    assert (DOCS / "index.md").read_text("utf-8") == index_page()
    for command, page in PAGES.items():
        assert (DOCS / page.path).exists()
        assert f"`python -m reproduction {command}`" in index_page()
        assert run(command, "--help").exit_code == 0


def test_one_command_writes_all_pages_and_the_readme(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    results, docs, readme = (tmp_path / name for name in ("a", "docs", "README.md"))
    add_runs(results, "california", "tabr-s-default", [0.40, 0.42])
    publish(results, {("california", MODEL, "single"): (0.406, 0.003)})
    readme.write_text((ROOT / "README.md").read_text("utf-8"), "utf-8")
    command = "pages", "--results", results, "--docs", docs, "--readme", readme
    assert run(*command).exit_code == 0
    for page in PAGES.values():
        assert (docs / page.path).exists()
    assert "| california | RMSE | 0.4100 ± 0.0100 |" in readme.read_text("utf-8")
    assert (docs / "index.md").read_text("utf-8") == index_page()
    assert (results / "reproduction.csv").is_file()


def test_a_folder_without_cases_of_the_authors_network_is_refused(
    tmp_path: Path,
) -> None:
    refused = run("oracle", tmp_path)
    assert refused.exit_code == 2
    assert "the cases are .npz files, however" in refused.output

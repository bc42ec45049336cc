from pathlib import Path

from reproduction.tasks_page import tasks_page
from tabr.bench.tasks.catalog import TASKS

ROOT = Path(__file__).parents[2]


def test_the_page_in_the_docs_is_that_of_the_catalogue() -> None:
    assert (ROOT / "docs" / "tasks.md").read_text("utf-8") == tasks_page()


def test_every_task_has_a_line() -> None:
    lines = tasks_page().splitlines()
    for label in {task.label for task in TASKS}:
        assert sum(line.startswith(f"| {label} |") for line in lines) == 1

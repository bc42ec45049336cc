from reproduction.results_folder import DOCS
from reproduction.tasks_page import to_markdown
from tabr.bench.tasks.catalog import TASKS


def test_the_page_in_the_docs_is_that_of_the_catalogue() -> None:
    assert (DOCS / "tasks.md").read_text("utf-8") == to_markdown()


def test_every_task_has_a_line() -> None:
    lines = to_markdown().splitlines()
    for label in {task.label for task in TASKS}:
        assert sum(line.startswith(f"| {label} |") for line in lines) == 1

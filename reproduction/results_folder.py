"""The results folder: tables of runs, published figures, records of studies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

import pandas as pd

from reproduction.runs import TABLES, Run, read_table
from tabr.bench.methods import METHODS
from tabr.bench.parameters import CONFIGS_FILE
from tabr.bench.results import Result
from tabr.bench.tasks.catalog import BENCHMARKS, TASKS
from tabr.bench.tasks.task import Task
from tabr.errors import DataError

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "reproduction" / "results"
DOCS = ROOT / "docs" / "results"  # the generated pages

PUBLISHED = "published.csv"
MODEL = "TabR-S default"
COLUMNS = (
    "dataset",
    "model",
    "kind",
    "metric",
    "runs",
    "test_mean",
    "test_std",
    "train_seconds",
    "best_epoch",
    "n_parameters",
    "gpu",
)


def extract(source: Path, target: Path) -> pd.DataFrame:
    """Write the published figures of a CSV file, sorted; return them."""
    rows = pd.read_csv(source)[list(COLUMNS)].astype({"n_parameters": "Int64"})
    rows = rows.sort_values(["dataset", "model", "kind"])
    target.parent.mkdir(parents=True, exist_ok=True)
    rows.to_csv(target, index=False, lineterminator="\n")
    return rows


def extract_configs(
    source: Path, target: Path = CONFIGS_FILE, tasks: Iterable[Task] = TASKS
) -> int:
    """Translate the published tuned configurations of our sets; return their number."""
    published = json.loads(source.read_text("utf-8"))
    translated = {
        task.published: {
            name: entry.method.published(published[task.published][entry.published])
            for name, entry in METHODS.items()
            if entry.published in published.get(task.published, {})
        }
        for task in tasks
        if task.published in published
    }
    # One line a configuration, so that a change can be read.
    lines = [
        f" {json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(m)}: {json.dumps(c)}" for m, c in configs.items())
        + "\n }"
        for name, configs in translated.items()
        if configs
    ]
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    return sum(map(len, translated.values()))


def to_csv(figures: pd.DataFrame) -> str:
    """Return figures as CSV with ten digits; others depend on the order of sums."""
    return figures.to_csv(index=False, lineterminator="\n", float_format="%.10g")


class ResultsFolder:
    """Files that pages are made from; each is read once, when it is needed."""

    def __init__(self, path: Path = RESULTS) -> None:
        self.path = path

    @cached_property
    def runs(self) -> list[Run]:
        """All runs of the paper's benchmarks, trials among them."""
        paths = (self.path / TABLES[benchmark] for benchmark in BENCHMARKS)
        return [run for path in paths for run in read_table(path)]

    @cached_property
    def singles(self) -> Mapping[str, list[Result]]:
        """The single runs, by the name of their plan: `tabr-s-default` and so on."""
        by_plan: dict[str, list[Result]] = {}
        for kind, result in self.runs:
            if kind == "single":
                by_plan.setdefault(result.method, []).append(result)
        return by_plan

    @property
    def has_published(self) -> bool:
        """Whether the published figures are there."""
        return (self.path / PUBLISHED).is_file()

    @cached_property
    def all_published(self) -> pd.DataFrame:
        """The published figures that `extract` kept, of all models and kinds."""
        if not self.has_published:
            raise DataError(
                "a table needs the published figures, however"
                f" {self.path / PUBLISHED} is not there: make it with"
                " `python -m reproduction extract`"
            )
        return pd.read_csv(self.path / PUBLISHED)

    def published(
        self, model: str | None = MODEL, kind: str | None = "single"
    ) -> pd.DataFrame:
        """Return published figures.

        Args:
            model: Name of the model; None is all.
            kind: "single" or "ensemble of 5"; None is both.
        """
        rows = self.all_published
        if model is not None:
            rows = rows[rows["model"] == model]
        return rows if kind is None else rows[rows["kind"] == kind]

    def study(self, name: str) -> tuple[str, pd.DataFrame] | None:
        """Return the command of a study and its records, or None if it was not run."""
        path = self.study_path(name)
        if not path.is_file():
            return None
        content = json.loads(path.read_text("utf-8"))
        return content["command"], pd.DataFrame(content["records"])

    def study_path(self, name: str) -> Path:
        """Return the file of a study."""
        return self.path / "studies" / f"{name}.json"

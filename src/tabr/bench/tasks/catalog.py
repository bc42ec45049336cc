"""The catalogue: every set of the paper's two benchmarks.

The first has 11 sets and the whole of one of them, Weather. The second, made of the
benchmark of Grinsztajn et al. (2022), has 43. `catalog.csv` has a line for each, by the
names that the paper's authors gave to their published runs; those that end in "-part"
are sets of which a part was at hand.

- group: What is predicted or, in the second benchmark, the group in published names.
- seconds: Of a published fit (of one run where only the authors' own reports have it).
- openml: The numbers are those of the appendix of Grinsztajn et al. and of the list
  that goes with their tables. KDDCup09_upselling has another, 44186: 44158 is an
  earlier table of fewer rows, and the published counts are of this one.
- differs: Of the copies that were at hand; a table fetched from OpenML has none of it.

The other columns are attributes of `Task` and `Origin`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tabr.bench.tasks.task import Origin, Task
from tabr.errors import DataError
from tabr.text import closest

BENCHMARKS = ("default", "why")


def _splits(line: Mapping[str, str]) -> Iterator[Task]:
    """The tasks of a set: one for each of its splits."""
    benchmark, _, name = line["label"].rpartition("/")
    group, check = line["group"], line["label_check"]
    origin = Origin(
        n_rows=int(line["rows"]),
        n_features=int(line["features"]),
        openml=int(line["openml"]) if line["openml"] else None,
        place=line["place"],
        label_check=float(check) if check else None,
    )
    for split in range(int(line["splits"])):
        published = f"why/{group}-{split}-{name.removesuffix('-part')}"
        yield Task(
            name=name,
            benchmark="why" if benchmark else "default",
            kind="classification" if group.startswith("classif") else "regression",
            published=published if benchmark else name,
            batch_size=int(line["batch_size"]),
            cost=float(line["seconds"]),
            split=split,
            official=line["split"] == "paper",
            normalization="none" if line["normalization"] == "none" else "quantile",
            scale=float(line["scale"] or 1),
            binary_text=(line["binary_text"],) if line["binary_text"] else (),
            origin=origin,
            differs=line["differs"],
        )


with Path(__file__).with_name("catalog.csv").open(encoding="utf-8") as _file:
    TASKS = tuple(task for line in csv.DictReader(_file) for task in _splits(line))


def select(
    labels: Sequence[str] | None = None, benchmark: str | None = None
) -> list[Task]:
    """Return the tasks with these labels, all splits, or those of a benchmark.

    A benchmark, which may be "all", leaves out the tables that cannot be compared.
    `tabr.bench.tasks.task.is_present` tells whether a folder has the table of a task.

    >>> [(task.name, task.split) for task in select(["why/rl"])]
    [('rl', 0), ('rl', 1), ('rl', 2)]
    """
    if labels is None:
        wanted = BENCHMARKS if benchmark in (None, "all") else (benchmark,)
        return [t for t in TASKS if t.benchmark in wanted and t.comparable]
    all_labels = dict.fromkeys(task.label for task in TASKS)
    unknown = [label for label in labels if label not in all_labels]
    if unknown:
        raise DataError(
            "a task must be a set of the paper, however these came:"
            f" {', '.join(unknown)}; the closest are"
            f" {closest(unknown[0], all_labels)}"
        )
    return [task for task in TASKS if task.label in labels]

"""The catalogue: every set of the paper's two benchmarks.

The first has 11 sets and the whole of one of them, Weather. The second, made of the
benchmark of Grinsztajn et al. (2022), has 43. All are known here, by the names that the
paper's authors gave to their published runs. The numbers on OpenML are those of the
appendix of Grinsztajn et al. and of the list that goes with their tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from tabr.bench.tasks.task import Origin, Task
from tabr.errors import DataError
from tabr.text import closest

BENCHMARKS = ("default", "why")

_SHIFTS = "https://github.com/Shifts-Project/shifts"
_ORIGINS = {
    "california": Origin(20640, 8, place="`sklearn.datasets.fetch_california_housing`"),
    "house": Origin(22784, 16, 574, label_check=53729.905),
    "adult": Origin(48842, 14, place="https://archive.ics.uci.edu/dataset/2/adult"),
    "churn": Origin(
        10000, 10, place="https://www.kaggle.com/shrutimechlearn/churn-modelling"
    ),
    "diamond": Origin(53940, 9, 42225),
    "otto": Origin(
        61878,
        93,
        place="https://www.kaggle.com/c/otto-group-product-classification-challenge",
    ),
    "black-friday": Origin(166821, 9, 41540),
    "covtype": Origin(581012, 54, 1596),
    "higgs-small": Origin(98049, 28, 23512, label_check=9245),
    "weather-small": Origin(397099, 119, place=_SHIFTS),
    "microsoft": Origin(
        1200192,
        136,
        place="https://www.microsoft.com/en-us/research/project/mslr (WEB10K, fold 1)",
    ),
    "weather-big": Origin(3544635, 119, place=_SHIFTS),
}


def _default(
    name: str,
    kind: Literal["regression", "classification"],
    batch_size: int,
    cost: float,
    **more: Any,
) -> Task:
    origin = _ORIGINS[name]
    return Task(name, "default", kind, name, batch_size, cost, origin=origin, **more)


DEFAULT = (
    _default("california", "regression", 256, 36, official=True),
    _default("house", "regression", 256, 42, official=True),
    _default("adult", "classification", 256, 46, official=True, binary_text=("sex",)),
    _default(
        "churn",
        "classification",
        256,
        8,
        binary_text=("Gender",),
        differs="the paper's copy has EstimatedSalary twice",
    ),
    _default("diamond", "regression", 512, 84, scale=3989.40),
    _default("otto", "classification", 512, 58, normalization="none"),
    _default("black-friday", "regression", 512, 303, scale=5082.27),
    _default("covtype", "classification", 1024, 2353),
    _default("higgs-small", "classification", 512, 84, official=True),
    _default("weather-small", "regression", 1024, 979, official=True),
    _default("microsoft", "regression", 1024, 1682, official=True),
    _default("weather-big", "regression", 1024, 65319, official=True),
)

_Row = tuple[str, int, int, float, int, int, int, float]
# By group in the published names: name, splits, batch size, published seconds (of one
# run where only the authors' own reports have them), number on OpenML, rows, features,
# label check (see Origin).
_WHY: dict[str, tuple[_Row, ...]] = {
    "classif-num-medium": (
        ("bank-marketing", 3, 256, 26, 44126, 10578, 7, 1101),
        ("kdd_ipums_la_97-small", 3, 64, 19, 44124, 5188, 20, 522),
        ("wine", 5, 32, 16, 44091, 2554, 11, 265),
        ("MagicTelescope", 3, 256, 25, 44125, 13376, 10, 1393),
        ("credit", 2, 256, 53, 44089, 16714, 10, 2333),
        ("phoneme", 5, 32, 25, 44127, 3172, 5, 327),
    ),
    "classif-num-large": (
        ("jannis", 1, 256, 66, 44131, 57580, 54, 6041),
        ("Higgs", 1, 256, 200, 44129, 940160, 24, 24924),
        ("MiniBooNE", 1, 256, 88, 44128, 72998, 50, 7862),
    ),
    "classif-cat-medium": (
        ("compass", 2, 256, 32, 44162, 16644, 17, 2313),
        ("electricity", 1, 256, 168, 44156, 38474, 8, 9951),
        ("rl", 3, 64, 34, 44160, 4970, 12, 502),
        # 44158 is an earlier table of fewer rows; the published counts are of this one.
        ("KDDCup09_upselling", 3, 64, 42, 44186, 5128, 49, 528),
    ),
    "classif-cat-large": (
        ("covertype", 1, 256, 176, 44159, 423680, 54, 24820),
        ("road-safety", 1, 256, 134, 44161, 111762, 32, 21411),
    ),
    "regression-num-medium": (
        ("Ailerons", 3, 256, 37, 44137, 13750, 33, 0.00040120388),
        ("california", 1, 256, 57, 44025, 20640, 8, 0.35463456),
        ("elevators", 2, 256, 16, 44134, 16599, 16, 0.0068559259),
        ("fifa", 2, 256, 42, 44026, 18063, 5, 1.358968),
        ("house_16H", 1, 256, 24, 44139, 22784, 16, 0.85285693),
        ("houses", 1, 256, 67, 44138, 20640, 8, 0.56809933),
        ("isolet", 3, 128, 17, 44135, 7797, 613, 7.523603),
        ("medical_charges", 1, 256, 54, 44146, 163065, 3, 0.56733503),
        ("wine_quality", 3, 128, 18, 44136, 6497, 11, 0.86958935),
        ("superconduct", 1, 256, 35, 44148, 21263, 79, 34.14684),
        ("MiamiHousing2016", 3, 256, 32, 44147, 13932, 13, 0.56805029),
        ("cpu_act", 3, 128, 22, 44132, 8192, 21, 18.897527),
        ("pol", 2, 256, 30, 44133, 15000, 26, 42.154052),
        ("sulfur", 3, 256, 38, 44145, 10081, 6, 0.05459476),
    ),
    "regression-num-large": (("year", 1, 256, 73, 44027, 515345, 90, 10.897696),),
    "regression-cat-medium": (
        ("analcatdata_supreme", 5, 64, 21, 44055, 4052, 7, 0.5807106),
        ("Bike_Sharing_Demand", 2, 256, 36, 44063, 17379, 11, 182.65297),
        ("Mercedes_Benz_Greener_Manufacturing", 5, 64, 11, 44061, 4209, 359, 13.483044),
        ("OnlineNewsPopularity", 1, 256, 12, 44064, 39644, 59, 0.93411782),
        ("yprop_4_1", 3, 128, 14, 44054, 8885, 62, 0.027234175),
        ("Brazilian_houses", 3, 256, 36, 44062, 10692, 11, 0.7817973),
        ("house_sales", 1, 256, 47, 44066, 21613, 17, 0.52428787),
        ("visualizing_soil", 3, 128, 98, 44056, 8641, 4, 12.376704),
    ),
    "regression-cat-large": (
        ("black_friday", 1, 256, 167, 44057, 166821, 9, 0.5987143),
        ("diamonds", 1, 256, 170, 44059, 53940, 9, 1.0159627),
        ("nyc-taxi-green-dec-2016", 1, 256, 311, 44065, 581835, 16, 0.59672358),
        ("particulate-matter-ukair-2017", 1, 256, 350, 44068, 394299, 6, 0.67959313),
        ("SGEMM_GPU_kernel_performance", 1, 256, 258, 44069, 241600, 9, 1.1131018),
    ),
}
_WITHOUT_NUMBERS = {"Mercedes_Benz_Greener_Manufacturing"}
# The copies that were at hand; a table fetched from OpenML has none of this.
_NOT_COMPARABLE = {
    "black_friday": "our copy has lost the order of its rows, so has another split",
    "OnlineNewsPopularity": "our copy has 54 of the 59 features",
}
# Rows of the sets of which a part was at hand, under a name of its own.
_PARTS = {"isolet": 1560, "jannis": 20730}


def _part(task: Task) -> Task:
    n_rows = _PARTS[task.name]
    return replace(
        task,
        name=f"{task.name}-part",
        official=False,
        comparable=False,
        origin=Origin(n_rows, task.origin.n_features, place=f"{task.label}, its whole"),
        differs=f"{n_rows:,} rows, made of a part of the source",
    )


def _splits(group: str, row: _Row) -> list[Task]:
    name, n_splits, batch_size, cost, openml, n_rows, n_features, label_check = row
    return [
        Task(
            name=name,
            benchmark="why",
            kind="classification" if group.startswith("classif") else "regression",
            published=f"why/{group}-{split}-{name}",
            batch_size=batch_size,
            cost=cost,
            split=split,
            official=name not in _NOT_COMPARABLE,
            normalization="none" if name in _WITHOUT_NUMBERS else "quantile",
            comparable=name not in _NOT_COMPARABLE,
            origin=Origin(n_rows, n_features, openml, label_check=label_check),
            differs=_NOT_COMPARABLE.get(name, ""),
        )
        for split in range(n_splits)
    ]


_PAPER_WHY = tuple(
    task for group, rows in _WHY.items() for row in rows for task in _splits(group, row)
)
WHY = _PAPER_WHY + tuple(_part(task) for task in _PAPER_WHY if task.name in _PARTS)

TASKS = DEFAULT + WHY


def select(
    labels: Sequence[str] | None = None, benchmark: str | None = None
) -> list[Task]:
    """Return the tasks with these labels, all splits, or those of a benchmark.

    A benchmark, which may be "all", leaves out the tables that cannot be compared.
    `tabr.bench.tasks.task.present` returns those whose tables a folder has.

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

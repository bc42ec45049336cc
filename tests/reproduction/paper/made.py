"""Small made-up results folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from reproduction.default_table import COLUMNS, PUBLISHED
from tabr.bench.results import write

from ..test_default_table import RESULT

RESULTS = Path(__file__).parents[3] / "results"
Figures = dict[tuple[str, str, str], tuple[float, float]]


def keep(
    out: Path,
    label: str,
    plan: str,
    scores: Sequence[float],
    *,
    split: int = 0,
    kind: str = "seed",
    **more: Any,
) -> None:
    """Write a file for each score; kind is "seed" or "ensemble"."""
    benchmark, name = ("default", label) if "/" not in label else label.split("/")
    for number, score in enumerate(scores):
        result = replace(
            RESULT,
            benchmark=benchmark,
            task=name,
            method=plan,
            split=split,
            seed=number,
            test=score,
            **more,
        )
        folder = out / benchmark / name / plan
        write(result, folder / f"split-{split}-{kind}-{number}.json")


def publish(out: Path, figures: Figures, *, n_runs: int = 15) -> None:
    """Write the published figures: by set, model and kind the mean and deviation."""
    accurate = ("adult", "churn", "otto", "covtype", "why/classif")
    rows = [
        [
            *key,
            "accuracy" if key[0].startswith(accurate) else "rmse",
            n_runs,
            *score,
            30.0,
            20.0,
            365,
            "A100",
        ]
        for key, score in figures.items()
    ]
    out.mkdir(exist_ok=True)
    pd.DataFrame(rows, columns=list(COLUMNS)).to_csv(out / PUBLISHED, index=False)

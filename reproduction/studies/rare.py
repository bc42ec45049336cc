"""A rare class: one row in a hundred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import RandomState
from numpy.typing import NDArray

from reproduction.studies.methods import PRESETS, TREES, Split, labelled, run_method
from reproduction.studies.units import Record, Unit
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import LabelledRows, load

SHARE = 0.01
TABLES = ("adult", "covtype")
SIZES = (30_000, 10_000, 40_000)  # of the parts of covtype
METHODS = (*PRESETS, *TREES)
MEASURES = ("average-precision", "roc-auc", "log-loss")


def rare(
    tables: Sequence[str], folder: Path, seeds: Sequence[int], params: Record
) -> Iterator[Unit]:
    """Yield each method on draws of tables with a rare class.

    adult keeps the paper's split, each part all of its rows but most of the rarer
    class. covtype is its rarest class against the others, parts drawn by chance.
    """

    @lru_cache(maxsize=1)
    def read(name: str) -> list[LabelledRows]:
        if name == "covtype":
            return [labelled(pd.read_parquet(folder / f"{name}.parquet"))]
        parts = load(select([name])[0], folder)
        return [parts.train, parts.val, parts.test]

    def run(name: str, seed: int, method: str) -> Iterator[Record]:
        random, parts = RandomState(seed), read(name)
        code = rarest(parts[0].y)
        if len(parts) == 1:
            parts = cut(parts[0], code, SIZES, random)
        else:
            parts = [thinned(part, code, random) for part in parts]
        train, stop, test = parts
        split = Split("classification", train, test, stop)
        record = run_method(method, split, seed, params, MEASURES)
        yield {"rows": len(train.y), "rare_rows": int(train.y.sum()), **record}

    for name in tables:
        for seed in seeds:
            for method in METHODS:
                about = {"table": name, "seed": seed, "method": method}
                yield Unit(about, partial(run, name, seed, method))


def rarest(y: NDArray[Any]) -> Any:
    """Return the label of fewest rows."""
    labels, n_rows = np.unique(y, return_counts=True)
    return labels[n_rows.argmin()]


def thinned(part: LabelledRows, code: Any, random: RandomState) -> LabelledRows:
    """Return the rows of other classes, and so many of a class that it is rare."""
    others, of_class = np.flatnonzero(part.y != code), np.flatnonzero(part.y == code)
    n_kept = round(len(others) * SHARE / (1 - SHARE))
    kept = random.choice(of_class, n_kept, replace=False)
    return _against_others(part, code, [others, kept])


def cut(
    rows: LabelledRows, code: Any, sizes: Sequence[int], random: RandomState
) -> list[LabelledRows]:
    """Return parts of these sizes, drawn by chance; a class is rare in each."""
    of_class, others = (
        random.permutation(np.flatnonzero(is_so))
        for is_so in (rows.y == code, rows.y != code)
    )
    parts = []
    for size in sizes:
        n_rare = round(SHARE * size)
        chosen = of_class[:n_rare], others[: size - n_rare]
        parts.append(_against_others(rows, code, chosen))
        of_class, others = of_class[n_rare:], others[size - n_rare :]
    return parts


def _against_others(
    rows: LabelledRows, code: Any, chosen: Sequence[NDArray[np.intp]]
) -> LabelledRows:
    """Return chosen rows in their order, and whether each is of a class, as 0 or 1."""
    index = np.sort(np.concatenate(chosen))
    X = rows.X.iloc[index].reset_index(drop=True)
    return LabelledRows(X, (rows.y[index] == code).astype(np.int8))

"""Time changes of a fitted model's candidates, and explanations.

    python -m benchmarks.memory [--candidates 1000000] [--changed 10000]

The model is fitted on a few rows for a moment, as these times do not depend on how well
it was trained; the rest of the table is then added, which is also the paper's way to
retrieve from more rows than one trains on. Each change is timed once it has been made
before: the first call lays candidates out. Explanations are timed with fewer
candidates, as a row's search is timed elsewhere.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import timing
from benchmarks.predict import random_frame
from tabr import TabRRegressor

_TRAINED = 2000  # rows
_FIT_SECONDS = 1.0
_EXPLAINED = 100  # rows at once


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def fitted(n_features: int, device: str) -> TabRRegressor:
    X = random_frame(_TRAINED, n_features, seed=0)
    held_out = random_frame(256, n_features, seed=1)
    model = TabRRegressor(
        max_epochs=1, time_limit=_FIT_SECONDS, device=device, random_state=0
    )
    model.fit(X, X.sum(axis=1), eval_set=(held_out, held_out.sum(axis=1)))
    model.predict(held_out.head(1))
    return model


def updates(model: TabRRegressor, n: int, k: int, repeat: int) -> dict[str, float]:
    """Grow to n candidates; return median seconds of changing k of them."""
    width = model.n_features_in_
    rest = random_frame(n - len(model.candidates_), width, seed=2)
    grow = seconds(lambda: model.add_candidates(rest, rest.sum(axis=1)))
    times: dict[str, list[float]] = {"add": [], "relabel": [], "remove": []}
    for turn in range(repeat + 1):
        X = random_frame(k, width, seed=3 + turn)
        y, ids = X.sum(axis=1), np.empty(0, np.int64)

        def add() -> None:
            nonlocal ids
            ids = model.add_candidates(X, y)  # noqa: B023

        took = {
            "add": seconds(add),
            "relabel": seconds(lambda: model.relabel_candidates(ids, y + 1)),  # noqa: B023
            "remove": seconds(lambda: model.remove_candidates(ids)),  # noqa: B023
        }
        if turn > 0:  # the first one finds no spare room
            for name, value in took.items():
                times[name].append(value)
    result = {f"{name}_seconds": statistics.median(t) for name, t in times.items()}
    return {"grow_seconds": round(grow, 3)} | {
        k: round(v, 4) for k, v in result.items()
    }


def explanations(model: TabRRegressor, n: int, repeat: int) -> dict[str, float]:
    """Return median milliseconds to explain one row of n candidates, and many."""
    width = model.n_features_in_
    rest = random_frame(n - len(model.candidates_), width, seed=2)
    model.add_candidates(rest, rest.sum(axis=1))
    new = random_frame(_EXPLAINED, width, seed=4)
    rows = [new.iloc[[i % len(new)]] for i in range(repeat + 3)]
    single = [1e3 * seconds(lambda r=row: model.explain(r)) for row in rows][3:]
    many = 1e3 * seconds(lambda: model.explain(new))
    return {
        "explained_candidates": len(model.candidates_),
        "explain_one_ms": round(statistics.median(single), 2),
        "explain_many_rows": len(new),
        "explain_many_ms_each": round(many / len(new), 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = timing.parser(__doc__, repeat=5)
    parser.add_argument("--candidates", type=int, default=1_000_000)
    parser.add_argument("--changed", type=int, default=10_000)
    parser.add_argument("--explained", type=int, default=100_000, help="candidates")
    parser.add_argument("--features", type=int, default=50)
    options = parser.parse_args(arguments)
    result: dict[str, Any] = {"features": options.features, "changed": options.changed}
    model = fitted(options.features, options.device)
    result |= explanations(model, options.explained, options.repeat)
    model = fitted(options.features, options.device)
    result |= updates(model, options.candidates, options.changed, options.repeat)
    result["candidates"] = len(model.candidates_)
    for name, value in result.items():
        print(f"{name:24} {value:,}")
    timing.write("memory", options, arguments, result)


if __name__ == "__main__":
    main()

"""Time predictions of a fitted estimator: one row at a time, and many at once.

    python -m benchmarks.predict [--device cuda] [--candidates 100000] [--features 50]

The model is fitted through `fit` for a few steps only, as the time of a prediction
does not depend on how well it was trained; all rows of the table are its candidates.
A row comes as a user has it: a pandas frame of one line.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarks import timing
from tabr import TabRRegressor

_FIT_SECONDS = 1.0
_N_BULK_TURNS = 3
_WARM_UP = 10


def random_frame(n: int, n_features: int, seed: int) -> pd.DataFrame:
    values = np.random.default_rng(seed).standard_normal((n, n_features))
    return pd.DataFrame(values, columns=[f"feature {i}" for i in range(n_features)])


def seconds(model: TabRRegressor, X: pd.DataFrame) -> float:
    start = time.perf_counter()
    model.predict(X)
    return time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> None:
    parser = timing.parser(__doc__, repeat=300)
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--rows", type=int, default=10_000, help="rows at once")
    options = parser.parse_args(arguments)
    X = random_frame(options.candidates, options.features, seed=0)
    new = random_frame(options.rows, options.features, seed=1)
    model = TabRRegressor(
        max_epochs=1, time_limit=_FIT_SECONDS, device=options.device, random_state=0
    )
    held_out = new.head(256)
    model.fit(X, X.sum(axis=1), eval_set=(held_out, held_out.sum(axis=1)))

    rows = [new.iloc[[i % len(new)]] for i in range(_WARM_UP + options.repeat)]
    single = [1e3 * seconds(model, row) for row in rows][_WARM_UP:]
    bulk = statistics.median(seconds(model, new) for _ in range(_N_BULK_TURNS))
    result = {
        "candidates": len(model.candidates_),
        "features": options.features,
        "single_ms": round(statistics.median(single), 4),
        "single_95_percent_ms": round(float(np.quantile(single, 0.95)), 4),
        "bulk_rows": len(new),
        "bulk_seconds": round(bulk, 4),
        "bulk_rows_per_second": round(len(new) / bulk, 1),
    }
    print(
        f"{result['candidates']:,} candidates x {options.features}   one row "
        f"{result['single_ms']:.2f} ms (95 %: {result['single_95_percent_ms']:.2f})   "
        f"{result['bulk_rows']:,} rows at once: "
        f"{result['bulk_rows_per_second']:,.0f} rows a second"
    )
    timing.write("predict", options, arguments, result)


if __name__ == "__main__":
    main()

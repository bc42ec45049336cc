"""Time whole fits on real tables, from the call of `fit` to its return.

    python -m benchmarks.train --data FOLDER --device cuda [--covtype]

California: one model with all defaults, twice with the same seed in one process (the
first fit starts the GPU and compiles kernels; torch is imported before), then five
members, twice likewise. Their cost is also told per epoch, as seeds stop at different
epochs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import timing
from tabr import TabRClassifier, TabRRegressor
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import SplitTable, data_folder, load
from tabr.metrics import rmse

N_MEMBERS = 5


def fit(kind: str, parts: SplitTable, **params: Any) -> dict[str, Any]:
    """Fit once; return seconds, epochs and the score of the test rows."""
    estimator = TabRRegressor if kind == "regression" else TabRClassifier
    model = estimator(random_state=0, **params)
    start = time.perf_counter()
    model.fit(parts.train.X, parts.train.y, eval_set=(parts.val.X, parts.val.y))
    seconds = time.perf_counter() - start
    prediction = model.predict(parts.test.X)
    return {
        "seconds": round(seconds, 3),
        "epochs": len(model.history_),
        "best_epoch": model.best_epoch_,
        "test": (
            rmse(parts.test.y, prediction)
            if kind == "regression"
            else float(np.mean(prediction == parts.test.y))
        ),
    }


def california(parts: SplitTable, **params: Any) -> dict[str, Any]:
    first, second = (fit("regression", parts, **params) for _ in range(2))
    first_five, five = (
        fit("regression", parts, n_members=N_MEMBERS, **params) for _ in range(2)
    )
    ratio = five["seconds"] / second["seconds"]
    return {
        "rows": len(parts.train.y),
        "first": first,
        "second": second,
        "first_five_members": first_five,
        "five_members": five,
        "five_to_one": round(ratio, 3),
        "five_to_one_per_epoch": round(ratio * second["epochs"] / five["epochs"], 3),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = timing.parser(__doc__)
    parser.add_argument("--data", help="folder of the tables (default: TABR_DATA)")
    parser.add_argument("--covtype", action="store_true", help="fit one on it too")
    parser.add_argument("--max-epochs", type=int, help="for a trial")
    options = parser.parse_args(arguments)
    folder = data_folder(options.data)
    params = {"device": options.device, "max_epochs": options.max_epochs}

    (task,) = select(["california"])
    result = {"california": california(load(task, folder), **params)}
    for name in ("first", "second", "first_five_members", "five_members"):
        _print(f"california, {name}", result["california"][name])
    timing.write("train", options, arguments, result)
    if options.covtype:
        (task,) = select(["covtype"])
        parts = load(task, folder)
        one = fit("classification", parts, **params)
        _print("covtype", one)
        # A file of its own: it takes long, and california is often measured alone.
        covtype = {"rows": len(parts.train.y), "first": one}
        timing.write("covtype", options, arguments, covtype, by="train")


def _print(title: str, fact: dict[str, Any]) -> None:
    print(
        f"{title:26} {fact['seconds']:8.2f} s   {fact['epochs']} epochs   "
        f"test {fact['test']:.4f}",
        flush=True,
    )


if __name__ == "__main__":
    main()

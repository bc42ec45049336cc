"""Time whole fits of the presets on tables of the paper, in turns of one run.

    python -m benchmarks.presets --data FOLDER --tables california,churn

"paper" is TabR-S as published, which the others are set beside. Fits stop early, at
other epochs for other presets, so seconds of an epoch are told, too. What is compiled
once for a machine is compiled before.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks import timing
from benchmarks.train import fit
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import SplitTable, data_folder, load
from tabr.config import PRESETS

WHOLE = ("paper", "default")  # "best" is fitted if it is named


def turns(
    kind: str, parts: SplitTable, presets: Sequence[str], repeat: int, **params: Any
) -> dict[str, Any]:
    """Return what each preset took and scored; its seconds are medians over turns."""
    for preset in presets:
        fit(kind, parts, **{**params, "preset": preset, "max_epochs": 1})
    facts: dict[str, list[dict[str, Any]]] = {preset: [] for preset in presets}
    for _ in range(repeat):
        for preset in presets:
            facts[preset].append(fit(kind, parts, preset=preset, **params))
    # All turns have the same seed: but for the clock they are one fit.
    return {
        preset: {
            **one_of[0],
            "seconds": round(statistics.median(f["seconds"] for f in one_of), 3),
        }
        for preset, one_of in facts.items()
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = timing.parser(__doc__, repeat=1)
    parser.add_argument("--data", help="folder of the tables (default: TABR_DATA)")
    parser.add_argument("--tables", default="california", help="as in california,churn")
    parser.add_argument(
        "--presets", default=",".join(WHOLE), help=f"of {', '.join(PRESETS)}"
    )
    parser.add_argument("--max-epochs", type=int, help="the same for all")
    options = parser.parse_args(arguments)
    folder, presets = data_folder(options.data), options.presets.split(",")
    params = {"device": options.device, "max_epochs": options.max_epochs}
    result: dict[str, Any] = {}
    for task in select(options.tables.split(",")):
        parts = load(task, folder)
        facts = turns(task.kind, parts, presets, options.repeat, **params)
        result[task.label] = {"rows": len(parts.train.y), "presets": facts}
        for preset, fact in facts.items():
            print(
                f"{task.label:14} {preset:8} {fact['seconds']:8.2f} s "
                f"{fact['epochs']:4} epochs   test {fact['test']:.4f}",
                flush=True,
            )
    timing.write("presets", options, arguments, {"tables": result})


if __name__ == "__main__":
    main()

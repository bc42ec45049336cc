"""The parameters of a run: a method's defaults, or the published tuned ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from tabr.bench.methods import METHODS
from tabr.bench.tasks.catalog import TASKS
from tabr.bench.tasks.task import Task
from tabr.errors import DataError

# "default": the constructor's; "tuned": those that the paper's authors found and
# published; "retuned": those that `tune` found here; "trial": any others, kept apart
# and never reported.
Config = Literal["default", "tuned", "retuned", "trial"]
CONFIGS: tuple[Config, ...] = get_args(Config)
_FILE = Path(__file__).with_name("parameters.json")


def parameters(
    task: Task, method: str, config: Config, trial: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what to pass to a method for a table, beside what its entry fixes."""
    check_method(method)
    make = METHODS[method].method
    chosen: dict[str, Any] = {"batch_size": task.batch_size} if make.has_batches else {}
    if config == "tuned" and not make.needs_no_tuning:
        known = _published().get(task.published, {})
        if method not in known:
            raise DataError(
                "tuned parameters must be published ones, however there are none of"
                f" {method} for {task.label}: take --config default"
            )
        chosen |= known[method]
    return {**chosen, **(trial or {})}


def check_method(method: str) -> None:
    """Refuse a name that is no method's."""
    if method not in METHODS:
        raise DataError(
            f"a method must be one of {', '.join(METHODS)}; however, {method} came"
        )


def has_tuned(task: Task, method: str) -> bool:
    """Tell whether a run with the config "tuned" is possible."""
    itself = METHODS[method].method.needs_no_tuning
    return itself or method in _published().get(task.published, {})


@cache
def _published() -> dict[str, dict[str, dict[str, Any]]]:
    content: dict[str, dict[str, dict[str, Any]]] = json.loads(_FILE.read_text("utf-8"))
    return content


def extract_configs(
    source: Path, target: Path = _FILE, tasks: Iterable[Task] = TASKS
) -> int:
    """Translate the published tuned configurations of our sets; return their number."""
    every = json.loads(source.read_text("utf-8"))
    found = {
        task.published: {
            name: entry.method.published(every[task.published][entry.published])
            for name, entry in METHODS.items()
            if entry.published in every.get(task.published, {})
        }
        for task in tasks
        if task.published in every
    }
    # One line a configuration, so that a change can be read.
    lines = [
        f" {json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(m)}: {json.dumps(c)}" for m, c in configs.items())
        + "\n }"
        for name, configs in found.items()
        if configs
    ]
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    return sum(map(len, found.values()))

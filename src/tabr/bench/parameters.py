"""The parameters of a run: a method's defaults, or the published tuned ones.

Names of methods are checked here too, and the libraries that they need.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tabr.bench.methods import METHODS
from tabr.bench.tasks.task import Task
from tabr.errors import DataError, MissingLibrary
from tabr.optional import require

# "default": the constructor's; "tuned": those that the paper's authors found and
# published; "retuned": those that `tune` found here; "retuned-ensemble": those of its
# trials that `tune` weighted, which are not fitted again; "trial": any others, kept
# apart and never reported.
Config = Literal["default", "tuned", "retuned", "retuned-ensemble", "trial"]
CONFIGS_FILE = Path(__file__).with_name("parameters.json")


def parameters(
    task: Task, method: str, config: Config, trial: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the arguments of a method for a table, without those its entry fixes."""
    check_methods([method])
    entry, make = METHODS[method], METHODS[method].method
    params: dict[str, Any] = {}
    if make.has_batches and not entry.chooses_batches:
        params["batch_size"] = task.batch_size
    if config == "tuned" and not make.needs_no_tuning:
        published = _published().get(task.published, {})
        if method not in published:
            raise DataError(
                "tuned parameters must be published ones, however there are none of"
                f" {method} for {task.label}: take --config default"
            )
        params |= published[method]
    return {**params, **(trial or {})}


def has_tuned(task: Task, method: str) -> bool:
    """Whether a run with the config "tuned" is possible."""
    if METHODS[method].method.needs_no_tuning:
        return True
    return method in _published().get(task.published, {})


def check_methods(names: Iterable[str]) -> None:
    """Refuse a name that is no method's."""
    for name in names:
        if name not in METHODS:
            raise DataError(
                f"a method must be one of {', '.join(METHODS)}; however, {name} came"
            )


def check_libraries(names: Iterable[str]) -> None:
    """Refuse methods whose libraries are not installed."""
    absent: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        method = METHODS[name].method
        for library in method.libraries:
            try:
                require(library, extra=method.extra)
            except MissingLibrary as error:
                absent.setdefault(str(error), []).append(name)
    if absent:
        why = "; ".join(f"{', '.join(n)}: {error}" for error, n in absent.items())
        raise DataError(
            f"methods need their libraries, however some are not there ({why});"
            " install them or leave these methods out"
        )


@cache
def _published() -> dict[str, dict[str, dict[str, Any]]]:
    content: dict[str, dict[str, dict[str, Any]]]
    content = json.loads(CONFIGS_FILE.read_text("utf-8"))
    return content

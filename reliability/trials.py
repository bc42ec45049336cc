"""A trial: what was tried, how often, and what came of it; kept as a file."""

from __future__ import annotations

import json
import platform
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from tabr import __version__
from tabr.bench.results import current_commit
from tabr.device.devices import device_name
from tabr.tables.files import write_bytes

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Trial:
    """What was tried and what came of it.

    Attributes:
        title: What the trial is called on the page.
        tried: What was done, in a sentence or two.
        counts: What was counted, by name, in the order of the page.
        held: Whether all that the library promises there has held.
    """

    title: str
    tried: str
    counts: Mapping[str, int | float | str]
    held: bool


def keep(name: str, trials: Iterable[Trial], folder: Path = RESULTS) -> Path:
    """Write the trials of a command, with its line and commit; return the file."""
    record = {
        "command": command_line(name, sys.argv[2:]),
        "commit": current_commit(),
        "hardware": device_name(torch.device("cpu")),
        "versions": {"tabr": __version__, "python": platform.python_version()},
        "trials": [asdict(trial) for trial in trials],
    }
    path = folder / f"{name}.json"
    write_bytes(path, (json.dumps(record, indent=1, allow_nan=False) + "\n").encode())
    return path


def command_line(name: str, arguments: Iterable[str]) -> str:
    """Return the command line, without folders that only one machine has.

    >>> command_line("files", ["--count", "20", "--out", "/tmp/a"])
    'python -m reliability files --count 20'
    """
    text = shlex.join(["python", "-m", "reliability", name, *arguments])
    return re.sub(r" --out[ =]('[^']*'|\S+)", "", text)


def read(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the files of a folder by the names of their commands."""
    return {
        path.stem: json.loads(path.read_text("utf-8"))
        for path in sorted(folder.glob("*.json"))
    }

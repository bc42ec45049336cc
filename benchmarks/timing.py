"""What all benchmarks share: sizes, clocks, memory, and files that say how they arose.

A time is the median over turns: all that is compared runs once in each turn, so that a
noisy machine troubles everyone alike. On a GPU a turn is timed by events around
several calls, as a step of training does not wait for the one before it either.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from tabr import __version__
from tabr.device.devices import device_name
from tabr.tables.files import write_bytes

T = TypeVar("T")
Call = Callable[[], object]

M = 96  # neighbours of a row
SPEED = Path(__file__).parent / "results" / "speed"
_TURN_MS = 50.0  # a turn repeats what takes less
_MOST_CALLS = 50  # in a turn


class Size(NamedTuple):
    """Candidates, width of their input vectors, rows of a batch."""

    n: int
    d_in: int
    b: int

    def __str__(self) -> str:
        return f"{self.n}x{self.d_in}x{self.b}"


def size(text: str) -> Size:
    """Read a size such as 13209x8x256."""
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"a size is candidates x inputs x batch, as in 13209x8x256; however: {text}"
        )
    result = Size(*(int(number) for number in match.groups()))
    if result.n < result.b + M:
        raise argparse.ArgumentTypeError(
            f"a size needs {M} candidates beyond the batch, however: {text}"
        )
    return result


def parser(
    description: str | None, *, repeat: int | None = None
) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have.

    Without a default for `repeat` there is no such option.
    """
    result = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    if repeat is not None:
        result.add_argument("--repeat", type=int, default=repeat, help="turns")
    result.add_argument("--out", type=Path, default=SPEED)
    return result


# --- time and memory --------------------------------------------------------------


def milliseconds(call: Call, device: torch.device, n: int = 1) -> float:
    """Return the time of a call, as the mean of n in a row."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(n):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / n
    begin = time.perf_counter()
    for _ in range(n):
        call()
    return 1e3 * (time.perf_counter() - begin) / n


def warm_up(call: Call, device: torch.device, n_on_gpu: int = 6) -> None:
    """Call until caches are filled and a step on a GPU is captured."""
    for _ in range(n_on_gpu if device.type == "cuda" else 2):
        call()


def medians(
    calls: Mapping[T, Call], device: torch.device, repeat: int
) -> dict[T, float]:
    """Return the median milliseconds of warm calls that take turns."""
    n_calls = {}
    for name, call in calls.items():
        fit_into_turn = int(_TURN_MS / max(milliseconds(call, device), 1e-3))
        n_calls[name] = max(1, min(_MOST_CALLS, fit_into_turn))
    times: dict[T, list[float]] = {name: [] for name in calls}
    for _ in range(repeat):
        for name, call in calls.items():
            times[name].append(milliseconds(call, device, n_calls[name]))
    return {name: round(statistics.median(ms), 4) for name, ms in times.items()}


def with_peak(run: Callable[[], T], device: torch.device) -> tuple[T, int | None]:
    """Return what `run` returns and the most bytes it held beyond those before.

    None on a CPU, where bytes are not counted.
    """
    if device.type != "cuda":
        return run(), None
    free_memory(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = run()
    torch.cuda.synchronize(device)
    return result, torch.cuda.max_memory_allocated(device) - before


def free_memory(device: torch.device) -> None:
    """Free memory that is not held any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


# --- files ------------------------------------------------------------------------


def write(
    name: str,
    options: argparse.Namespace,
    arguments: Sequence[str] | None,
    result: Mapping[str, Any],
    by: str | None = None,
) -> Path:
    """Write a result with its origin, whole or not at all; return the file.

    `by` is the benchmark that made it, if that is not its name.
    """
    device = torch.device(options.device)
    record = {
        "command": command(f"benchmarks.{by or name}", arguments),
        "hardware": device_name(device),
        "device": device.type,
        "threads": torch.get_num_threads(),
        "versions": {
            "tabr": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        **result,
    }
    path: Path = options.out / f"{name}-{device.type}.json"
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    write_bytes(path, text.encode())
    return path


def command(module: str, arguments: Sequence[str] | None) -> str:
    """Return the command line, without folders that only this machine has."""
    given = sys.argv[1:] if arguments is None else arguments
    text = shlex.join(["python", "-m", module, *given])
    text = re.sub(r" --out[ =]('[^']*'|\S+)", "", text)
    return re.sub(r"(--data[ =])('[^']*'|\S+)", r"\1FOLDER", text)

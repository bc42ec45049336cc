"""Devices: which one to use and what it can run."""

from __future__ import annotations

import functools
import importlib.util
import platform
import re
from pathlib import Path

import torch

from tabr.errors import ParameterError


def choose_device(name: str | None) -> torch.device:
    """Return the device of that name; None stands for a GPU if there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ParameterError(
            f"device must be one that this machine has, however: {name!r} ({error})"
        ) from error
    return device


def device_name(device: torch.device) -> str:
    """Return the name of the GPU or of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.is_file():
        match = re.search(r"model name\s*: (.+)", cpu_info.read_text("utf-8"))
        if match:
            return match[1].strip()
    return platform.processor() or platform.machine()


@functools.cache
def has_triton(device: torch.device) -> bool:
    """Whether Triton kernels run there: on NVIDIA GPUs from Ampere on."""
    return (
        device.type == "cuda"
        and torch.version.cuda is not None
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and importlib.util.find_spec("triton") is not None
    )

"""The memory plan: what fit and predict hold, known before they begin."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from tabr.config import NetworkConfig
from tabr.device.devices import has_triton
from tabr.errors import MemoryLimitError

_GIB = 2**30
_SLACK = 1.2  # for allocators, and for what is too small to be counted
_LEAST_ROWS, _MOST_ROWS = 64, 4096  # predicted at a time on a GPU
_ON_CPU = 256  # rows predicted at a time: their scores stay in cache


@dataclass(frozen=True)
class MemoryPlan:
    """What a fit and a prediction hold at most, and how that was brought about.

    Attributes:
        device_bytes: On the device, while fitting.
        host_bytes: Beside the user's own table.
        limit: Bytes of the device that may be used; None where nobody knows.
        n_together: Members that are trained at the same time.
        candidates_on_host: Candidates stay in host memory and come to the device in
            parts, at each search.
        rows_at_a_time: Rows of one chunk of predictions.
    """

    device_bytes: int
    host_bytes: int
    limit: int | None
    n_together: int
    candidates_on_host: bool
    rows_at_a_time: int

    def __str__(self) -> str:
        text = f"fit holds {self.device_bytes / _GIB:.2f} GiB on the device"
        if self.limit is not None:
            text += f" of {self.limit / _GIB:.2f}"
        where = "the host" if self.candidates_on_host else "the device"
        return (
            f"{text}, {self.host_bytes / _GIB:.2f} GiB on the host; candidates on"
            f" {where}, {self.n_together} members at a time,"
            f" {self.rows_at_a_time} rows predicted at a time"
        )


def plan_memory(
    network: NetworkConfig,
    *,
    n: int,
    n_validation: int,
    row_bytes: int,
    d_in: int,
    m: int,
    batch_size: int,
    n_members: int,
    device: torch.device,
    limit: int | None = None,
) -> MemoryPlan:
    """Choose how to fit within a limit.

    Args:
        network: Shape of the network.
        n: Training rows.
        n_validation: Validation rows.
        row_bytes: Bytes of one prepared row.
        d_in: Width of input vectors.
        m: Neighbours of a row.
        batch_size: Rows of a step.
        n_members: Members to fit.
        device: Where.
        limit: Bytes that may be used there; None takes what is free.
    """
    limit = free_bytes(device) if limit is None else limit
    is_cpu = device.type == "cpu"
    width, hidden = network.width, network.hidden
    linear = network.encoder_blocks == 0 and network.embedding is None
    p = d_in if linear and d_in <= 3 * width else width
    # Points and centred points; a scan pads them, and rounds them once more.
    of_point = 4 * p + (6 * (p + 32) + 4 * m if has_triton(device) else 4 * p)
    of_rows = (n + n_validation) * (row_bytes + 4)
    parameters = 16 * (d_in * width + (2 + 4 * network.predictor_blocks) * width**2)
    # Points, differences and similarities of all pairs, forward and backward.
    of_pair = 4 * (4 * p + 8) + (hidden // 8 if has_triton(device) else 8)
    if not is_cpu and not has_triton(device):
        of_pair += 16 * hidden  # activations that no kernel makes again
    # What an encoder keeps of each row that a step encodes.
    of_encoded = 4 * (3 * d_in + 2 * width)
    of_encoded += 4 * network.encoder_blocks * (2 * width + 3 * hidden)
    n_encoded = 0 if linear else min(n, batch_size * m)
    # Lists of candidates that may be near, with room to rank them.
    of_list = 64_000 if has_triton(device) else 0
    step = batch_size * (m * of_pair + 64 * (width + hidden) + of_list) + parameters
    step += n_encoded * of_encoded

    def of_chunk(rows: int) -> int:
        most = 1 << (29 if is_cpu else 32)  # of scores held at a time
        scores = 0 if has_triton(device) else min(most, 8 * rows * n)
        return rows * (m * 4 * (4 * p + 8) + 16 * hidden + of_list) + scores

    def total(together: int, rows: int, on_host: bool) -> int:
        if on_host:
            return int(_SLACK * (step + of_chunk(rows) + 16 * n))
        members = together * (n * of_point + step + of_chunk(rows))
        return int(_SLACK * (of_rows + members))

    host = 2 * of_rows if not is_cpu else 0
    together = 1 if is_cpu else n_members
    chunks = [_ON_CPU] if is_cpu else [_MOST_ROWS, 1024, 256, _LEAST_ROWS]
    ways = [(k, rows, False) for k in range(together, 0, -1) for rows in chunks]
    if not is_cpu:
        ways += [(1, rows, True) for rows in chunks]
    for k, rows, on_host in ways:
        needed = total(k, rows, on_host)
        if limit is None or needed <= limit:
            if on_host:
                host += int(_SLACK * n * 8 * p)
            return MemoryPlan(needed, host, limit, k, on_host, rows)
    least = min(total(*way) for way in ways)
    raise MemoryLimitError(
        f"fitting {n:,} rows of width {d_in:,} needs {least / _GIB:.2f} GiB on"
        f" {device} at least, however {limit / _GIB if limit else 0:.2f} may be used:"
        " fit on fewer rows, lower batch_size, context_size or width, or raise"
        " memory_limit"
    )


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes that may still be taken there; None where nobody tells."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + kept)
    if device.type == "cpu" and os.path.exists("/proc/meminfo"):
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    return None

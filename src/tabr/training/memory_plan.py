"""The memory plan: what fit and predict hold, known before they begin."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from tabr.candidates.exact_index import held_bytes, making_bytes
from tabr.candidates.point_index import keeps_last
from tabr.config import Recipe
from tabr.device.devices import has_triton
from tabr.errors import MemoryLimitError
from tabr.network.embeddings import input_width
from tabr.network.tabr import points_are_inputs
from tabr.prediction.predict import ROWS_AT_A_TIME
from tabr.search.exact import SCORE_BYTES
from tabr.tables.shape import DataShape

_GIB = 2**30
_SLACK = 1.2  # for allocators, and for what is too small to be counted
_CHUNKS = [ROWS_AT_A_TIME["cuda"], 1024, 256, 64]  # rows predicted at a time


@dataclass(frozen=True)
class MemoryPlan:
    """What a fit and a prediction hold at most, and how that was brought about.

    Attributes:
        device_bytes: On the device, while fitting.
        host_bytes: Beside the user's own table.
        limit: Bytes of the device that may be used; None where nobody knows.
        members_at_a_time: Members that are trained at the same time.
        candidates_on_host: Candidates stay in host memory and come to the device in
            parts, at each search.
        rows_at_a_time: Rows of one chunk of predictions.
    """

    device_bytes: int
    host_bytes: int
    limit: int | None
    members_at_a_time: int
    candidates_on_host: bool
    rows_at_a_time: int

    def __str__(self) -> str:
        text = f"fit holds {self.device_bytes / _GIB:.2f} GiB on the device"
        if self.limit is not None:
            text += f" of {self.limit / _GIB:.2f}"
        where = "the host" if self.candidates_on_host else "the device"
        return (
            f"{text}, {self.host_bytes / _GIB:.2f} GiB on the host; candidates on"
            f" {where}, {self.members_at_a_time} members at a time,"
            f" {self.rows_at_a_time} rows predicted at a time"
        )


def joint_plan(plans: Iterable[MemoryPlan]) -> MemoryPlan:
    """Return the plan that suits all, one after the other."""
    of_all = list(plans)
    on_host = any(plan.candidates_on_host for plan in of_all)
    return MemoryPlan(
        max(plan.device_bytes for plan in of_all),
        max(plan.host_bytes for plan in of_all),
        of_all[0].limit,
        1 if on_host else min(plan.members_at_a_time for plan in of_all),
        on_host,
        min(plan.rows_at_a_time for plan in of_all),
    )


def plan_memory(
    recipe: Recipe,
    shape: DataShape,
    n: int,
    n_validation: int,
    n_members: int,
    device: torch.device,
    limit: int | None = None,
) -> MemoryPlan:
    """Choose how to fit within a limit.

    Args:
        recipe: What the networks are and how they are trained.
        shape: Columns and target.
        n: Training rows.
        n_validation: Validation rows.
        n_members: Members to fit.
        device: Where.
        limit: Bytes that may be used there; None takes what is free.
    """
    limit = free_bytes(device) if limit is None else limit
    needs = _Needs(recipe, shape, n, n_validation, n_members, device)
    is_cpu = device.type == "cpu"
    chunks = [ROWS_AT_A_TIME["cpu"]] if is_cpu else _CHUNKS
    most = 1 if is_cpu else n_members
    ways = [(k, rows, False) for k in range(most, 0, -1) for rows in chunks]
    if not is_cpu:
        ways += [(1, rows, True) for rows in chunks]
    for members_at_a_time, rows, on_host in ways:
        bytes_ = needs.device_bytes(members_at_a_time, rows, on_host)
        if limit is None or bytes_ <= limit:
            host = needs.host_bytes(on_host)
            return MemoryPlan(bytes_, host, limit, members_at_a_time, on_host, rows)
    least = min(needs.device_bytes(*way) for way in ways)
    raise MemoryLimitError(
        f"fitting {n:,} rows of width {needs.d_in:,} needs {least / _GIB:.2f} GiB on"
        f" {device} at least, however {limit / _GIB if limit else 0:.2f} may be used:"
        " fit on fewer rows, lower batch_size, context_size or width, or raise"
        " memory_limit"
    )


class _Needs:
    """Bytes that a fit needs, part by part."""

    def __init__(
        self,
        recipe: Recipe,
        shape: DataShape,
        n: int,
        n_validation: int,
        n_members: int,
        device: torch.device,
    ) -> None:
        network, self.n, self.m = recipe.network, n, recipe.context_size
        self.device, self.kernels = device, has_triton(device)
        self.hidden, width = network.hidden, network.width
        self.d_in = input_width(shape, network.embedding)
        inputs = points_are_inputs(network, shape)
        self.p = self.d_in if inputs else width
        self.rows = (n + n_validation) * (shape.row_bytes + 4)
        # Points and centred points; a scan pads them, and rounds them once more.
        more = 6 * (self.p + 32) if self.kernels else 4 * self.p
        last = 4 * self.m if keeps_last(n, self.m, device) else 0
        self.points = n * (4 * self.p + more + last)
        # A fitted model on a CPU asks indexes of its members, whom it keeps. Held-out
        # rows become candidates, too.
        self.asked = 0
        if device.type == "cpu":
            n_asked = n + n_validation
            self.asked = n_members * held_bytes(n_asked, self.p)
            self.asked += making_bytes(n_asked, self.p)
        # Lists of candidates that may be near, with room to rank them.
        self.list = 64_000 if self.kernels else 0
        parameters = self.d_in * width + (2 + 4 * network.predictor_blocks) * width**2
        batch = recipe.training.batch_size
        of_row = self.m * self._of_pair() + 64 * (width + self.hidden) + self.list
        self.step = batch * of_row + 16 * parameters
        if not inputs:
            # What an encoder keeps of each row that a step encodes.
            of_encoded = 4 * (3 * self.d_in + 2 * width)
            of_encoded += 4 * network.encoder_blocks * (2 * width + 3 * self.hidden)
            self.step += min(n, batch * self.m) * of_encoded

    def _of_pair(self) -> int:
        """Points, differences and similarities of a pair, forward and backward."""
        of_pair = 4 * (4 * self.p + 8) + (self.hidden // 8 if self.kernels else 8)
        if self.device.type != "cpu" and not self.kernels:
            of_pair += 16 * self.hidden  # activations that no kernel makes again
        return of_pair

    def _of_chunk(self, rows: int) -> int:
        """Bytes of predicting so many rows at a time."""
        scores = 0
        if not self.kernels:  # once as they are, once while they are selected
            most = 2 * SCORE_BYTES.get(self.device.type, SCORE_BYTES["cpu"])
            scores = min(most, 8 * rows * self.n)
        # A CPU reads points in float32, and makes differences in float64 of them.
        of_pair = 24 * self.p + 64 if self.device.type == "cpu" else 16 * self.p + 32
        of_row = self.m * of_pair + 16 * self.hidden + self.list
        return rows * of_row + scores

    def device_bytes(self, members_at_a_time: int, rows: int, on_host: bool) -> int:
        """Bytes on the device; candidates may be kept on the host."""
        chunk = self._of_chunk(rows)
        working = self.step + chunk
        if on_host:
            return int(_SLACK * (working + 16 * self.n))
        fitting = members_at_a_time * (self.points + working)
        return int(_SLACK * (self.rows + max(fitting, self.asked + chunk)))

    def host_bytes(self, on_host: bool) -> int:
        """Bytes on the host beside a device."""
        if self.device.type == "cpu":
            return 0
        return 2 * self.rows + (int(_SLACK * self.n * 8 * self.p) if on_host else 0)


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

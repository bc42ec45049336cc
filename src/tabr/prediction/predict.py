"""Predictions for rows that are no candidates: search, context, network."""

from __future__ import annotations

import torch
from torch import Tensor

from tabr.candidates.device_rules import TaggedRows
from tabr.candidates.point_index import LastNeighbors, PointIndex
from tabr.device.threads import one_thread, whole_pieces
from tabr.network.rows import Rows
from tabr.network.tabr import Output
from tabr.search import Neighbors

ROWS_AT_A_TIME = {"cpu": 256, "cuda": 4096}  # on a CPU their scores stay in cache
_FEW = 8  # rows whose prediction is too little work for threads


def predict(
    index: PointIndex,
    rows: Rows,
    m: int,
    *,
    tagged: TaggedRows | None = None,
    last: LastNeighbors | None = None,
    rows_at_a_time: int | None = None,
) -> tuple[Output, Neighbors]:
    """Return predictions for rows that are no candidates, and their neighbours.

    Args:
        index: The candidates.
        rows: The rows (b,).
        m: Neighbours of a row.
        tagged: What a rule allows the rows.
        last: Neighbours of the same rows at the last call, kept for the next.
        rows_at_a_time: Rows of a chunk; None leaves it to the device.
    """
    device = index.labels.device
    few = rows.n_rows <= _FEW and device.type == "cpu"
    complete = tagged is None and not index.n_removed  # each row finds m
    size = rows_at_a_time or ROWS_AT_A_TIME.get(device.type, 1024)
    outputs, neighbors = [], []
    # Threads may not write into tensors of inference mode; few rows need none.
    splits = device.type == "cpu" and index.network.points_are_inputs and not few
    with torch.inference_mode() if few else torch.no_grad(), whole_pieces(splits):
        for start in range(0, rows.n_rows, size):
            part = rows.take(slice(start, start + size)).to(device)
            part = part.in_precision(index.metric.key.dtype)
            chosen = slice(start, start + part.n_rows)
            near, context = index.nearest(
                index.network.points(part),
                m,
                rules=None if tagged is None else tagged.rules(chosen),
                last=None if last is None else last.of(chosen),
                complete=complete,
            )
            if last is not None:
                last.keep(chosen, near, complete)
            with one_thread(few):
                outputs.append(index.network(part, context, index.metric))
            neighbors.append(near)
        return Output(*_joined(outputs)), Neighbors(*_joined(neighbors))


def _joined(chunks: list[Output] | list[Neighbors]) -> list[Tensor]:
    return [torch.cat(parts) for parts in zip(*chunks, strict=True)]

"""The members of a model: fitted together, asked together.

Arrays come in and arrays go out: estimators on top of this need no tensors, and
importing them does not import torch.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tabr.candidates import CandidateSet
from tabr.config import NetworkConfig, TrainingConfig
from tabr.explanation import NeighborTable
from tabr.fitting import fit_tabr
from tabr.frames import Arrays
from tabr.memory import MemoryPlan, plan_memory
from tabr.network import Output, TabR
from tabr.retrieval import PointIndex, candidate_points, predict
from tabr.rows import Rows
from tabr.samples import Sample
from tabr.search import Neighbors
from tabr.targets import ClassTarget, NumberTarget
from tabr.training import History

Target = NumberTarget | ClassTarget

logger = logging.getLogger(__name__)


@dataclass
class Member:
    """One fitted network of an ensemble, and how its training went."""

    network: TabR
    history: History
    _index: PointIndex | None = field(default=None, repr=False, compare=False)

    def index(self, candidates: CandidateSet) -> PointIndex:
        """Return the candidates, searchable; made at the first call.

        On CPUs it comes with the network in float64, which costs little there and
        keeps a prediction the same however many rows are predicted together.
        """
        if self._index is None:
            points = candidate_points(self.network, candidates.rows)
            # Not where the points are: a GPU's may be kept in host memory.
            if candidates.labels.device.type == "cpu":
                network = copy.deepcopy(self.network).double()
                self._index = PointIndex(network, points)
                self._index.settle()
            else:
                self._index = PointIndex(self.network, points)
        return self._index

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is quickly made again."""
        return {**self.__dict__, "_index": None}


def fit_members(
    network: NetworkConfig,
    training: TrainingConfig,
    target: Target,
    sample: Sample,
    arrays: Arrays,
    validation: Arrays,
    cardinalities: tuple[int, ...],
    context_size: int,
    score: Callable[[NDArray[np.float64]], float],
    *,
    seeds: list[int],
    device: torch.device,
    memory_limit: int | None,
    verbose: bool,
) -> tuple[list[Member], CandidateSet, MemoryPlan]:
    """Fit a network for each seed on the same rows, who become the candidates.

    An interruption keeps what was fitted so far.
    """
    plan = plan_memory(
        network,
        n=len(sample.ids),
        n_validation=len(validation.num),
        row_bytes=4 * (arrays.num.shape[1] + arrays.bin.shape[1])
        + 8 * arrays.cat.shape[1],
        d_in=_input_width(network, arrays, cardinalities),
        m=context_size,
        batch_size=training.batch_size,
        n_members=len(seeds),
        device=device,
        limit=memory_limit,
    )
    logger.info("%s", plan)
    place = torch.device("cpu") if plan.candidates_on_host else device
    rows, rows_val = (Rows.from_arrays(a, place) for a in (arrays, validation))
    labels = torch.from_numpy(target.encode(sample.y)).to(device)
    weights = None
    if sample.weights is not None:
        mean_one = sample.weights / sample.weights.mean()
        weights = torch.from_numpy(mean_one).to(device, torch.float32)
    fitted = fit_tabr(
        network,
        training,
        target.task,
        target.n_classes,
        rows,
        labels,
        weights,
        cardinalities,
        context_size,
        rows_val,
        lambda output: score(decode(output, target)),
        seeds=seeds,
        n_together=plan.n_together,
        rows_at_a_time=plan.rows_at_a_time,
        description=("fit" if len(seeds) == 1 else "member") if verbose else None,
    )
    members = [Member(*parts) for parts in fitted]
    if any(member.history.stopped == "interrupted" for member in members):
        message = "training was interrupted: the best epoch so far is kept"
        warnings.warn(message, stacklevel=3)
    candidates = CandidateSet(sample.ids, sample.frame, sample.y, rows, labels)
    return members, candidates, plan


def ask_members(
    members: list[Member],
    candidates: CandidateSet,
    arrays: Arrays,
    context_size: int,
    recall_target: float | None = None,
    rows_at_a_time: int | None = None,
) -> list[tuple[Output, Neighbors]]:
    """Return what each member says of the rows, and from which neighbours."""
    rows = Rows.from_arrays(arrays, candidates.labels.device)
    how: dict[str, Any] = {
        "m": context_size,
        "recall_target": recall_target,
        "rows_at_a_time": rows_at_a_time,
    }
    return [
        predict(member.index(candidates), candidates.labels, rows, **how)
        for member in members
    ]


def _input_width(
    network: NetworkConfig, arrays: Arrays, cardinalities: tuple[int, ...]
) -> int:
    """Return the width of input vectors, before there is a network."""
    per_number = 1 if network.embedding is None else network.embedding.width
    n_num, n_bin = arrays.num.shape[1], arrays.bin.shape[1]
    return int(n_num * per_number + n_bin + sum(cardinalities))


def decode(output: Tensor, target: Target) -> NDArray[np.float64]:
    """Network outputs (n, outputs) -> values (n,) or probabilities (n, classes)."""
    if isinstance(target, NumberTarget):
        return target.decode(output.cpu().numpy())
    output = output.double()
    if target.task == "binary":
        second = output.sigmoid()
        probabilities = torch.cat([1 - second, second], 1)
    else:
        probabilities = output.softmax(1)
    array: NDArray[np.float64] = probabilities.cpu().numpy()
    return array


def neighbor_table(
    output: Output, neighbors: Neighbors, ids: NDArray[np.int64]
) -> NeighborTable:
    """Return one member's neighbours by id, heaviest first."""
    found = neighbors.found.cpu().numpy()
    weights = output.weights.double().cpu().numpy()
    similarity = output.similarity.double().cpu().numpy()
    order = np.argsort(np.where(found, -weights, np.inf), 1, kind="stable")
    parts = (
        np.where(found, ids[neighbors.position.cpu().numpy()], -1),
        np.where(found, weights, 0.0),
        np.where(found, np.sqrt(np.maximum(-similarity, 0.0)), np.inf),
    )
    return NeighborTable(*(np.take_along_axis(part, order, 1) for part in parts))


def history_table(members: list[Member]) -> pd.DataFrame:
    """Return a line for each member and epoch."""
    parts = []
    for member in members:
        history = member.history
        columns = {
            name: getattr(history, name) for name in ("loss", "score", "seconds")
        }
        part = pd.DataFrame(columns)
        if history.context_change:
            part["context_change"] = [np.nan, *history.context_change]
        parts.append(part)
    table = pd.concat(parts, keys=range(len(parts)), names=["member", "epoch"])
    return table.reset_index()

"""The members of a model: fitted together, asked together.

Arrays come in and arrays go out: estimators on top of this need no tensors, and
importing them does not import torch.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tabr.candidates.candidate_set import CandidateSet
from tabr.candidates.device_rules import RuleIndex
from tabr.candidates.point_index import predict
from tabr.candidates.rules import Rule
from tabr.config import NetworkConfig, TrainingConfig
from tabr.network.rows import Rows
from tabr.network.tabr import Output, TabR
from tabr.prediction.effects import Effects, leave_out
from tabr.prediction.explanation import Explanation, NeighborTable
from tabr.prediction.member_average import join
from tabr.search import Neighbors
from tabr.tables.preprocessor import Arrays, Preprocessor
from tabr.tables.samples import Sample
from tabr.tables.targets import ClassTarget, NumberTarget
from tabr.training.fit import fit_tabr
from tabr.training.loop import History
from tabr.training.memory_plan import MemoryPlan, plan_memory

Target = NumberTarget | ClassTarget

logger = logging.getLogger(__name__)


@dataclass
class Member:
    """One fitted network of an ensemble, and how its training went."""

    network: TabR
    history: History


class MemberOutput(NamedTuple):
    """What a member says of rows, from which neighbours, and what each of them did."""

    output: Output
    neighbors: Neighbors
    effects: Effects | None


def fit_members(
    network: NetworkConfig,
    training: TrainingConfig,
    target: Target,
    sample: Sample,
    arrays: Arrays,
    held_out: Sample,
    validation: Arrays,
    cardinalities: tuple[int, ...],
    context_size: int,
    score: Callable[[NDArray[np.float64]], float],
    *,
    rule: Rule | None,
    seeds: list[int],
    device: torch.device,
    memory_limit: int | None,
    verbose: bool,
    on_epoch: Callable[[int, History], None] | None = None,
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
    labels = encode(sample.y, target).to(device)
    weights = None
    if sample.weights is not None:
        mean_one = sample.weights / sample.weights.mean()
        weights = torch.from_numpy(mean_one).to(device, torch.float32)
    bound, tagged = None, None
    if rule is not None:
        bound = rule.bind(sample.frame)
        on_device = RuleIndex(bound, device)
        tagged = on_device.tag(sample.frame), on_device.tag(held_out.frame)
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
        tagged=tagged,
        n_together=plan.n_together,
        rows_at_a_time=plan.rows_at_a_time,
        on_epoch=on_epoch,
        description=("fit" if len(seeds) == 1 else "member") if verbose else None,
    )
    members = [Member(*parts) for parts in fitted]
    if any(member.history.stopped == "interrupted" for member in members):
        message = "training was interrupted: the best epoch so far is kept"
        warnings.warn(message, stacklevel=3)
    known = sample.ids, sample.frame, sample.y, rows, labels
    next_id = int(max(sample.ids.max(), held_out.ids.max())) + 1
    return members, CandidateSet(*known, bound, next_id), plan


def join_held_out(
    candidates: CandidateSet, held_out: Sample, arrays: Arrays, target: Target
) -> CandidateSet:
    """Return the candidates with rows that were held out, in the order of ids."""
    place, device = candidates.rows.num.device, candidates.labels.device
    new = Rows.from_arrays(arrays, place)
    ids = np.concatenate([candidates.ids, held_out.ids])
    order = np.argsort(ids, kind="stable")
    known = Sample(candidates.ids, candidates.frame, candidates.y)
    sample = known.joined(held_out).take(order)
    index = torch.from_numpy(order)
    rows = Rows(*(torch.cat(p) for p in zip(candidates.rows, new, strict=True)))
    labels = torch.cat([candidates.labels, encode(held_out.y, target).to(device)])
    bound = candidates.rule
    return CandidateSet(
        sample.ids,
        sample.frame,
        sample.y,
        rows.take(index.to(place)),
        labels[index.to(device)],
        None if bound is None else bound.rule.bind(sample.frame),
        candidates.next_id,
    )


def ask_members(
    members: list[Member],
    candidates: CandidateSet,
    frame: pd.DataFrame,
    arrays: Arrays,
    context_size: int,
    rows_at_a_time: int | None = None,
    *,
    effects: bool = False,
) -> list[MemberOutput]:
    """Return what each member says of the rows, and from which neighbours."""
    rows = Rows.from_arrays(arrays, candidates.labels.device)
    rule = candidates.rule_index()
    how: dict[str, Any] = {
        "m": context_size,
        "rows_at_a_time": rows_at_a_time,
        "tagged": None if rule is None else rule.tag(frame),
    }
    answers = []
    for member in members:
        index = candidates.index_of(member.network)
        output, neighbors = predict(index, candidates.labels, rows, **how)
        of_each = None
        if effects:
            of_each = leave_out(index, candidates.labels, rows, neighbors)
        answers.append(MemberOutput(output, neighbors, of_each))
    return answers


def prepare(
    frame: pd.DataFrame, y: NDArray[Any], preprocessor: Preprocessor, target: Target
) -> tuple[Rows, Tensor]:
    """Return labelled rows as networks read them, in host memory."""
    rows = Rows.from_arrays(preprocessor.transform(frame), torch.device("cpu"))
    return rows, encode(y, target)


def encode(y: NDArray[Any], target: Target) -> Tensor:
    """Return the labels as networks read them (n,), in host memory."""
    return torch.from_numpy(target.encode(y))


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
    answers: list[MemberOutput], candidates: CandidateSet
) -> NeighborTable:
    """Return neighbours by id, heaviest first: the means of what members say."""
    position, joined = join(
        [_position(a) for a in answers],
        {"weights": [a.output.weights.double() for a in answers]},
        {"distances": [_distances(a) for a in answers]},
    )
    return _table(position, joined, candidates)


def _position(answer: MemberOutput) -> Tensor:
    """Return the positions of neighbours (n, m), -1 for nobody."""
    position, found = answer.neighbors
    return torch.where(found, position, -1)


def _distances(answer: MemberOutput) -> Tensor:
    return (-answer.output.similarity.double()).clamp_min(0.0).sqrt()


def _table(
    position: Tensor, joined: dict[str, Tensor], candidates: CandidateSet
) -> NeighborTable:
    places = position.cpu().numpy()
    there = places >= 0
    return NeighborTable(
        np.where(there, candidates.ids_at(places), -1),
        joined["weights"].cpu().numpy(),
        np.where(there, joined["distances"].cpu().numpy(), np.inf),
    )


def explain(
    frame: pd.DataFrame,
    candidates: CandidateSet,
    answers: list[MemberOutput],
    target: Target,
) -> Explanation:
    """Return where predictions came from, in the user's columns and units."""
    parts = [decode(a.output.prediction, target) for a in answers]
    predictions: NDArray[np.float64] = np.mean(parts, axis=0)
    chosen: NDArray[Any] | None = None  # columns of the predicted classes
    if isinstance(target, ClassTarget):
        chosen = predictions.argmax(1)
    shared: dict[str, list[Tensor]] = {"weights": [], "effects": []}
    own: dict[str, list[Tensor]] = {"distances": []}
    alone = []
    for answer in answers:
        assert answer.effects is not None
        with_all = _of_class(decode(answer.output.prediction, target), chosen)
        n, m, n_outputs = answer.effects.without.shape
        without = decode(answer.effects.without.reshape(n * m, n_outputs), target)
        many = None if chosen is None else np.repeat(chosen, m)
        effects = with_all[:, None] - _of_class(without, many).reshape(n, m)
        weights = answer.output.weights.double()
        shared["weights"].append(weights)
        shared["effects"].append(torch.from_numpy(effects).to(weights.device))
        own["distances"].append(_distances(answer))
        alone.append(_of_class(decode(answer.effects.alone, target), chosen))
        if answer.effects.correction is not None:
            assert isinstance(target, NumberTarget)
            units = answer.effects.correction.double() * target.std
            own.setdefault("corrections", []).append(units)
    position, joined = join([_position(a) for a in answers], shared, own)
    table = _table(position, joined, candidates)
    corrections = joined.get("corrections")
    known = np.unique(table.ids[table.ids >= 0])
    y = candidates.y
    if isinstance(target, ClassTarget):
        shares = np.bincount(target.encode(y), minlength=target.n_classes) / len(y)
        usual = shares[chosen]
        given = target.decode(predictions)
    else:
        usual = np.full(len(frame), float(np.mean(y)))
        given = predictions
    return Explanation(
        rows=frame,
        answers=given,
        predictions=_of_class(predictions, chosen),
        alone=np.mean(alone, axis=0),
        usual=usual,
        table=table,
        labels=candidates.y_of(table.ids),
        effects=joined["effects"].cpu().numpy(),
        corrections=None if corrections is None else corrections.cpu().numpy(),
        neighbors=candidates.look_up(known),
        probabilities=None if chosen is None else predictions,
    )


def _of_class(
    predictions: NDArray[np.float64], classes: NDArray[Any] | None
) -> NDArray[np.float64]:
    """Return values (n,), or the probabilities (n,) of one class for each row."""
    if classes is None:
        return predictions
    return np.take_along_axis(predictions, classes[:, None], 1)[:, 0]


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

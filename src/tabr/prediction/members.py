"""What the members of a model say of rows, each alone and all as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy, where

from tabr.candidates.candidate_set import CandidateSet
from tabr.network.rows import Rows
from tabr.network.tabr import Output, TabR
from tabr.prediction.effects import Effects, leave_out
from tabr.prediction.explanation import Explanation, MemberTable, NeighborTable
from tabr.prediction.member_average import join
from tabr.prediction.predict import predict
from tabr.search import Neighbors
from tabr.tables.preprocessor import EncodedRows
from tabr.tables.targets import Target

Floats = NDArray[np.float64]


class MemberOutput(NamedTuple):
    """What a member says of rows, from which neighbours, and what each of them did.

    Its weight is that in the mean of all, before they are made to sum to one.
    """

    output: Output
    neighbors: Neighbors
    effects: Effects | None
    weight: float = 1.0


@dataclass(frozen=True)
class Reading:
    """How outputs of networks become predictions.

    Attributes:
        target: What outputs mean.
        temperature: What the logits of classes are divided by.
        limits: The smallest and the largest value that may be predicted, or None.
    """

    target: Target
    temperature: float = 1.0
    limits: tuple[float, float] | None = None

    def predictions(self, outputs: Tensor) -> Floats:
        """Return values (n,) or probabilities (n, classes) from outputs (n, k)."""
        numbers = outputs.cpu().numpy()
        if self.target.classes is not None:
            return self.target.predictions(numbers / self.temperature)
        values = self.target.predictions(numbers)
        return values if self.limits is None else values.clip(*self.limits)


def ask_members(
    networks: Sequence[TabR],
    candidates: CandidateSet,
    encoded: EncodedRows,
    m: int,
    *,
    weights: Sequence[float] | None = None,
    rows_at_a_time: int | None = None,
    effects: bool = False,
) -> list[MemberOutput]:
    """Return what each network says of the rows, from m neighbours.

    Args:
        networks: The members' networks.
        candidates: Who may be retrieved.
        encoded: The rows.
        m: Neighbours of a row.
        weights: How much each counts; None counts all alike.
        rows_at_a_time: Rows of a chunk; None leaves it to the device.
        effects: Whether to predict without each neighbour, too.
    """
    rows = Rows.from_arrays(encoded.arrays, candidates.labels.device)
    rule = candidates.rule_index()
    tagged = None if rule is None else rule.tag(encoded.frame)
    weights = [1.0] * len(networks) if weights is None else weights
    outputs = []
    for network, weight in zip(networks, weights, strict=True):
        index = candidates.index_of(network)
        output, near = predict(
            index, rows, m, tagged=tagged, rows_at_a_time=rows_at_a_time
        )
        measured = output.similarity
        of_each = leave_out(index, rows, near, measured) if effects else None
        outputs.append(MemberOutput(output, near, of_each, weight))
    return outputs


def mean_prediction(outputs: Sequence[MemberOutput], reading: Reading) -> Floats:
    """Return the mean of the members' values (n,) or probabilities (n, classes)."""
    return _mean([reading.predictions(o.output.prediction) for o in outputs], outputs)


def _mean(of_each: Sequence[Floats], outputs: Sequence[MemberOutput]) -> Floats:
    """Return the mean of what members say, each by its weight."""
    # One after the other: numpy's order would depend on how many rows there are.
    total: Floats = np.zeros_like(of_each[0])
    with np.errstate(over="ignore"):
        for part, output in zip(of_each, outputs, strict=True):
            total += part * output.weight
    mean = total / sum(output.weight for output in outputs)
    # Rounding may move a mean beyond its parts: of equal ones it is what they are.
    bounded: Floats = mean.clip(np.min(of_each, axis=0), np.max(of_each, axis=0))
    return bounded


def neighbor_table(
    outputs: Sequence[MemberOutput], candidates: CandidateSet
) -> NeighborTable:
    """Return neighbours by id, heaviest first: the means of what members say."""
    position, joined = join(
        [_position(o) for o in outputs],
        {"weights": [o.output.weights.double() for o in outputs]},
        {"distances": [_distances(o) for o in outputs]},
        [o.weight for o in outputs],
    )
    return _table(position, joined, candidates)


def _position(output: MemberOutput) -> Tensor:
    """Return the positions of neighbours (n, m), -1 for nobody."""
    position, found = output.neighbors
    return where(found, position, -1)


def _distances(output: MemberOutput) -> Tensor:
    return (-output.output.similarity.double()).clamp_min(0.0).sqrt()


def _table(
    position: Tensor, joined: dict[str, Tensor], candidates: CandidateSet
) -> NeighborTable:
    positions = position.cpu().numpy()
    exists = positions >= 0
    return NeighborTable(
        np.where(exists, candidates.ids_at(positions), -1),
        joined["weights"].cpu().numpy(),
        np.where(exists, joined["distances"].cpu().numpy(), np.inf),
    )


def explain(
    encoded: EncodedRows,
    candidates: CandidateSet,
    outputs: Sequence[MemberOutput],
    reading: Reading,
    names: Sequence[str],
) -> Explanation:
    """Return where predictions came from, in the user's columns and units.

    Of classes it is the probability of the predicted one that is explained. The names
    are those of the members' recipes.
    """
    target = reading.target
    of_each = [reading.predictions(o.output.prediction) for o in outputs]
    predictions = _mean(of_each, outputs)
    chosen = target.chosen(predictions)
    shared: dict[str, list[Tensor]] = {"weights": [], "effects": []}
    by_member: dict[str, list[Tensor]] = {"distances": []}
    alone = []
    for output in outputs:
        assert output.effects is not None
        weights, correction = output.output.weights.double(), output.effects.correction
        shared["weights"].append(weights)
        shared["effects"].append(_effects(output, reading, chosen).to(weights.device))
        by_member["distances"].append(_distances(output))
        alone.append(_column(reading.predictions(output.effects.alone), chosen))
        if correction is not None:
            units = correction.double() * target.scale
            by_member.setdefault("corrections", []).append(units)
    shares = [o.weight for o in outputs]
    position, joined = join([_position(o) for o in outputs], shared, by_member, shares)
    table = _table(position, joined, candidates)
    corrections = joined.get("corrections")
    usual = np.broadcast_to(target.usual(candidates.y), predictions.shape)
    return Explanation(
        rows=encoded.frame,
        answers=target.answers(predictions),
        predictions=_column(predictions, chosen),
        alone=_mean(alone, outputs),
        usual=_column(usual, chosen),
        table=table,
        labels=candidates.y_of(table.ids),
        effects=joined["effects"].cpu().numpy(),
        corrections=None if corrections is None else corrections.cpu().numpy(),
        neighbors=candidates.look_up(np.unique(table.ids[table.ids >= 0])),
        probabilities=None if chosen is None else predictions,
        members=MemberTable(
            tuple(names),
            np.asarray(shares) / sum(shares),
            np.stack([_column(part, chosen) for part in of_each], 1),
        ),
    )


def _effects(
    output: MemberOutput, reading: Reading, chosen: NDArray[np.int64] | None
) -> Tensor:
    """Return predictions minus those without each neighbour, (n, m)."""
    assert output.effects is not None
    n, m, n_outputs = output.effects.without.shape
    with_all = _column(reading.predictions(output.output.prediction), chosen)
    without = reading.predictions(output.effects.without.reshape(n * m, n_outputs))
    repeated = None if chosen is None else np.repeat(chosen, m)
    return from_numpy(with_all[:, None] - _column(without, repeated).reshape(n, m))


def _column(predictions: Floats, chosen: NDArray[np.int64] | None) -> Floats:
    """Return values (n,), or the probabilities (n,) of one class for each row."""
    if chosen is None:
        return predictions
    return np.take_along_axis(predictions, chosen[:, None], 1)[:, 0]

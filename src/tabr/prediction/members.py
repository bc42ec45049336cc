"""What the members of a model say of rows, each alone and all as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy, where

from tabr.candidates.candidate_set import CandidateSet
from tabr.network.rows import Rows
from tabr.network.tabr import Output, TabR
from tabr.prediction.effects import Effects, leave_out
from tabr.prediction.explanation import Explanation, NeighborTable
from tabr.prediction.member_average import join
from tabr.prediction.predict import predict
from tabr.search import Neighbors
from tabr.tables.preprocessor import EncodedRows
from tabr.tables.targets import Target

Floats = NDArray[np.float64]


class MemberOutput(NamedTuple):
    """What a member says of rows, from which neighbours, and what each of them did."""

    output: Output
    neighbors: Neighbors
    effects: Effects | None


def ask_members(
    networks: Sequence[TabR],
    candidates: CandidateSet,
    encoded: EncodedRows,
    m: int,
    *,
    rows_at_a_time: int | None = None,
    effects: bool = False,
) -> list[MemberOutput]:
    """Return what each network says of the rows, from m neighbours.

    Args:
        networks: The members' networks.
        candidates: Who may be retrieved.
        encoded: The rows.
        m: Neighbours of a row.
        rows_at_a_time: Rows of a chunk; None leaves it to the device.
        effects: Whether to predict without each neighbour, too.
    """
    rows = Rows.from_arrays(encoded.arrays, candidates.labels.device)
    rule = candidates.rule_index()
    tagged = None if rule is None else rule.tag(encoded.frame)
    outputs = []
    for network in networks:
        index = candidates.index_of(network)
        output, near = predict(
            index, rows, m, tagged=tagged, rows_at_a_time=rows_at_a_time
        )
        of_each = leave_out(index, rows, near) if effects else None
        outputs.append(MemberOutput(output, near, of_each))
    return outputs


def mean_prediction(outputs: Sequence[MemberOutput], target: Target) -> Floats:
    """Return the mean of the members' values (n,) or probabilities (n, classes)."""
    of_each = [_predictions(o.output.prediction, target) for o in outputs]
    mean: Floats = np.mean(of_each, axis=0)
    return mean


def _predictions(outputs: Tensor, target: Target) -> Floats:
    return target.predictions(outputs.cpu().numpy())


def neighbor_table(
    outputs: Sequence[MemberOutput], candidates: CandidateSet
) -> NeighborTable:
    """Return neighbours by id, heaviest first: the means of what members say."""
    position, joined = join(
        [_position(o) for o in outputs],
        {"weights": [o.output.weights.double() for o in outputs]},
        {"distances": [_distances(o) for o in outputs]},
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
    target: Target,
) -> Explanation:
    """Return where predictions came from, in the user's columns and units.

    Of classes it is the probability of the predicted one that is explained.
    """
    predictions = mean_prediction(outputs, target)
    chosen = target.chosen(predictions)
    shared: dict[str, list[Tensor]] = {"weights": [], "effects": []}
    by_member: dict[str, list[Tensor]] = {"distances": []}
    alone = []
    for output in outputs:
        assert output.effects is not None
        weights, correction = output.output.weights.double(), output.effects.correction
        shared["weights"].append(weights)
        shared["effects"].append(_effects(output, target, chosen).to(weights.device))
        by_member["distances"].append(_distances(output))
        alone.append(_column(_predictions(output.effects.alone, target), chosen))
        if correction is not None:
            units = correction.double() * target.scale
            by_member.setdefault("corrections", []).append(units)
    position, joined = join([_position(o) for o in outputs], shared, by_member)
    table = _table(position, joined, candidates)
    corrections = joined.get("corrections")
    usual = np.broadcast_to(target.usual(candidates.y), predictions.shape)
    return Explanation(
        rows=encoded.frame,
        answers=target.answers(predictions),
        predictions=_column(predictions, chosen),
        alone=np.mean(alone, axis=0),
        usual=_column(usual, chosen),
        table=table,
        labels=candidates.y_of(table.ids),
        effects=joined["effects"].cpu().numpy(),
        corrections=None if corrections is None else corrections.cpu().numpy(),
        neighbors=candidates.look_up(np.unique(table.ids[table.ids >= 0])),
        probabilities=None if chosen is None else predictions,
    )


def _effects(
    output: MemberOutput, target: Target, chosen: NDArray[np.int64] | None
) -> Tensor:
    """Return predictions minus those without each neighbour, (n, m)."""
    assert output.effects is not None
    n, m, n_outputs = output.effects.without.shape
    with_all = _column(_predictions(output.output.prediction, target), chosen)
    without = _predictions(output.effects.without.reshape(n * m, n_outputs), target)
    repeated = None if chosen is None else np.repeat(chosen, m)
    return from_numpy(with_all[:, None] - _column(without, repeated).reshape(n, m))


def _column(predictions: Floats, chosen: NDArray[np.int64] | None) -> Floats:
    """Return values (n,), or the probabilities (n,) of one class for each row."""
    if chosen is None:
        return predictions
    return np.take_along_axis(predictions, chosen[:, None], 1)[:, 0]

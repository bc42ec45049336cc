"""What held-out rows teach about members: weights, a temperature, how sure they are.

Each row is predicted by the members that held it out, from the candidates that these
learned from. Recipes are compared on the rows of all folds together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tabr.candidates.candidate_set import CandidateSet
from tabr.prediction.blend import blend_weights, temperature
from tabr.prediction.members import (
    MemberOutput,
    Reading,
    ask_members,
    mean_prediction,
    neighbor_table,
)
from tabr.prediction.uncertainty import (
    MOST_ROWS,
    Calibration,
    Signals,
    calibrate,
    joined,
)
from tabr.tables.frame import random_rows
from tabr.tables.samples import EncodedSample
from tabr.tables.targets import Target
from tabr.training.fit import Member
from tabr.training.members import Fitted, Fold

Floats = NDArray[np.float64]


class Pack(NamedTuple):
    """Members as they are asked together.

    Attributes:
        members: Those that count, with their weights.
        temperature: What the logits of classes are divided by.
        calibration: What the rows that were held out taught about errors.
    """

    members: list[Member]
    temperature: float
    calibration: Calibration


class _Asked(NamedTuple):
    """What the members of a fold say of rows that it held out."""

    rows: EncodedSample
    candidates: CandidateSet
    members: list[Member]
    outputs: list[MemberOutput]
    limits: tuple[float, float] | None

    def of_recipe(self, name: str) -> list[MemberOutput]:
        """Return what the members of a recipe say."""
        pairs = zip(self.members, self.outputs, strict=True)
        return [output for member, output in pairs if member.recipe == name]

    def weighted(self, weight_of: Mapping[str, float]) -> list[MemberOutput]:
        """Return the outputs by the weights of their recipes; none of weight zero.

        If all had weight zero, they count alike.
        """
        outputs = [
            output._replace(weight=weight / len(of_one))
            for name, weight in weight_of.items()
            if weight > 0
            for of_one in (self.of_recipe(name),)
            for output in of_one
        ]
        return outputs or self.outputs


def make_pack(
    fitted: Fitted,
    folds: Sequence[Fold],
    target: Target,
    m: int,
    *,
    blends: bool,
    is_bounded: bool,
) -> Pack:
    """Return the members as one.

    Args:
        fitted: The members and all candidates.
        folds: Who held out what.
        target: What outputs mean.
        m: Neighbours of a row.
        blends: Whether members are weighted and tempered; else all are alike.
        is_bounded: Whether values stay within those of the candidates.
    """
    numbers = sorted({member.fold for member in fitted.members})
    asked = [_ask(fitted, folds[k], k, m, is_bounded) for k in numbers]
    recipes = list(dict.fromkeys(member.recipe for member in fitted.members))
    weight_of = dict.fromkeys(recipes, 1.0)
    best_temperature = 1.0
    if blends:
        if len(recipes) > 1:
            weight_of = _recipe_weights(asked, recipes, target)
        if target.classes is not None:
            codes = np.concatenate([part.rows.labels for part in asked])
            best_temperature = temperature(
                lambda t: np.concatenate(
                    [_predictions(part, weight_of, target, t) for part in asked]
                ),
                codes,
            )
            if any(folds[k].learned is not None for k in numbers):
                # The mean of all members is less sure than that of the few who held
                # a row out: it may need to be sharpened, but not to be softened.
                best_temperature = min(best_temperature, 1.0)
    members = []
    for member in fitted.members:
        n_alike = sum(other.recipe == member.recipe for other in fitted.members)
        weight = weight_of[member.recipe]
        if len(recipes) > 1:  # members of one recipe alone all count one
            weight /= n_alike
        if weight > 0:
            members.append(replace(member, weight=weight))
    signals = [_signals(part, weight_of, target, best_temperature) for part in asked]
    y = np.concatenate([part.rows.sample.y for part in asked])
    return Pack(members, best_temperature, calibrate(joined(signals), y, target))


def _ask(fitted: Fitted, fold: Fold, number: int, m: int, is_bounded: bool) -> _Asked:
    """Ask the members of a fold."""
    members = [member for member in fitted.members if member.fold == number]
    n_folds = len({member.fold for member in fitted.members})
    rows, most = fold.held_out, -(-MOST_ROWS // n_folds)
    if len(rows) > most:
        rows = rows.take(random_rows(len(rows), most))
    candidates = fitted.candidates
    if fold.learned is not None:
        candidates = candidates.taken(fold.learned)
    networks = [member.network for member in members]
    size = fitted.plan.rows_at_a_time
    outputs = ask_members(networks, candidates, rows.rows, m, rows_at_a_time=size)
    limits = candidates.limits if is_bounded else None
    return _Asked(rows, candidates, members, outputs, limits)


def _predictions(
    asked: _Asked, weight_of: Mapping[str, float], target: Target, t: float = 1.0
) -> Floats:
    reading = Reading(target, t, asked.limits)
    return mean_prediction(asked.weighted(weight_of), reading)


def _recipe_weights(
    asked: Sequence[_Asked], recipes: Sequence[str], target: Target
) -> dict[str, float]:
    """Return the weight of each recipe, learned where all of them can be compared."""
    whole = [part for part in asked if all(map(part.of_recipe, recipes))]
    if not whole:
        return dict.fromkeys(recipes, 1 / len(recipes))
    predictions = [
        np.concatenate([_predictions(part, {name: 1.0}, target) for part in whole])
        for name in recipes
    ]
    y = np.concatenate([part.rows.sample.y for part in whole])
    codes = np.concatenate([part.rows.labels for part in whole])
    is_class = target.classes is not None
    weights = blend_weights(np.stack(predictions), y, codes if is_class else None)
    return dict(zip(recipes, weights.tolist(), strict=True))


def _signals(
    asked: _Asked, weight_of: Mapping[str, float], target: Target, t: float
) -> Signals:
    outputs = asked.weighted(weight_of)
    table = neighbor_table(outputs, asked.candidates)
    predictions = mean_prediction(outputs, Reading(target, t, asked.limits))
    return Signals(predictions, table, asked.candidates.y_of(table.ids))

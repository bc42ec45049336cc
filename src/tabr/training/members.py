"""The members of a model, fitted on one sample within the memory there is."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tabr.candidates.candidate_set import CandidateSet
from tabr.candidates.device_rules import RuleIndex, warn_of_lonely
from tabr.candidates.rules import BoundRule, Rules
from tabr.config import Recipe
from tabr.metrics import Score
from tabr.network.rows import Rows
from tabr.tables.samples import EncodedSample, Sample
from tabr.tables.shape import DataShape
from tabr.tables.targets import Target
from tabr.training.contexts import TrainingRows
from tabr.training.fit import Member, MemberSpec, OnEpoch, ValidationRows, fit_tabr
from tabr.training.memory_plan import MemoryPlan, joint_plan, plan_memory

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FitOptions:
    """How a fit is run; nothing of it belongs to the model.

    Attributes:
        seeds: One for each member.
        device: Where to compute.
        memory_limit: Bytes that may be used there; None takes what is free.
        verbose: Whether to show progress.
        on_epoch: Called after each epoch with a member's number and its history.
        deadline: When to be done, as `time.perf_counter` tells it; None is never.
    """

    seeds: list[int]
    device: torch.device
    memory_limit: int | None = None
    verbose: bool = False
    on_epoch: OnEpoch | None = None
    deadline: float | None = None


@dataclass(frozen=True)
class Fold:
    """Rows that some members do not learn from.

    Attributes:
        held_out: The rows, by which these members stop early.
        score: The score of predictions for them, larger is better.
        learned: Positions (k,) in the sample of the rows that they learn from; None is
            all, where the rows that are held out are no part of the sample.
    """

    held_out: EncodedSample
    score: Score
    learned: NDArray[np.int64] | None = None


class Fitted(NamedTuple):
    """What a fit leaves behind.

    Attributes:
        members: The members that were fitted.
        candidates: All rows of the sample.
        plan: How the memory was used.
    """

    members: list[Member]
    candidates: CandidateSet
    plan: MemoryPlan


def fit_members(
    recipes: Sequence[Recipe],
    shape: DataShape,
    target: Target,
    train: EncodedSample,
    folds: Sequence[Fold],
    rules: Rules,
    options: FitOptions,
) -> Fitted:
    """Fit members of each recipe on rows of one sample, who become the candidates.

    There are as many of each recipe, in turn one for each fold. An interruption keeps
    what was fitted so far.

    Args:
        recipes: What the networks are and how they are trained.
        shape: Columns and target.
        target: What outputs mean.
        train: Rows to learn from.
        folds: Who holds out what.
        rules: Who may be whose neighbour.
        options: Seeds, device, limits, progress.
    """
    device, of_recipe = options.device, len(options.seeds) // len(recipes)
    n_held_out = max(len(fold.held_out) for fold in folds)
    sizes = len(train), n_held_out, of_recipe
    plan = joint_plan(
        plan_memory(recipe, shape, *sizes, device, options.memory_limit)
        for recipe in recipes
    )
    logger.info("%s", plan)
    place = torch.device("cpu") if plan.candidates_on_host else device
    sample = train.sample
    bound = _bound(rules, sample)
    rows, labels = Rows.from_arrays(train.arrays, place), torch.from_numpy(train.labels)
    data = TrainingRows(rows, labels.to(device), _mean_one(train, device))
    parts = [_fold_rows(fold, data, sample, bound, target) for fold in folds]
    specs = [
        MemberSpec(recipes[k // of_recipe], *parts[fold], seed, fold)
        for k, seed in enumerate(options.seeds)
        for fold in (k % of_recipe % len(folds),)
    ]
    title = "fit" if len(specs) == 1 else "member"
    members = fit_tabr(
        specs,
        shape,
        plan=plan,
        on_epoch=options.on_epoch,
        description=title if options.verbose else None,
        deadline=options.deadline,
    )
    if any(member.history.stopped == "interrupted" for member in members):
        message = "training was interrupted: the best epoch so far is kept"
        warnings.warn(message, stacklevel=3)
    last_ids = [sample.ids.max(), *(fold.held_out.sample.ids.max() for fold in folds)]
    next_id = int(max(last_ids)) + 1
    about = sample.ids, sample.frame, sample.y, rows, data.labels
    candidates = CandidateSet(*about, bound[1], next_id)
    return Fitted(members, candidates, plan)


def _bound(rules: Rules, sample: Sample) -> list[BoundRule | None]:
    """Return the rules, each bound once to the sample's rows."""
    bound = {
        rule: None if rule is None else rule.bind(sample.frame)
        for rule in dict.fromkeys(rules)
    }
    in_training = bound[rules.in_training]
    if in_training is not None:
        warn_of_lonely(in_training, sample.frame, stacklevel=4)
    return [bound[rule] for rule in rules]


def _fold_rows(
    fold: Fold,
    data: TrainingRows,
    sample: Sample,
    bound: Sequence[BoundRule | None],
    target: Target,
) -> tuple[TrainingRows, ValidationRows]:
    """Return what a fold's members learn from, and what they stop early by.

    Rules are bound for training rows and for those that are held out.
    """
    device, learned = data.labels.device, fold.learned
    held_out, score = fold.held_out, fold.score
    part = None if learned is None else torch.from_numpy(learned).to(device)
    indices = {
        rule: _rule_index(rule, learned, device) for rule in dict.fromkeys(bound)
    }
    tagged, tagged_held_out = (
        None if index is None else index.tag(rows.frame)
        for index, rows in zip(
            map(indices.get, bound), (sample, held_out.sample), strict=True
        )
    )
    validation = ValidationRows(
        Rows.from_arrays(held_out.arrays, data.rows.num.device),
        lambda outputs: score(target.predictions(outputs.cpu().numpy())),
        tagged_held_out,
    )
    return replace(data, tagged=tagged, part=part), validation


def _rule_index(
    bound: BoundRule | None, learned: NDArray[np.int64] | None, device: torch.device
) -> RuleIndex | None:
    """Return a rule on the device, for the candidates learned from."""
    if bound is None:
        return None
    return RuleIndex(bound if learned is None else bound.taken(learned), device)


def _mean_one(train: EncodedSample, device: torch.device) -> Tensor | None:
    """Return the sample's weights (n,), scaled to a mean of one."""
    weights = train.sample.weights
    if weights is None:
        return None
    return torch.from_numpy(weights / weights.mean()).to(device, torch.float32)


def history_table(members: list[Member]) -> pd.DataFrame:
    """Return a line for each member and epoch."""
    parts = []
    for member in members:
        history = member.history
        names = ("loss", "score", "seconds")
        part = pd.DataFrame({name: getattr(history, name) for name in names})
        if history.context_change:
            part["context_change"] = [np.nan, *history.context_change]
        parts.append(part)
    table = pd.concat(parts, keys=range(len(parts)), names=["member", "epoch"])
    return table.reset_index()

"""The members of a model, fitted on one sample within the memory there is."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tabr.candidates.candidate_set import CandidateSet
from tabr.candidates.device_rules import RuleIndex
from tabr.candidates.rules import Rule
from tabr.config import Recipe
from tabr.metrics import Score
from tabr.network.rows import Rows
from tabr.tables.samples import EncodedSample
from tabr.tables.shape import DataShape
from tabr.tables.targets import Target
from tabr.training.contexts import TrainingRows
from tabr.training.fit import Member, OnEpoch, ValidationRows, fit_tabr
from tabr.training.memory_plan import MemoryPlan, plan_memory

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
    """

    seeds: list[int]
    device: torch.device
    memory_limit: int | None = None
    verbose: bool = False
    on_epoch: OnEpoch | None = None


class Fitted(NamedTuple):
    """What a fit leaves behind."""

    members: list[Member]
    candidates: CandidateSet
    plan: MemoryPlan


def fit_members(
    recipe: Recipe,
    shape: DataShape,
    target: Target,
    train: EncodedSample,
    held_out: EncodedSample,
    score: Score,
    rule: Rule | None,
    options: FitOptions,
) -> Fitted:
    """Fit a network for each seed on the same rows, who become the candidates.

    An interruption keeps what was fitted so far.

    Args:
        recipe: What the networks are and how they are trained.
        shape: Columns and target.
        target: What outputs mean.
        train: Rows to learn from.
        held_out: Rows to stop early by.
        score: The score of predictions for them, larger is better.
        rule: Who may be whose neighbour; None allows all.
        options: Seeds, device, limits, progress.
    """
    device, n_members = options.device, len(options.seeds)
    sizes = len(train), len(held_out), n_members
    plan = plan_memory(recipe, shape, *sizes, device, options.memory_limit)
    logger.info("%s", plan)
    place = torch.device("cpu") if plan.candidates_on_host else device
    sample = train.sample
    bound, tagged, tagged_held_out = None, None, None
    if rule is not None:
        bound = rule.bind(sample.frame)
        on_device = RuleIndex(bound, device)
        tagged = on_device.tag(sample.frame)
        tagged_held_out = on_device.tag(held_out.sample.frame)
    rows, labels = Rows.from_arrays(train.arrays, place), torch.from_numpy(train.labels)
    data = TrainingRows(rows, labels.to(device), _mean_one(train, device), tagged)
    validation = ValidationRows(
        Rows.from_arrays(held_out.arrays, place),
        lambda outputs: score(target.predictions(outputs.cpu().numpy())),
        tagged_held_out,
    )
    title = "fit" if n_members == 1 else "member"
    members = fit_tabr(
        recipe,
        shape,
        data,
        validation,
        options.seeds,
        plan=plan,
        on_epoch=options.on_epoch,
        description=title if options.verbose else None,
    )
    if any(member.history.stopped == "interrupted" for member in members):
        message = "training was interrupted: the best epoch so far is kept"
        warnings.warn(message, stacklevel=3)
    next_id = int(max(sample.ids.max(), held_out.sample.ids.max())) + 1
    parts = sample.ids, sample.frame, sample.y, rows, data.labels
    return Fitted(members, CandidateSet(*parts, bound, next_id), plan)


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

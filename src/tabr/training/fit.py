"""Fit TabR: build networks, and train them as one or one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from tabr.candidates.device_rules import TaggedRows
from tabr.candidates.point_index import no_memory, predict
from tabr.config import NetworkConfig, Task, TrainingConfig
from tabr.device.cuda_graphs import Lane
from tabr.network.rows import Rows
from tabr.network.tabr import TabR
from tabr.training.contexts import ContextChange, Contexts
from tabr.training.loop import History, Job, fit_networks, seeded
from tabr.training.losses import BatchLoss
from tabr.training.stacked_networks import StackedLosses, part_storage, share_storage


def fit_tabr(
    config: NetworkConfig,
    training: TrainingConfig,
    task: Task,
    n_classes: int,
    rows: Rows,
    labels: Tensor,
    weights: Tensor | None,
    cardinalities: tuple[int, ...],
    m: int,
    validation: Rows,
    score: Callable[[Tensor], float],
    *,
    seeds: Sequence[int],
    tagged: tuple[TaggedRows, TaggedRows] | None = None,
    n_together: int | None = None,
    rows_at_a_time: int | None = None,
    on_epoch: Callable[[int, History], None] | None = None,
    description: str | None = None,
) -> list[tuple[TabR, History]]:
    """Build networks and train them: on a GPU as one, elsewhere one by one.

    Args:
        config: Shape of the networks.
        training: How they are trained.
        task: Which loss.
        n_classes: Classes, or 0.
        rows: Training rows, who are also the candidates.
        labels: Their encoded labels (n,).
        weights: Weights (n,) of their losses, of mean one; None weighs all alike.
        cardinalities: Levels of each categorical column.
        m: Neighbours of a row.
        validation: Validation rows.
        score: The score of predictions (n_validation, outputs), larger is better.
        seeds: One for each network: the same seed gives the same network on the same
            device, up to rounding whoever is trained beside it.
        tagged: What a rule allows the training and the validation rows.
        n_together: Networks trained at the same time on a GPU; None means all.
        rows_at_a_time: Rows of a chunk of predictions; None leaves it to the device.
        on_epoch: Called after each epoch with a network's place in `seeds` and its
            history so far.
        description: Title of a progress bar; None shows none.
    """
    device = labels.device
    own, others = (None, None) if tagged is None else tagged

    def build(number: int, generator: torch.Generator) -> tuple[BatchLoss, Job]:
        seed = seeds[number]
        n_num, n_bin = rows.num.shape[1], rows.bin.shape[1]
        # Candidates that are kept elsewhere make a step wait for the host.
        captures = rows.num.device == device
        if tagged is not None:
            captures = captures and all(part.captures for part in tagged)
        lane = Lane(device, seed, captures=captures)
        with lane:
            shape = config, n_num, n_bin, cardinalities, task, n_classes
            network = TabR(*shape).to(device)
            contexts = Contexts(network, rows, labels, m, own)
            last = no_memory(validation.n_rows, min(m, len(labels)), device)

        def evaluate() -> Tensor:
            output, _ = predict(
                contexts.index(),
                labels,
                validation,
                m,
                last,
                rows_at_a_time,
                others,
            )
            return output.prediction

        loss = BatchLoss(contexts, task, weights)
        change = ContextChange(contexts) if training.record_context else None

        def watch(history: History) -> None:
            if change is not None:
                change(history)
            if on_epoch is not None:
                on_epoch(number, history)

        has_watch = change is not None or on_epoch is not None
        return loss, Job(
            network,
            loss,
            evaluate,
            score,
            generator,
            lane,
            freeze=contexts.freeze,
            watch=watch if has_watch else None,
        )

    # On a CPU random numbers are drawn from one stream: one network at a time.
    size = (n_together or len(seeds)) if device.type == "cuda" else 1
    everybody = range(len(seeds))
    groups = [everybody[i : i + size] for i in range(0, len(seeds), size)]
    fitted: list[tuple[TabR, History]] = []
    for number, group in enumerate(groups, 1):
        title = description
        if description is not None and len(groups) > 1:
            title = f"{description} {number} of {len(groups)}"
        built = []
        with seeded(seeds[group[0]], device):
            for k in group:
                torch.default_generator.manual_seed(seeds[k])
                built.append(build(k, torch.Generator().manual_seed(seeds[k])))
            losses, jobs = zip(*built, strict=True)
            lanes = [job.lane for job in jobs]
            as_one = len(jobs) > 1 and lanes[0].captures
            if as_one:
                first, *beside = lanes
                for lane in beside:
                    first.follow(lane)
                with first:
                    share_storage([job.network for job in jobs])
                for lane in beside:
                    lane.follow(first)
            together = partial(_together, losses, lanes)
            histories = fit_networks(
                jobs,
                len(labels),
                training,
                together=together if as_one else None,
                description=title,
            )
        networks = [loss.contexts.network for loss in losses]
        if as_one:
            part_storage(networks)
        fitted += zip(networks, histories, strict=True)
        if any(history.stopped == "interrupted" for history in histories):
            break
    return fitted


def _together(
    losses: Sequence[BatchLoss], lanes: Sequence[Lane], places: Sequence[int]
) -> StackedLosses:
    """Run the networks at these places as one."""
    return StackedLosses([losses[i] for i in places], [lanes[i] for i in places])

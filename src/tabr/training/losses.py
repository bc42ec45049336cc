"""What training minimises."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from tabr.config import Task
from tabr.search import Neighbors
from tabr.training.contexts import Contexts, Snapshot


def row_losses(prediction: Tensor, labels: Tensor, task: Task) -> Tensor:
    """Return the loss of each row: prediction (b, outputs), labels (b,) -> (b,)."""
    if task == "regression":
        return (prediction.squeeze(-1) - labels).square()
    if task == "binary":
        logit = prediction.squeeze(-1)
        target = labels.to(logit.dtype)
        return F.binary_cross_entropy_with_logits(logit, target, reduction="none")
    return F.cross_entropy(prediction, labels, reduction="none")


class BatchLoss:
    """What training minimises: row indices (b,) -> their mean loss.

    Members that are run as one search one by one, and so call its parts.
    """

    def __init__(self, contexts: Contexts, task: Task) -> None:
        """Take the rows, labels and weights of the contexts."""
        self.contexts, self.task = contexts, task

    def __call__(self, batch: Tensor) -> Tensor:
        """Return the mean loss of the rows at batch."""
        snapshot = self.contexts.snapshot(len(batch))
        near = self.contexts.neighbors(batch, snapshot)
        return self.of_neighbors(batch, near, snapshot)

    def of_neighbors(
        self, batch: Tensor, near: Neighbors, snapshot: Snapshot
    ) -> Tensor:
        """Return the mean loss of rows whose neighbours are known."""
        contexts, weights = self.contexts, self.contexts.data.weights
        context = contexts.context(near, snapshot)
        output = contexts.network(contexts.rows.take(batch), context, snapshot.metric)
        losses = row_losses(output.prediction, contexts.labels[batch], self.task)
        if weights is not None:
            losses = losses * weights[batch]
        return losses.mean()

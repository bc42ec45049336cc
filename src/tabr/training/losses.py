"""What training minimises."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from tabr.config import Task
from tabr.search import Neighbors
from tabr.training.contexts import Contexts, Snapshot


def row_losses(
    prediction: Tensor, labels: Tensor, task: Task, smoothing: float = 0.0
) -> Tensor:
    """Return the loss of each row: prediction (b, outputs), labels (b,) -> (b,).

    Of several heads, prediction (b, k, outputs), it is their mean loss. A share
    `smoothing` of a class's label is spread over all classes.
    """
    if prediction.ndim == 3:
        b, k, n_outputs = prediction.shape
        labels = labels[:, None].expand(b, k).reshape(-1)
        flat = prediction.reshape(b * k, n_outputs)
        return row_losses(flat, labels, task, smoothing).view(b, k).mean(1)
    if task == "regression":
        return (prediction.squeeze(-1) - labels).square()
    if task == "binary":
        logit = prediction.squeeze(-1)
        target = labels.to(logit.dtype) * (1 - smoothing) + smoothing / 2
        return F.binary_cross_entropy_with_logits(logit, target, reduction="none")
    return F.cross_entropy(
        prediction, labels, reduction="none", label_smoothing=smoothing
    )


class BatchLoss:
    """What training minimises: row indices (b,) -> their mean loss.

    Members that are run as one search one by one, and so call its parts.
    """

    def __init__(self, contexts: Contexts, task: Task, smoothing: float = 0.0) -> None:
        """Take the rows, labels and weights of the contexts."""
        self.contexts, self.task, self.smoothing = contexts, task, smoothing

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
        losses = row_losses(
            output.prediction, contexts.labels[batch], self.task, self.smoothing
        )
        if weights is not None:
            losses = losses * weights[batch]
        return losses.mean()

"""What training minimises."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from tabr.config import Task
from tabr.search import Neighbors
from tabr.training.contexts import Contexts, Look


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

    def __init__(
        self, contexts: Contexts, task: Task, weights: Tensor | None = None
    ) -> None:
        """Weigh the rows' losses with weights (n,), or all alike."""
        self.contexts, self.task, self.weights = contexts, task, weights

    def __call__(self, batch: Tensor) -> Tensor:
        """Return the mean loss of the rows at batch."""
        look = self.contexts.look(len(batch))
        return self.given(batch, self.contexts.find(batch, look), look)

    def given(self, batch: Tensor, near: Neighbors, look: Look) -> Tensor:
        """Return the mean loss of rows whose neighbours are known."""
        contexts = self.contexts
        context = contexts.gather(near, look)
        output = contexts.network(contexts.rows.take(batch), context, look.metric)
        losses = row_losses(output.prediction, contexts.labels[batch], self.task)
        if self.weights is not None:
            losses = losses * self.weights[batch]
        return losses.mean()

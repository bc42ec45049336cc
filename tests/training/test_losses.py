"""What training minimises."""

from __future__ import annotations

import pytest
import torch

from tabr.training.losses import row_losses


@pytest.mark.parametrize("task", ["regression", "binary", "classes"])
def test_row_losses_are_the_textbook_ones(task: str) -> None:
    outputs = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.0, -1.0]])
    if task == "regression":
        loss = row_losses(outputs[:, :1], torch.tensor([1.0, 3.0]), task)
        expected = torch.tensor([0.7**2, 2.0**2])
    elif task == "binary":
        loss = row_losses(outputs[:, :1], torch.tensor([1, 0]), task)
        p = outputs[:, 0].sigmoid()
        expected = torch.stack([-p[0].log(), -(1 - p[1]).log()])
    else:
        loss = row_losses(outputs, torch.tensor([2, 0]), task)
        p = outputs.softmax(1)
        expected = -torch.stack([p[0, 2], p[1, 0]]).log()
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("task", ["binary", "classes"])
def test_a_smoothed_label_is_shared_by_all_classes(task: str) -> None:
    outputs = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.0, -1.0]], dtype=torch.float64)
    labels, share = torch.tensor([1, 0]), 0.2
    if task == "binary":
        outputs = outputs[:, :1]
        yes = outputs[:, 0].sigmoid()
        log = torch.stack([1 - yes, yes], 1).log()
    else:
        log = outputs.softmax(1).log()
    n_classes = log.shape[1]
    expected = []
    for row, label in enumerate(labels.tolist()):
        target = [
            share / n_classes + (1 - share) * (k == label) for k in range(n_classes)
        ]
        expected.append(-sum(t * log[row, k] for k, t in enumerate(target)))
    loss = row_losses(outputs, labels, task, share)
    torch.testing.assert_close(loss, torch.stack(expected))


@pytest.mark.parametrize("task", ["regression", "binary", "classes"])
def test_the_loss_of_heads_is_the_mean_of_theirs(task: str) -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(5, 4, 3 if task == "classes" else 1, generator=generator)
    labels = torch.tensor([0, 1, 1, 0, 1])
    labels = labels.float() if task == "regression" else labels
    each = [row_losses(outputs[:, k], labels, task, 0.1) for k in range(4)]
    whole = row_losses(outputs, labels, task, 0.1)
    torch.testing.assert_close(whole, torch.stack(each).mean(0))

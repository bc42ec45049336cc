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

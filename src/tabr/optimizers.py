"""Who changes parameters, given their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tabr.config import Mode, TrainingConfig

_PIECE = 16_384  # numbers that a GPU's block updates in a few steps


class Stepper(Protocol):
    """An optimizer: it reads the gradients of its parameters and changes them.

    On a GPU a step is captured, so that whatever changes from step to step must live
    in tensors.
    """

    def step(self) -> object:
        """Change the parameters once."""
        ...


def adamw(network: nn.Module, config: TrainingConfig) -> Callable[[], object]:
    """Return a step of AdamW."""
    device = next(network.parameters()).device
    groups = decay_groups(network, config.mode)
    pieces: list[tuple[Tensor, tuple[Tensor, ...]]] = []
    if device.type == "cuda":
        # One block of the fused optimizer takes one tensor: many small ones are faster.
        for group in groups:
            cut = [(p, p.detach().view(-1).split(_PIECE)) for p in group["params"]]
            group["params"] = [piece for _, parts in cut for piece in parts]
            pieces.extend(cut)
    optimizer = torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        fused=device.type in ("cpu", "cuda"),
        capturable=device.type == "cuda",
    )

    def update() -> None:
        for parameter, parts in pieces:
            if parameter.grad is not None:
                of_parts = parameter.grad.reshape(-1).split(_PIECE)
                for part, grad in zip(parts, of_parts, strict=True):
                    part.grad = grad
        optimizer.step()

    return update


def decay_groups(network: nn.Module, mode: Mode) -> list[dict[str, Any]]:
    """Return AdamW's parameter groups: who is decayed and who is spared.

    NOTE[DIFF]: the paper's text spares biases, normalisations and label embeddings;
    its published runs decayed every parameter, and so does mode "paper".
    """
    if mode == "paper":
        return [{"params": list(network.parameters())}]
    decayed: list[nn.Parameter] = []
    spared: list[nn.Parameter] = []
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            spare = (
                parameter.ndim < 2
                or name == "bias"
                or getattr(module, "spared_from_decay", False)
            )
            (spared if spare else decayed).append(parameter)
    return [{"params": decayed}, {"params": spared, "weight_decay": 0.0}]

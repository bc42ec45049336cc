"""Who changes parameters, given their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

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
    if device.type in ("cpu", "cuda"):
        return _AdamW(groups, config.learning_rate, config.weight_decay, device).step
    optimizer = torch.optim.AdamW(
        groups, lr=config.learning_rate, weight_decay=config.weight_decay
    )
    return optimizer.step


class _AdamW:
    """AdamW by the kernel that `torch.optim` calls when it is fused.

    Making an optimizer of that module imports torch's compiler, which takes longer
    than many a fit. Here parameters share one count of steps: each has a gradient
    always, or never.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        learning_rate: float,
        weight_decay: float,
        device: torch.device,
    ) -> None:
        self.learning_rate, self.is_cuda = learning_rate, device.type == "cuda"
        self.n_steps = torch.zeros((), device=device)
        self.groups = [
            (group.get("weight_decay", weight_decay), self._cut(group["params"]))
            for group in groups
        ]

    def _cut(
        self, parameters: list[nn.Parameter]
    ) -> list[tuple[nn.Parameter, list[_Piece]]]:
        """Return each parameter with its pieces, which are views of it."""
        assert all(parameter.is_contiguous() for parameter in parameters)
        return [
            (
                parameter,
                [
                    _Piece(part, torch.zeros_like(part), torch.zeros_like(part))
                    for part in self._parts(parameter.detach())
                ],
            )
            for parameter in parameters
        ]

    def _parts(self, values: Tensor) -> tuple[Tensor, ...]:
        # A GPU's block takes one tensor: many small ones are faster.
        return values.reshape(-1).split(_PIECE) if self.is_cuda else (values,)

    @torch.no_grad()
    def step(self) -> None:
        """Change the parameters once."""
        self.n_steps += 1
        for weight_decay, cut in self.groups:
            pieces: list[_Piece] = []
            grads: list[Tensor] = []
            for parameter, parts in cut:
                if parameter.grad is not None:
                    pieces += parts
                    grads += self._parts(parameter.grad)
            if not pieces:
                continue
            values, means, squares = (list(part) for part in zip(*pieces, strict=True))
            torch._fused_adamw_(
                values,
                grads,
                means,
                squares,
                [],
                [self.n_steps] * len(values),
                lr=self.learning_rate,
                beta1=0.9,
                beta2=0.999,
                weight_decay=weight_decay,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )


class _Piece(NamedTuple):
    """Some numbers of a parameter, and the running means that belong to them."""

    values: Tensor
    mean: Tensor
    square: Tensor


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

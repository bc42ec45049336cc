"""Who changes parameters, given their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


class AdamW:
    """AdamW by the kernel that `torch.optim` calls when it is fused.

    Making an optimizer of that module imports torch's compiler, which takes longer
    than many a fit. Here parameters share one count of steps: each has a gradient
    always, or never.
    """

    def __init__(
        self, network: nn.Module, config: TrainingConfig, steps_per_epoch: int = 1
    ) -> None:
        """Begin with no steps taken."""
        device = next(network.parameters()).device
        self.config, self.is_cuda = config, device.type == "cuda"
        self.n_steps = torch.zeros((), device=device)
        self.rate: Tensor | float = config.learning_rate
        if self.is_cuda and config.schedule != "constant":
            # A step is captured there: what changes must live in a tensor.
            self.rate = torch.tensor(config.learning_rate, device=device)
        self.groups = [
            (group.get("weight_decay", config.weight_decay), self._cut(group["params"]))
            for group in decay_groups(network, config.mode)
        ]
        self.average: Average | None = None
        if config.weight_average is not None:
            n_steps = max(1.0, config.weight_average * steps_per_epoch)
            self.average = Average(network, 1 - 1 / n_steps)

    def set_rate(self, factor: float) -> None:
        """Take steps of another size: a multiple of the first."""
        rate = factor * self.config.learning_rate
        if isinstance(self.rate, Tensor):
            self.rate.fill_(rate)
        else:
            self.rate = rate

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
        if self.config.gradient_clip is not None:
            self._clip(self.config.gradient_clip)
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
                lr=self.rate,
                beta1=self.config.betas[0],
                beta2=self.config.betas[1],
                weight_decay=weight_decay,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )
        if self.average is not None:
            self.average.follow(self.n_steps)

    def _clip(self, most: float) -> None:
        """Shorten the gradient of all parameters to a norm."""
        cut = [pair for _, group in self.groups for pair in group]
        grads = [p.grad for p, _ in cut if p.grad is not None]
        norm = torch.stack(torch._foreach_norm(grads)).norm()
        torch._foreach_mul_(grads, (most / (norm + 1e-6)).clamp_max(1.0))


class Average:
    """A running mean of a network's parameters, over more steps as there are more."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        """Begin with the parameters as they are."""
        self.decay = decay
        self.values = [p.detach() for p in network.parameters()]
        self.means = [value.clone() for value in self.values]
        self.kept = [torch.empty_like(value) for value in self.values]

    def follow(self, n_steps: Tensor) -> None:
        """Take the parameters after so many steps into the mean."""
        decay = ((1 + n_steps) / (10 + n_steps)).clamp_max(self.decay)
        torch._foreach_mul_(self.means, decay)
        torch._foreach_add_(self.means, torch._foreach_mul(self.values, 1 - decay))

    @contextmanager
    @torch.no_grad()
    def applied(self) -> Iterator[None]:
        """Have the network hold the mean for a while."""
        torch._foreach_copy_(self.kept, self.values)
        torch._foreach_copy_(self.values, self.means)
        try:
            yield
        finally:
            torch._foreach_copy_(self.values, self.kept)

    @torch.no_grad()
    def restart(self) -> None:
        """Begin again with the parameters as they are."""
        torch._foreach_copy_(self.means, self.values)


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

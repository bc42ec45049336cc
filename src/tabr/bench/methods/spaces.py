"""Search spaces: what a tuning may choose for the parameters of a method.

A space is a mapping from parameters to choices, named as in the paper's tables, or to
values that are not tuned. Parameters are drawn in its order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tabr.config import EmbeddingKind

if TYPE_CHECKING:
    from optuna.trial import BaseTrial as Trial

Space = Mapping[str, Any]


@dataclass(frozen=True)
class Uniform:
    """A number between low and high."""

    low: float
    high: float
    log: bool = False

    def draw(self, trial: Trial, name: str) -> float:
        """Return the trial's value of the parameter."""
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class LogUniform(Uniform):
    """A number between low and high, by its logarithm."""

    log: bool = True


@dataclass(frozen=True)
class Integer:
    """A whole number from low to high, times a factor."""

    low: int
    high: int
    factor: int = 1

    def draw(self, trial: Trial, name: str) -> int:
        """Return the trial's value of the parameter."""
        if self.factor > 1:
            name = f"{name} / {self.factor}"
        return self.factor * trial.suggest_int(name, self.low, self.high)


@dataclass(frozen=True)
class OneOf:
    """One of several values."""

    values: Sequence[Any]

    def draw(self, trial: Trial, name: str) -> Any:
        """Return the trial's value of the parameter."""
        return trial.suggest_categorical(name, self.values)


@dataclass(frozen=True)
class ZeroOr:
    """Zero, or a value of another choice: the paper's {0, ...}.

    The trial first decides between the two, under the name `flag`.
    """

    other: Uniform | Integer | OneOf
    flag: str | None = None

    def draw(self, trial: Trial, name: str) -> Any:
        """Return the trial's value of the parameter."""
        flag = self.flag or f"{name} is not zero"
        if trial.suggest_categorical(flag, [False, True]):
            return self.other.draw(trial, name)
        return 0.0 if isinstance(self.other, Uniform) else 0


@dataclass(frozen=True)
class Joint:
    """Several parameters that are chosen as one, by a name of the choice."""

    params: Mapping[str, Mapping[str, Any]]

    def draw(self, trial: Trial, name: str) -> Mapping[str, Any]:
        """Return the parameters that the trial chooses."""
        return self.params[str(trial.suggest_categorical(name, list(self.params)))]


def draw(trial: Trial, space: Space) -> dict[str, Any]:
    """Return a trial's value of each parameter."""
    params: dict[str, Any] = {}
    for name, choice in space.items():
        if isinstance(choice, Joint):
            params |= choice.draw(trial, name)
        elif isinstance(choice, Uniform | Integer | OneOf | ZeroOr):
            params[name] = choice.draw(trial, name)
        else:
            params[name] = choice
    return params


# --- spaces that several methods share ----------------------------------------------

_PERIODIC: Space = {
    "frequency_scale": LogUniform(0.01, 100.0),
    "embedding_width": Integer(16, 64),
    "n_frequencies": Integer(16, 96),
}
EMBEDDINGS: Mapping[EmbeddingKind, Space] = {
    "lr": {"embedding_width": Integer(16, 96)},
    "plr": _PERIODIC,
    "plr-lite": _PERIODIC,
}


def rates(
    learning_rate: tuple[float, float] = (3e-5, 1e-3), max_decay: float = 1e-4
) -> Space:
    """Return the space of AdamW: a range of learning rates, and the largest decay."""
    decay = ZeroOr(LogUniform(1e-6, max_decay))
    return {"learning_rate": LogUniform(*learning_rate), "weight_decay": decay}

"""How networks are trained, and recipes: networks and how they are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tabr.config.checks import check, check_positive, check_rates
from tabr.config.network import NetworkConfig

Schedule = Literal["constant", "flat-cosine", "drop"]
Mode = Literal["fixed", "paper"]


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained; the defaults are the paper's.

    Attributes:
        learning_rate: Step size of AdamW, at first.
        weight_decay: Decay of AdamW.
        batch_size: Rows of a step.
        max_epochs: Stop after this many epochs; None leaves it to `patience`.
        patience: Stop after more than this many epochs without a better score.
        freeze_after: Freeze each row's context after this many epochs; None never.
        record_context: Record how much contexts change from epoch to epoch.
        time_limit: Seconds after which no new epoch is begun; None sets no limit.
        mode: "paper" decays every parameter, as the published runs did; "fixed"
            spares biases, normalisations and label embeddings.
        betas: Adam's coefficients of running means.
        label_smoothing: Share of a class's label that is spread over all classes.
        schedule: "constant"; "flat-cosine": constant for half of `max_epochs`, then a
            cosine to zero; "drop": after `patience` epochs without a better score, the
            best weights are taken up again with a tenth of the step size, once.
        gradient_clip: Largest norm of a step's gradient; None sets no limit.
        candidate_share: Share of the candidates, drawn anew for each step, among whom
            its rows find their neighbours; predictions look at all.
        weight_average: Epochs that a running mean of the weights reaches back; it is
            what is scored and kept. None keeps the weights themselves.
    """

    learning_rate: float = 0.0003121273641315169
    weight_decay: float = 1.2260352006404615e-06
    batch_size: int = 256
    max_epochs: int | None = None
    patience: int = 16
    freeze_after: int | None = None
    record_context: bool = False
    time_limit: float | None = None
    mode: Mode = "fixed"
    betas: tuple[float, float] = (0.9, 0.999)
    label_smoothing: float = 0.0
    schedule: Schedule = "constant"
    gradient_clip: float | None = None
    candidate_share: float = 1.0
    weight_average: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_positive(learning_rate=self.learning_rate, batch_size=self.batch_size)
        check_rates(
            beta1=self.betas[0],
            beta2=self.betas[1],
            label_smoothing=self.label_smoothing,
        )
        check(
            0 < self.candidate_share <= 1,
            "`0 < candidate_share <= 1` must hold, however: "
            f"candidate_share={self.candidate_share!r}",
        )
        for name in ("gradient_clip", "weight_average"):
            limit = getattr(self, name)
            check(
                limit is None or limit > 0,
                f"`{name} > 0` must hold, however: {name}={limit!r}",
            )
        check(
            self.schedule != "flat-cosine" or self.max_epochs is not None,
            "schedule 'flat-cosine' ends at max_epochs: set max_epochs",
        )
        for name in ("weight_decay", "patience", "max_epochs", "freeze_after"):
            number = getattr(self, name)
            check(
                number is None or number >= 0,
                f"`{name} >= 0` must hold, however: {name}={number!r}",
            )
        check(
            self.max_epochs is None or self.max_epochs > 0,
            f"`max_epochs > 0` must hold, however: max_epochs={self.max_epochs!r}",
        )
        check(
            self.time_limit is None or self.time_limit > 0,
            f"`time_limit > 0` must hold, however: time_limit={self.time_limit!r}",
        )
        check(
            self.mode in ("fixed", "paper"),
            f"mode must be 'fixed' or 'paper', however: {self.mode!r}",
        )


@dataclass(frozen=True)
class Recipe:
    """All that makes a member, beside its data and its seed.

    Attributes:
        network: Shape of the network.
        training: How it is trained.
        context_size: Neighbours of a row.
        name: What it is called beside others.
    """

    network: NetworkConfig
    training: TrainingConfig
    context_size: int = 96
    name: str = "default"

    def __post_init__(self) -> None:
        """Check the number."""
        check(
            self.context_size >= 1,
            f"`context_size >= 1` must hold, however: "
            f"context_size={self.context_size!r}",
        )

"""Settings of training refuse what cannot be."""

from __future__ import annotations

import pytest

from tabr.config import NetworkConfig, Recipe, TrainingConfig


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainingConfig(learning_rate=0), "`learning_rate > 0` must hold"),
        (lambda: TrainingConfig(max_epochs=0), "`max_epochs > 0` must hold"),
        (lambda: TrainingConfig(patience=-1), "`patience >= 0` must hold"),
        (lambda: TrainingConfig(time_limit=0), "`time_limit > 0` must hold"),
        (lambda: TrainingConfig(mode="fast"), "mode must be 'fixed' or 'paper'"),
        (lambda: TrainingConfig(candidate_share=0), "`0 < candidate_share <= 1` must"),
        (lambda: TrainingConfig(schedule="flat-cosine"), "set max_epochs"),
        (lambda: Recipe(NetworkConfig(), TrainingConfig(), 0), "`context_size >= 1`"),
    ],
)
def test_a_wrong_value_is_named_with_its_rule(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_defaults_are_those_of_the_paper() -> None:
    training = TrainingConfig()
    assert (training.patience, training.betas) == (16, (0.9, 0.999))

"""Search spaces draw what they say, under names that do not change."""

from __future__ import annotations

from typing import Any

import optuna
import pytest

from tabr.bench.methods.spaces import (
    Integer,
    Joint,
    LogUniform,
    OneOf,
    Uniform,
    ZeroOr,
    draw,
)


def drawn(space: dict[str, Any], **values: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters of a trial with these values, and the names it asked."""
    trial = optuna.trial.FixedTrial(values)
    return draw(trial, space), list(trial.params)


def test_each_choice_is_asked_for_in_order_and_values_are_not() -> None:
    space = {
        "rate": LogUniform(1e-3, 1.0),
        "patience": 200,
        "share": Uniform(0.0, 1.0),
        "kind": OneOf(["a", "b"]),
        "depth": Integer(1, 4),
    }
    values = {"rate": 0.1, "share": 0.5, "kind": "b", "depth": 3}
    params, asked = drawn(space, **values)
    assert params == {**values, "patience": 200}
    assert list(params) == list(space) and asked == list(values)


def test_a_logarithm_is_a_logarithm() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    space = {"log": LogUniform(1e-6, 1.0), "plain": Uniform(1e-6, 1.0)}
    draws = [draw(study.ask(), space) for _ in range(200)]
    for name, low, high in (("log", 0.4, 0.6), ("plain", 0.0, 0.1)):
        share = sum(params[name] < 1e-3 for params in draws) / len(draws)
        assert low <= share <= high


def test_a_multiple_is_asked_for_by_its_factor() -> None:
    assert drawn({"width": Integer(1, 8, 16)}, **{"width / 16": 3}) == (
        {"width": 48},
        ["width / 16"],
    )


def test_a_joint_choice_gives_several_parameters() -> None:
    layers = Joint({"deep": {"n": 5, "width": 8}, "wide": {"n": 1, "width": 64}})
    params, asked = drawn({"layers": layers}, layers="wide")
    assert params == {"n": 1, "width": 64} and asked == ["layers"]


@pytest.mark.parametrize(
    ("choice", "flag", "zero"),
    [
        (ZeroOr(Uniform(0.1, 0.5)), "p is not zero", "0.0"),
        (ZeroOr(Integer(1, 3), "has p"), "has p", "0"),
    ],
)
def test_zero_is_decided_first(choice: ZeroOr, flag: str, zero: str) -> None:
    params, asked = drawn({"p": choice}, **{flag: False})
    assert repr(params["p"]) == zero and asked == [flag]
    value = 0.3 if zero == "0.0" else 2
    params, asked = drawn({"p": choice}, **{flag: True, "p": value})
    assert params["p"] == value and asked == [flag, "p"]

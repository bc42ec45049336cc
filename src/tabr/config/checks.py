"""What configs and files are checked by: one sentence with the rule and what came."""

from __future__ import annotations

from tabr.errors import ModelFileError, ParameterError


def check(rule: bool, message: str) -> None:
    """Refuse what breaks a rule."""
    if not rule:
        raise ParameterError(message)


def check_positive(**numbers: float) -> None:
    """Refuse numbers that are not above zero."""
    for name, number in numbers.items():
        check(number > 0, f"`{name} > 0` must hold, however: {name}={number!r}")


def check_rates(**rates: float) -> None:
    """Refuse rates below zero, or of one and more."""
    for name, rate in rates.items():
        check(0 <= rate < 1, f"`0 <= {name} < 1` must hold, however: {name}={rate!r}")


def check_file(rule: bool, what: str, remedy: str = "save the model again") -> None:
    """Refuse a model file that breaks a rule."""
    if not rule:
        raise ModelFileError(f"{what}; {remedy}")

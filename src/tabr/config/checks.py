"""What configs are checked by: one sentence with the rule and what came."""

from __future__ import annotations

from tabr.errors import ParameterError


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

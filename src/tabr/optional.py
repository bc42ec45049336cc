"""Libraries that only some features need, and what only later Pythons have."""

from __future__ import annotations

import functools
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tabr.errors import MissingLibrary

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):
        """That of Python 3.12: two threads at once may both work the value out.

        Before, all objects of a class shared a lock. A process that was forked while
        another thread held it waited for ever.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            """Return the value, worked out at the first call."""
            if instance is None:
                return self
            values = vars(instance)
            if self.attrname not in values:
                values[self.attrname] = self.func(instance)
            return values[self.attrname]


def require(name: str, extra: str) -> ModuleType:
    """Import an optional library, or say how to install it.

    Call it inside the function that needs the library, so that importing tabr
    stays cheap and never fails for a feature nobody asked for.

    Args:
        name: The module to import.
        extra: The extra of tabr that installs it.

    Raises:
        MissingLibrary: The library is not installed. A library that is installed
            and fails by itself raises its own error.

    >>> require("json", extra="plots").dumps([1, 2])
    '[1, 2]'
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # A module missing inside the library is not the library missing.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise MissingLibrary(
            f"{name} is not installed: pip install 'tabr[{extra}]'", name=name
        ) from error

"""Libraries that only some features need."""

from importlib import import_module
from types import ModuleType

from tabr.errors import MissingLibrary


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

"""Every error that a user may see: the rule, what came, and what to do about it.

What is only doubtful is a warning.
"""

from __future__ import annotations


class TabrError(Exception):
    """The base of all refusals; its message is one sentence for the user."""


class DataError(TabrError, ValueError):
    """A table or target that cannot be used as it is."""


class CellTypeError(TabrError, TypeError):
    """A table whose cells, or whose make, are of a type that cannot be read."""


class ParameterError(TabrError, ValueError):
    """A parameter outside of what it may be."""


class ParameterTypeError(TabrError, TypeError):
    """A parameter or argument of a type that it may not have."""


class UnknownIdError(TabrError, KeyError):
    """An id that no candidate has."""

    __str__ = Exception.__str__  # a KeyError would show its message in quotes


class TrainingError(TabrError, RuntimeError):
    """Training went wrong in a way that other parameters may mend."""


class MemoryLimitError(TabrError, MemoryError):
    """A fit that needs more memory than it may use."""


class ModelFileError(TabrError, ValueError):
    """A file that cannot be read as a model."""


class MissingLibrary(TabrError, ImportError):
    """An optional library is not installed; the message tells how to install it."""


class LabelWarning(UserWarning):
    """Labels that lie far beyond those of fit."""

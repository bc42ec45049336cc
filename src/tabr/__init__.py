"""Retrieval-augmented learning on tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tabr.config import EmbeddingConfig, RetrievalConfig
    from tabr.estimators import TabRClassifier, TabRRegressor
    from tabr.explanation import Explanation, NeighborTable
    from tabr.filters import NotSameGroup, PastOnly, SameGroup, Where
    from tabr.frames import DataError
    from tabr.storage import ModelFileError

__all__ = [
    "DataError",
    "EmbeddingConfig",
    "Explanation",
    "ModelFileError",
    "NeighborTable",
    "NotSameGroup",
    "PastOnly",
    "RetrievalConfig",
    "SameGroup",
    "TabRClassifier",
    "TabRRegressor",
    "Where",
    "__version__",
]

# Imported when first asked for: the command line answers `--help` without them.
_HOMES = {
    "DataError": "tabr.frames",
    "EmbeddingConfig": "tabr.config",
    "Explanation": "tabr.explanation",
    "ModelFileError": "tabr.storage",
    "NeighborTable": "tabr.explanation",
    "NotSameGroup": "tabr.filters",
    "PastOnly": "tabr.filters",
    "RetrievalConfig": "tabr.config",
    "SameGroup": "tabr.filters",
    "TabRClassifier": "tabr.estimators",
    "TabRRegressor": "tabr.estimators",
    "Where": "tabr.filters",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tabr' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__

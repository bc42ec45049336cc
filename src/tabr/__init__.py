"""Retrieval-augmented learning on tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tabr.candidates.rules import NotSameGroup, PastOnly, SameGroup, Where
    from tabr.config import EmbeddingConfig, RetrievalConfig
    from tabr.errors import DataError, ModelFileError
    from tabr.estimators import TabRClassifier, TabRRegressor
    from tabr.prediction.explanation import Explanation, NeighborTable

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
    "DataError": "tabr.errors",
    "EmbeddingConfig": "tabr.config",
    "Explanation": "tabr.prediction.explanation",
    "ModelFileError": "tabr.errors",
    "NeighborTable": "tabr.prediction.explanation",
    "NotSameGroup": "tabr.candidates.rules",
    "PastOnly": "tabr.candidates.rules",
    "RetrievalConfig": "tabr.config",
    "SameGroup": "tabr.candidates.rules",
    "TabRClassifier": "tabr.estimators",
    "TabRRegressor": "tabr.estimators",
    "Where": "tabr.candidates.rules",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tabr' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__

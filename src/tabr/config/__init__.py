"""Values that describe a model and its training: frozen, typed, without "auto".

In: numbers and names. Out: dataclasses whose values have been checked.

* `checks`: the sentences by which values are refused.
* `network`: the shape of a network, and the paper's design space.
* `training`: how it is trained; both together are a recipe.
* `presets`: what the estimators do where their user says nothing.
"""

from tabr.config.network import (
    EMBEDDINGS,
    STEPS,
    EmbeddingConfig,
    EmbeddingKind,
    NetworkConfig,
    RetrievalConfig,
    Similarity,
    Task,
    ValueTerm,
    network_config,
)
from tabr.config.presets import PRESETS, Preset
from tabr.config.training import Mode, Recipe, Schedule, TrainingConfig

__all__ = [
    "EMBEDDINGS",
    "PRESETS",
    "STEPS",
    "EmbeddingConfig",
    "EmbeddingKind",
    "Mode",
    "NetworkConfig",
    "Preset",
    "Recipe",
    "RetrievalConfig",
    "Schedule",
    "Similarity",
    "Task",
    "TrainingConfig",
    "ValueTerm",
    "network_config",
]

"""Parameters of estimators as JSON holds them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from tabr.config import EmbeddingConfig, RetrievalConfig
from tabr.filters import Rule, Where, pack_rule, unpack_rule

_CONFIGS = {cls.__name__: cls for cls in (EmbeddingConfig, RetrievalConfig)}


def pack_param(name: str, value: Any) -> Any:
    """Return a parameter as JSON holds it, or None."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, EmbeddingConfig | RetrievalConfig):
        return {"type": type(value).__name__, "values": asdict(value)}
    if isinstance(value, Rule):
        if any(isinstance(leaf, Where) for leaf in value.leaves):
            warnings.warn(
                f"{name} has a rule Where, whose function cannot be stored: call "
                "restrict_candidates after loading",
                stacklevel=4,
            )
        return {"type": "rule", "values": pack_rule(value)}
    if isinstance(value, list | tuple):
        parts = [pack_param(name, part) for part in value]
        return {"type": type(value).__name__, "values": parts}
    if isinstance(value, Mapping):
        items = [[pack_param(name, part) for part in item] for item in value.items()]
        return {"type": "dict", "values": items}
    if not isinstance(value, np.random.RandomState):
        message = f"{name} cannot be stored, however {value!r:.60} came: set it again"
        warnings.warn(f"{message} after loading", stacklevel=4)
    return None


def unpack_param(value: Any) -> Any:
    """Return the parameter that `pack_param` packed."""
    if not isinstance(value, dict):
        return value
    if value["type"] == "rule":
        return unpack_rule(value["values"])
    if value["type"] in ("list", "tuple"):
        parts = [unpack_param(part) for part in value["values"]]
        return parts if value["type"] == "list" else tuple(parts)
    if value["type"] == "dict":
        return {key: unpack_param(part) for key, part in value["values"]}
    return _CONFIGS[value["type"]](**value["values"])

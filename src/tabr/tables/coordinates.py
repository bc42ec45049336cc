"""Columns of latitudes and longitudes, found by their names and checked by values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tabr.tables.cells import ColumnKind

LATITUDES = {"lat", "latitude"}
LONGITUDES = {"lon", "lng", "long", "longitude"}


class Coordinates(NamedTuple):
    """The names of two columns, in degrees."""

    latitude: str
    longitude: str


def find_coordinates(
    frame: pd.DataFrame, kinds: Mapping[str, ColumnKind]
) -> Coordinates | None:
    """Return the first pair of numeric columns that are named and valued like places.

    Their other words must be the same: `pickup_lat` belongs with `pickup_lon`. Letters
    such as x and y name many things and are no places.

    >>> rows = pd.DataFrame({"Latitude": [37.8, 40.1], "Longitude": [-122.2, -121.0]})
    >>> kinds = {"Latitude": "numeric", "Longitude": "numeric"}
    >>> find_coordinates(rows, kinds)
    Coordinates(latitude='Latitude', longitude='Longitude')
    """
    longitudes: dict[tuple[str, ...], str] = {}
    for name in frame.columns:
        words = _other_words(name, LONGITUDES)
        if words is not None:
            longitudes.setdefault(words, name)
    for name in frame.columns:
        words = _other_words(name, LATITUDES)
        longitude = None if words is None else longitudes.get(words)
        if longitude is None or {kinds.get(name), kinds.get(longitude)} != {"numeric"}:
            continue
        if _within(frame[name], 90) and _within(frame[longitude], 360):
            return Coordinates(name, longitude)
    return None


def _other_words(name: str, synonyms: set[str]) -> tuple[str, ...] | None:
    """Return the words of a name but its one synonym; None if it has none.

    >>> _other_words("pickupLat", {"lat"}), _other_words("flat", {"lat"})
    (('pickup',), None)
    """
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = re.findall(r"[^\W_]+", parted.lower())
    if sum(word in synonyms for word in words) != 1:
        return None
    return tuple(word for word in words if word not in synonyms)


def _within(column: pd.Series[Any], limit: float) -> bool:
    """Whether the numbers of a column differ, and none is beyond the limit."""
    if not pd.api.types.is_numeric_dtype(column.dtype):
        return False
    values = column.to_numpy(np.float64, na_value=np.nan)
    values = values[~np.isnan(values)]
    return bool(len(values) and np.abs(values).max() <= limit and np.ptp(values) > 0)

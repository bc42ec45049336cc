"""Columns that are places on Earth, found by their names and checked by values."""

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

    Both names must say so, with the same words beside: `pickup_lat` belongs with
    `pickup_lon`. Letters such as x and y name many things and are no places.

    >>> rows = pd.DataFrame({"Latitude": [37.8, 40.1], "Longitude": [-122.2, -121.0]})
    >>> kinds = {"Latitude": "numeric", "Longitude": "numeric"}
    >>> find_coordinates(rows, kinds)
    Coordinates(latitude='Latitude', longitude='Longitude')
    """
    longitudes: dict[tuple[str, ...], str] = {}
    for name in frame.columns:
        beside = _beside(name, LONGITUDES)
        if beside is not None:
            longitudes.setdefault(beside, name)
    for name in frame.columns:
        beside = _beside(name, LATITUDES)
        other = None if beside is None else longitudes.get(beside)
        if other is None or {kinds.get(name), kinds.get(other)} != {"numeric"}:
            continue
        if _within(frame[name], 90) and _within(frame[other], 360):
            return Coordinates(name, other)
    return None


def _beside(name: str, meant: set[str]) -> tuple[str, ...] | None:
    """Return the other words of a name that has one of the meant ones; else None."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)  # pickupLat
    words = re.findall(r"[^\W_]+", parted.lower())
    hits = [word for word in words if word in meant]
    if len(hits) != 1:
        return None
    return tuple(word for word in words if word not in meant)


def _within(column: pd.Series[Any], limit: float) -> bool:
    if not pd.api.types.is_numeric_dtype(column.dtype):
        return False
    values = column.to_numpy(np.float64, na_value=np.nan)
    values = values[~np.isnan(values)]
    return bool(len(values) and np.abs(values).max() <= limit and np.ptp(values) > 0)

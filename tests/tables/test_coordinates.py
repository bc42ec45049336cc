"""Columns of latitudes and longitudes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tabr.tables.coordinates import find_coordinates


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("Latitude", "Longitude"), True),
        (("pickup_lat", "pickup_lon"), True),
        (("startLat", "startLng"), True),
        (("lat", "long"), True),
        (("pickup_lat", "dropoff_lon"), False),
        (("x", "y"), False),
        (("depth", "table"), False),
        (("flat", "along"), False),
        (("latency", "longevity"), False),
        (("lat", "y"), False),
    ],
)
def test_places_are_found_by_both_names(names: tuple[str, str], found: bool) -> None:
    frame = pd.DataFrame({names[0]: [1.0, 2.0], names[1]: [3.0, 4.0]})
    at = find_coordinates(frame, dict.fromkeys(names, "numeric"))
    assert at == (names if found else None)


def test_places_lie_on_earth() -> None:
    names = ("lat", "lon")
    kinds: Any = dict.fromkeys(names, "numeric")
    for values in ([1.0, 200.0], [5.0, 5.0], [np.nan, np.nan]):
        assert (
            find_coordinates(pd.DataFrame(dict.fromkeys(names, values)), kinds) is None
        )
    texts = pd.DataFrame({name: ["a", "b"] for name in names})
    assert find_coordinates(texts, dict.fromkeys(names, "categorical")) is None

"""Where attention falls, on small tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from reproduction.studies.attention import EARTH_KM, kilometres, weight_nearby
from tabr import TabRRegressor
from tests.bench.tables import TINY


def test_kilometres_are_those_of_the_globe() -> None:
    places = pd.DataFrame({"Latitude": [37.77, 0, 89], "Longitude": [-122.42, 0, 0]})
    others = pd.DataFrame({"Latitude": [34.05, 0, 89], "Longitude": [-118.24, 180, 90]})
    km = kilometres(places, others)
    assert km[0] == pytest.approx(559, abs=2)
    assert km[1] == pytest.approx(np.pi * EARTH_KM)
    assert km[2] == pytest.approx(157, abs=1)


def test_weights_nearby_and_elsewhere_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({
        "Latitude": rng.uniform(36, 36.3, 80),
        "Longitude": rng.uniform(-120, -119.7, 80),
    })  # fmt: skip
    y = X.Latitude + rng.normal(size=80)
    one = {**TINY, "n_members": 1, "device": "cpu", "random_state": 0}
    model = TabRRegressor(**one).fit(X, y)
    near, itself = weight_nearby(model, X)
    assert 0 < near < 1 and itself == pytest.approx(0, abs=1e-6)
    own = TabRRegressor(**one, retrieval="step-2")
    near, itself = weight_nearby(own.fit(X, y), X)
    assert itself > 0 and near + itself <= 1

"""Labelled rows: reading, weights, holding out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabr.errors import DataError
from tabr.tables.samples import Sample
from tabr.tables.targets import NumberTarget


def sample(n: int, weights: object = None) -> Sample:
    frame = pd.DataFrame({"x": np.arange(n)})
    return Sample.read(frame, np.arange(n), weights, NumberTarget, "Test")


def test_rows_of_weight_zero_are_left_out() -> None:
    kept = sample(4, [1, 0, 2, 0])
    assert kept.ids.tolist() == [0, 2]
    assert kept.frame.x.tolist() == [0, 2]
    assert kept.y.tolist() == [0, 2]
    assert kept.weights.tolist() == [1, 2]


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    fraction=st.floats(0.05, 0.9),
    seed=st.integers(0, 100),
)
def test_parts_are_disjoint_complete_and_proportional(
    sizes: list[int], fraction: float, seed: int
) -> None:
    codes = np.repeat(np.arange(len(sizes)), sizes)
    n = len(codes)
    if n < 2:
        return
    train, held = sample(n).hold_out(fraction, codes, seed)
    assert sorted([*train.ids, *held.ids]) == list(range(n))
    assert len(held.ids) == min(max(1, round(n * fraction)), n - 1)
    if len(train.ids) >= len(sizes):
        assert set(codes[train.ids]) == set(codes)  # every class can be learned
    for code, size in enumerate(sizes):
        share = (codes[held.ids] == code).sum()
        if fraction < 0.5:
            assert abs(share - size * fraction) <= 1 + len(sizes)


def test_same_seed_holds_out_the_same_rows() -> None:
    a, b, c = (sample(50).hold_out(0.2, None, seed)[1].ids for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_one_row_cannot_be_split() -> None:
    with pytest.raises(DataError, match=r"at least 2 rows.*n_samples = 1"):
        sample(1).hold_out(0.2, None, 0)

"""Labelled rows: reading, weights, holding out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabr.errors import DataError
from tabr.tables.samples import Sample, Split
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


def sample_of(n: int, **columns: object) -> Sample:
    frame = pd.DataFrame({"x": np.arange(n, dtype=float), **columns})
    return Sample(np.arange(n), frame, np.arange(n, dtype=float))


@pytest.mark.parametrize("n, n_folds", [(2, 5), (7, 3), (100, 5), (11, 11)])
def test_folds_hold_each_row_out_once(n: int, n_folds: int) -> None:
    folds = sample_of(n).folds(n_folds, None, seed=0)
    assert len(folds) == min(n, n_folds)
    held = np.sort(np.concatenate([held for _, held in folds]))
    np.testing.assert_array_equal(held, np.arange(n))
    for learned, out in folds:
        together = np.sort(np.concatenate([learned, out]))
        np.testing.assert_array_equal(together, np.arange(n))
    sizes = [len(out) for _, out in folds]
    assert max(sizes) - min(sizes) <= 1


def test_folds_hold_classes_out_in_proportion() -> None:
    codes = np.repeat([0, 1, 2], [50, 20, 5])
    for _, held in sample_of(75).folds(5, codes, seed=3):
        assert np.bincount(codes[held], minlength=3).tolist() == [10, 4, 1]


def test_folds_by_group_keep_groups_whole_and_sizes_close() -> None:
    groups = np.random.RandomState(0).randint(0, 40, 500).astype(float)
    folds = sample_of(500).folds(5, None, 0, Split("group", groups))
    assert len(folds) == 5
    for learned, held in folds:
        assert not set(groups[learned]) & set(groups[held])
        assert 80 < len(held) < 120
    held = np.sort(np.concatenate([held for _, held in folds]))
    np.testing.assert_array_equal(held, np.arange(500))


def test_there_are_no_more_folds_than_groups() -> None:
    groups = np.repeat([0.0, 1.0], 10)
    assert len(sample_of(20).folds(5, None, 0, Split("group", groups))) == 2
    with pytest.raises(DataError, match="held out by group"):
        sample_of(20).folds(5, None, 0, Split("group", np.zeros(20)))


def test_folds_by_time_go_forward() -> None:
    times = np.random.RandomState(0).permutation(200) // 2.0
    folds = sample_of(200).folds(5, None, 0, Split("time", times))
    assert len(folds) == 5
    for learned, held in folds:
        assert times[learned].max() < times[held].min()
        assert len(learned) >= 119
    ends = [times[held].max() for _, held in folds]
    assert ends == sorted(ends)
    assert max(ends) == times.max()


def test_folds_by_time_of_few_times_are_fewer() -> None:
    times = np.repeat([0.0, 1.0], [10, 90])
    ((learned, held),) = sample_of(100).folds(5, None, 0, Split("time", times))
    assert (len(learned), len(held)) == (10, 90)

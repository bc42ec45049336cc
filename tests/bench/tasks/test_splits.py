"""The paper's splits, by property and, where TABR_DATA has them, row by row."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tabr.bench.tasks.catalog import TASKS, select
from tabr.bench.tasks.openml import split_table
from tabr.bench.tasks.splits import (
    MOST_SCORED,
    default_split,
    random_split,
    why_split,
)
from tabr.bench.tasks.task import files_of, is_present

PARTS = ("train", "val", "test", "unused")


def sizes(parts: np.ndarray) -> list[int]:
    return [int((parts == name).sum()) for name in PARTS]


def numbers(n: int) -> pd.DataFrame:
    return pd.DataFrame({"x": np.zeros(n)})


@pytest.mark.parametrize(
    ("n", "n_most", "expected"),
    [
        (10, 10_000, [7, 0, 3, 0]),  # 0.3 of 3 rows is none
        (1000, 10_000, [700, 90, 210, 0]),
        (1000, 100, [100, 270, 630, 0]),
        # 22784 * (10000 / 22784) is 10000, but with 39644 rows it comes out below.
        (22_784, 10_000, [10_000, 3835, 8949, 0]),
        (39_644, 10_000, [9999, 8893, 20_752, 0]),
        (300_000, 50_000, [50_000, MOST_SCORED, MOST_SCORED, 150_000]),
    ],
)
def test_sizes_are_the_benchmarks(n: int, n_most: int, expected: list[int]) -> None:
    assert sizes(why_split(numbers(n), 0, n_most)) == expected


def test_splits_differ_by_their_number_alone() -> None:
    X = numbers(500)
    first, again, second = (why_split(X, seed, 10_000) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != second).any()
    assert sizes(first) == sizes(second)


def test_scored_rows_with_a_category_unknown_to_training_are_unused() -> None:
    plain = why_split(numbers(400), 3, 10_000)
    test_row, train_row = (np.flatnonzero(plain == name)[0] for name in PARTS[2::-2])
    kinds = np.full(400, "a", dtype=object)
    kinds[test_row] = "only here"
    kinds[train_row] = "known"
    kinds[np.flatnonzero(plain == "val")[0]] = "known"
    X = numbers(400).assign(kind=pd.Categorical(kinds))
    parts = why_split(X, 3, 10_000)
    assert np.flatnonzero(parts != plain).tolist() == [test_row]
    assert parts[test_row] == "unused"


def test_the_recipe_is_that_of_the_benchmark_step_by_step() -> None:
    """A slow transcription: positions are drawn one list at a time."""
    n, seed, n_most = 137, 4, 60
    random = np.random.RandomState(seed)
    random.randn()
    shuffled = list(random.permutation(n))
    n_rest = n - n_most
    rest = shuffled[:n_rest]
    expected = dict.fromkeys(shuffled[n_rest:], "train")
    n_test = n_rest - int(0.3 * n_rest)
    for place, position in enumerate(random.permutation(n_rest)):
        expected[rest[position]] = "test" if place < n_test else "val"
    parts = why_split(numbers(n), seed, n_most)
    assert parts.tolist() == [expected[row] for row in range(n)]


def test_first_benchmark_takes_a_fifth_and_a_fifth_of_the_rest() -> None:
    y = np.repeat([0, 1], [900, 100])
    for stratified in (False, True):
        parts = default_split(y, stratified=stratified)
        assert sizes(parts) == [640, 160, 200, 0]
        shares = [y[parts == name].mean() for name in PARTS[:3]]
        assert bool(np.ptp(shares) < 1e-9) is stratified


@pytest.mark.skipif("TABR_DATA" not in os.environ, reason="needs the paper's tables")
def test_recipes_give_the_files_that_are_at_hand() -> None:
    folder = Path(os.environ["TABR_DATA"])
    labels = dict.fromkeys(t.label for t in TASKS if t.benchmark == "why")
    sets = [select([label])[0] for label in labels] + select(["california", "house"])
    tasks = [task for task in sets if is_present(task, folder)]
    assert tasks
    for task in tasks:
        table, split = files_of(task, folder)
        made = split_table(task, pd.read_parquet(table)).astype(object)
        known = pd.read_parquet(split).astype(object)
        pd.testing.assert_frame_equal(made, known, obj=task.label)


def test_random_split_keeps_the_share_of_each_class():
    y = np.repeat([0, 1, 2], [700, 250, 50])
    parts = random_split(y, stratified=True)
    for code in range(3):
        shares = pd.Series(parts[y == code]).value_counts(normalize=True)
        assert shares["test"] == pytest.approx(0.2, abs=0.02)
        assert shares["val"] == pytest.approx(0.16, abs=0.02)

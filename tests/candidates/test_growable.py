"""Arrays that grow."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tabr.candidates.growable import GrowableArray


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_it_equals_joining_and_older_ones_stay(axis: int, kind: str) -> None:
    rng = np.random.default_rng(0)
    make = torch.from_numpy if kind == "torch" else np.asarray
    parts = [rng.normal(size=(3, 2) if axis else (2, 3)) for _ in range(9)]
    grown = [GrowableArray(make(parts[0]), axis)]
    for part in parts[1:]:
        grown.append(grown[-1].extended(make(part)))
    for k, one in enumerate(grown):
        expected = np.concatenate(parts[: k + 1], axis)
        np.testing.assert_array_equal(np.asarray(one.view), expected)


def test_adding_little_copies_little() -> None:
    long = GrowableArray(np.zeros(1000)).extended(np.ones(1))
    longer = long.extended(np.ones(1))
    assert np.shares_memory(long.view, longer.view)


def test_a_type_that_does_not_fit_widens_it() -> None:
    short = GrowableArray(np.array(["a", "b"]))
    assert short.extended(np.array(["longer"])).view.tolist() == ["a", "b", "longer"]
    whole = GrowableArray(np.array([1, 2]))
    assert whole.extended(np.array([0.5])).view.tolist() == [1.0, 2.0, 0.5]

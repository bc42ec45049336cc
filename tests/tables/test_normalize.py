import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import QuantileTransformer

from tabr.tables.normalize import Normalizer, share_between


def scikit_learn(train, n_quantiles):
    quantile = QuantileTransformer(
        n_quantiles=n_quantiles, output_distribution="normal", subsample=10**9
    )
    return quantile.fit(train)


def with_quantiles(quantiles):
    p = quantiles.shape[1]
    none = np.zeros(p, dtype=np.int64)
    exponent = np.zeros(p, dtype=np.int32)
    return Normalizer(exponent, none, np.zeros(p), np.ones(p), quantiles)


def hard_rows(quantiles, rng):
    """Quantiles, their neighbours among floats, what lies between and outside."""
    between = rng.uniform(quantiles[:-1], quantiles[1:])
    rows = [quantiles, between, rng.permutation(quantiles)]
    rows += [np.nextafter(quantiles, end) for end in (-np.inf, np.inf)]
    shifts = np.outer([-1, 1], [1e-7, 9.99e-8, 1.001e-7, 5e-8]).ravel()
    rows += [quantiles[[0, -1]] + shift for shift in shifts]
    ends = np.array([[-np.inf], [-1e300], [-1.0], [0.0], [-0.0], [1e300], [np.inf]])
    return np.vstack([*rows, np.repeat(ends, quantiles.shape[1], axis=1)])


def hard_columns(n, rng):
    return np.column_stack(
        [
            rng.normal(size=n),
            rng.integers(0, 3, n),  # most quantiles are repeated
            rng.lognormal(size=n).round(1),
            np.where(np.arange(n) < n - 2, 5.0, 6.0),  # one step, at the end
            rng.normal(1e12, 1, n),  # scikit-learn's margin of 1e-7 vanishes here
            rng.normal(1e12, 1, n).round(),
            rng.normal(0, 1e-200, n),  # nothing but margin
            rng.normal(0, 1e300, n),
            np.repeat(7.0, n),
        ]
    )


def assert_bits(left, right):
    assert left.dtype == right.dtype and left.shape == right.shape
    assert left.tobytes() == right.tobytes()


@pytest.mark.parametrize("n_quantiles", [2, 3, 4, 5, 7, 8, 10, 63, 64, 65, 1000])
def test_the_quantile_map_has_the_bits_of_scikit_learn(n_quantiles):
    rng = np.random.default_rng(n_quantiles)
    sklearn = scikit_learn(hard_columns(3000, rng), n_quantiles)
    rows = hard_rows(sklearn.quantiles_, rng)
    finite = np.isfinite(rows).all(axis=1)
    expected = sklearn.transform(rows[finite])
    normalizer = with_quantiles(sklearn.quantiles_)
    assert_bits(normalizer._to_normal(rows[finite].T).T.copy(), expected)
    ends = normalizer._to_normal(rows[~finite].T)  # scikit-learn refuses them
    assert (ends[:, 0] == expected.min()).all() and (ends[:, 1] == expected.max()).all()


cells = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 1e12, 1e12 + 1]) | st.floats(-1e6, 1e6)


@given(st.lists(cells, min_size=2, max_size=40), st.lists(cells), st.integers(2, 40))
@settings(max_examples=150, deadline=None)
def test_any_column_has_the_bits_of_scikit_learn(train, rows, n_quantiles):
    train = np.array(train)[:, None]
    sklearn = scikit_learn(train, min(n_quantiles, len(train)))
    rows = np.vstack([train, np.array(rows).reshape(-1, 1), sklearn.quantiles_])
    result = with_quantiles(sklearn.quantiles_)._to_normal(rows.T)
    assert_bits(result.ravel(), sklearn.transform(rows).ravel())


@pytest.mark.parametrize(
    "method", ["quantile", "published-quantile", "standard", "none"]
)
@pytest.mark.parametrize("n", [7, 3000])
def test_a_row_alone_and_among_others_has_the_same_bits(method, n):
    rng = np.random.default_rng(n)
    train = hard_columns(n, rng)
    normalizer = Normalizer.fit(train, method, seed=1)
    rows = np.vstack([train[:100], train[:100] + 0.1, [[1.7e308] * train.shape[1]]])
    many = np.vstack([rows] * 20)  # more than a block
    together = normalizer.transform(many)
    assert np.isfinite(together).all() and together.flags.c_contiguous
    alone = np.vstack([normalizer.transform(row[None]) for row in rows])
    assert_bits(np.vstack([alone] * 20), together)
    assert_bits(normalizer.transform(np.asfortranarray(many)), together)


def test_constant_columns_and_no_columns_are_left_out():
    rng = np.random.default_rng(0)
    num = rng.normal(size=(50, 3)) * [1, 0, 1]
    result = Normalizer.fit(num, "quantile", seed=0).transform(num)
    assert (result[:, 1] == 0).all() and (result[:, [0, 2]].std(axis=0) > 0.5).all()
    nothing = Normalizer.fit(num[:, 1:2], "quantile", seed=0)
    assert nothing.transform(num[:, :1]).tolist() == [[0]] * 50
    assert nothing.fit(num[:, :0], "quantile", 0).transform(num[:, :0]).shape == (50, 0)


def test_a_pickle_holds_only_what_was_fitted():
    num = np.random.default_rng(0).normal(size=(50, 3))
    normalizer = Normalizer.fit(num, "quantile", seed=0)
    before, expected = pickle.dumps(normalizer), normalizer.transform(num)
    assert pickle.dumps(normalizer) == before
    assert_bits(pickle.loads(before).transform(num), expected)


def test_shares_of_many_columns_are_those_of_each():
    lows, highs = [0.0, -1.7e308, -2.0, 0.0], [1.0, 1.7e308, -1.0, 5e-324]
    values = np.array([-1.8e300, -1.5, 0.0, 0.3, np.nan, 1.7e308])
    many = share_between(
        np.tile(values, (4, 1)), np.array(lows)[:, None], np.array(highs)[:, None]
    )
    for row, low, high in zip(many, lows, highs, strict=True):
        assert_bits(row, share_between(values, low, high))
        assert row[4] == 0.5 and row.min() >= 0 and row.max() <= 1


def test_robust_scaling_is_by_quartiles_and_clips_smoothly():
    rng = np.random.default_rng(0)
    train, new = hard_columns(400, rng), hard_columns(60, rng)
    result = Normalizer.fit(train, "robust", 0).transform(new)
    assert np.isfinite(result).all() and np.abs(result).max() <= 3
    for j in range(train.shape[1]):
        low, median, high = np.percentile(train[:, j], [25, 50, 75])
        width = high - low
        if width == 0:
            width = (train[:, j].max() - train[:, j].min()) / 2
        z = (new[:, j] - median) / width if width else np.zeros(len(new))
        expected = z / np.sqrt(1 + (z / 3) ** 2)
        np.testing.assert_allclose(result[:, j], expected, rtol=1e-4, atol=1e-4)

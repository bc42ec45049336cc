import datetime
import json
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import QuantileTransformer

from tabr.errors import DataError
from tabr.tables.columns import Levels
from tabr.tables.frame import readable, to_frame
from tabr.tables.preprocessor import Arrays, Preprocessor
from tabr.tables.targets import NumberTarget


def plain(**options):
    return Preprocessor(normalization="none", **options)


def fitted(frame, **options):
    prep = plain(**options).fit(frame)
    return prep, prep.transform(frame)


def one(values, dtype=None):
    return pd.DataFrame({"a": pd.Series(values, dtype=dtype)})


def assert_same(left: Arrays, right: Arrays):
    for part in ("num", "bin", "cat"):
        a, b = getattr(left, part), getattr(right, part)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def mixed_frame(n=60, seed=0):
    rng = np.random.default_rng(seed)
    start = np.datetime64("2020-01-01T00", "h")
    return pd.DataFrame(
        {
            "age": rng.normal(40, 10, n).round(1),
            "pay": np.where(rng.random(n) < 0.2, np.nan, rng.lognormal(8, 1, n)),
            "sex": rng.choice(["f", "m"], n),
            "town": rng.choice(["x", "y", "z", None], n),
            "member": rng.random(n) < 0.5,
            "since": start + rng.integers(0, 20_000, n).astype("timedelta64[h]"),
            "one": 1,
        }
    )


def every_kind(n, seed):
    """Every kind and make of a column, the plain ones between the others."""
    rng = np.random.default_rng(seed)
    frame = mixed_frame(n, seed)
    frame.insert(0, "grade", pd.Categorical(rng.choice(["u", "v", "w"], n)))
    frame.insert(2, "steps", rng.integers(0, 9, n).astype(np.int16))
    frame.insert(4, "two", rng.choice([-3.0, 0.1], n))
    frame["many"] = pd.array(np.where(rng.random(n) < 0.2, None, 3), dtype="Int64")
    frame["half"] = rng.normal(size=n).astype(np.float32)
    frame["words"] = rng.choice(np.array(["a", "b", 1, 2.5, None], dtype=object), n)
    frame["texts"] = rng.choice(["1", "2.5", "3"], n)
    frame["spell"] = rng.integers(0, 10**6, n).astype("timedelta64[s]")
    frame["huge"] = rng.choice([2**63, 2**64 - 1], n).astype(np.uint64)
    frame["gaps"] = np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))
    frame["codes"] = rng.integers(0, 4, n)
    return frame


def as_vectors(arrays: Arrays):
    return np.concatenate([arrays.num, arrays.bin, arrays.cat], axis=1)


EVERY_KIND = {"texts": "numeric", "codes": "categorical", "member": "numeric"}


@pytest.mark.parametrize("normalization", ["none", "both"])
@pytest.mark.parametrize("dates", ["parts", "cycles"])
def test_sources_name_the_column_that_each_encoded_column_comes_from(
    normalization, dates
):
    frame = every_kind(200, 0)
    prep = Preprocessor(normalization=normalization, dates=dates, kinds=EVERY_KIND)
    prep.fit(frame)
    before = as_vectors(prep.transform(frame))
    sources = np.array(prep.shape(NumberTarget().fit(np.arange(200.0))).sources)
    assert len(sources) == before.shape[1]
    names = [name for name in frame if name not in prep.dropped]
    for place, name in enumerate(names):
        changed = frame.assign(**{name: frame[name].to_numpy()[::-1]})
        changed[name] = changed[name].astype(frame[name].dtype)
        after = as_vectors(prep.transform(changed))
        has_moved = (before != after).any(0)
        assert has_moved.any()
        assert set(sources[has_moved]) == {place}


# --- tables of any make


def test_all_makes_of_a_table_give_the_same_arrays():
    frame = mixed_frame()
    table = pa.Table.from_pandas(frame)
    prep = Preprocessor().fit(frame)
    expected = prep.transform(frame)
    makes = [table, pl.from_arrow(table), pl.from_arrow(table).lazy()]
    makes += [frame.to_dict("records"), frame.to_dict("list")]
    makes += [table.to_pandas(types_mapper=pd.ArrowDtype), frame.convert_dtypes()]
    for make in makes:
        assert_same(prep.transform(to_frame(make)), expected)
        assert_same(Preprocessor().fit(to_frame(make)).transform(frame), expected)


def test_unnamed_tables_get_default_names_or_the_given_ones():
    assert list(to_frame(np.zeros((2, 2)))) == ["x0", "x1"]
    assert list(to_frame([[1, "a"], [2, "b"]], names=["n", "t"])) == ["n", "t"]
    assert to_frame([[1, "a"], [2, "b"]])["x0"].tolist() == [1, 2]
    with pytest.raises(DataError, match="1 names came for 2 columns"):
        to_frame(np.zeros((2, 2)), names=["n"])


def test_a_frame_gets_text_names_and_a_fresh_index_and_is_left_alone():
    frame = pd.DataFrame({0: [1, 2], "b": [3, 4]}, index=[7, 7])
    result = to_frame(frame)
    assert list(result) == ["0", "b"] and list(result.index) == [0, 1]
    assert list(frame) == [0, "b"] and list(frame.index) == [7, 7]


def test_a_frame_that_is_ready_is_read_as_it_is():
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4]})
    assert readable(frame) is frame
    assert to_frame(frame) is not frame
    pd.testing.assert_frame_equal(to_frame(frame), frame)
    others = [frame.iloc[1:], frame.iloc[::-1], frame.set_index(np.array([0, 1]))]
    others += [frame.rename(columns={"a": 1}), frame.rename(columns={"a": np.nan})]
    others += [frame.rename_axis("names", axis=1), frame.set_axis([None, "b"], axis=1)]
    others += [frame.astype(object).T, {"a": [1, 2]}, [[1, 2]]]
    for table in others:
        result = readable(table)
        pd.testing.assert_frame_equal(result, to_frame(table))
        assert all(type(name) is str for name in result)
        assert result.columns.name is None and list(result.index) == [
            *range(len(result))
        ]
    for table in (frame[["a", "a"]], frame.iloc[:0], frame[[]], np.zeros(2)):
        with pytest.raises(DataError):
            readable(table)


def test_a_frame_may_change_after_it_was_taken():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    result = to_frame(frame)
    frame.loc[0, "a"] = 9.0
    assert result["a"].tolist() == [1, 2]


def test_duplicate_names_are_refused_by_name():
    frame = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])
    for table in (frame, pa.table([[1], [2]], names=["a", "a"])):
        with pytest.raises(DataError, match=r"\['a'\] came more than once"):
            to_frame(table)
    with pytest.raises(DataError, match="more than once"):
        to_frame(pd.DataFrame([[1, 2]], columns=[1, "1"]))


def test_empty_tables_are_refused_in_the_words_of_scikit_learn():
    with pytest.raises(DataError, match=r"0 sample\(s\) \(shape=\(0, 3\)\) while a"):
        to_frame(np.empty((0, 3)))
    with pytest.raises(DataError, match=r"0 feature\(s\) \(shape=\(12, 0\)\) while a"):
        to_frame(np.empty((12, 0)))


@pytest.mark.parametrize("X", [np.zeros(3), [1, 2], pd.Series([1.0]), pl.Series([1])])
def test_one_dimension_is_refused_with_the_way_to_reshape(X):
    with pytest.raises(DataError, match="Expected 2D array, got 1D array instead"):
        to_frame(X)
    with pytest.raises(DataError, match="Reshape your data"):
        to_frame(X)


@pytest.mark.parametrize(
    "X", [np.zeros((2, 2, 2)), np.zeros((2, 1), dtype=[("a", "f8")]), [[1], [1, 2]], 3]
)
def test_other_shapes_are_refused(X):
    with pytest.raises(DataError):
        to_frame(X)


@pytest.mark.parametrize("make", [scipy.sparse.csr_matrix, scipy.sparse.coo_array])
def test_sparse_tables_are_refused_with_the_way_to_a_dense_one(make):
    with pytest.raises(TypeError, match=r"sparse .* toarray\(\)"):
        to_frame(make(np.eye(3)))


def test_masked_and_byte_swapped_arrays_are_read():
    masked = np.ma.masked_array([[1.0], [2.0]], mask=[[False], [True]])
    assert to_frame(masked)["x0"].isna().tolist() == [False, True]
    swapped = to_frame(np.array([[1, 2], [3, 4], [5, 2]], dtype=">i4"))
    assert fitted(swapped, kinds={"x0": "categorical"})[1].cat.ravel().tolist() == [
        0,
        1,
        2,
    ]


# --- numbers


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, 2, 4], dtype="int8"),
        pd.Series([1, 2, 4], dtype="Int64"),
        pd.Series([1, 2, 4], dtype="Float64"),
        pd.Series([1, 2, 4], dtype="uint64"),
        pd.Series([1, 2, 4], dtype=object),
        pd.Series([Decimal("1"), Decimal("2"), 4.0], dtype=object),
        pd.Series([1, 2, 4], dtype=pd.ArrowDtype(pa.int32())),
        pd.Series([1, 2, 4], dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
        pd.Series([1.0, 2.0, 4.0], dtype=pd.SparseDtype("float64", 0.0)),
        pd.Series([1, 2, 4], dtype="timedelta64[s]"),
        pd.Series([datetime.timedelta(seconds=s) for s in (1, 2, 4)], dtype=object),
    ],
)
def test_any_numeric_type_is_numeric(column):
    prep, arrays = fitted(pd.DataFrame({"a": column}))
    assert prep.kinds_ == {"a": "numeric"}
    assert arrays.num.dtype == np.float32
    assert arrays.num.ravel().tolist() == [1, 2, 4]


@pytest.mark.parametrize("dtype", ["float64", "Float64", "Int64", object])
def test_missing_numbers_get_the_median_and_an_indicator(dtype):
    prep, arrays = fitted(one([1, None, 3, 8], dtype))
    assert arrays.num.ravel().tolist() == [1, 3, 3, 8]
    assert arrays.bin.ravel().tolist() == [0, 1, 0, 0]
    assert (prep.n_num, prep.n_bin, prep.cardinalities) == (1, 1, ())


def test_missing_only_later_is_imputed_without_indicator():
    prep, _ = fitted(one([1.0, 2.0, 6.0]))
    later = prep.transform(one([None, 1.0], "float64"))
    assert later.num.ravel().tolist() == [2, 1] and later.bin.shape == (2, 0)
    assert prep.transform(one([None, pd.NA], object)).num.ravel().tolist() == [2, 2]


def test_indicators_follow_all_binary_columns():
    frame = pd.DataFrame({"a": [1.0, None, 3.0], "b": [0, 1, 1]})
    _, arrays = fitted(frame)
    assert arrays.bin.tolist() == [[0, 0], [1, 1], [1, 0]]


def test_one_value_and_missing_keeps_the_indicator():
    for method in ("quantile", "published-quantile", "standard", "none"):
        prep = Preprocessor(normalization=method).fit(one([5.0, None, 5.0]))
        arrays = prep.transform(one([5.0, None, 7.0]))
        assert arrays.num.ravel().tolist() == [0, 0, 0]
        assert arrays.bin.ravel().tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "cells", [[1.0, np.inf, 2.0], [1, -np.inf, 2], [1, 10**400, 2], ["1", "inf", "2"]]
)
def test_infinite_values_are_refused_with_column_and_row(cells):
    prep, _ = fitted(one([1.0, 2.0, 3.0]))
    with pytest.raises(DataError, match=r"column 'a'.* infinite value in row 1 "):
        prep.transform(one(cells, object))
    with pytest.raises(DataError, match=r"column 'a'.* infinite value in row 1 "):
        plain(kinds={"a": "numeric"}).fit(one(cells, object))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("kind", ["numeric", "binary"])
def test_of_plain_columns_the_first_infinite_value_is_named(dtype, kind):
    frame = pd.DataFrame({"c": [1.0, 2.0], "b": [5.0, 7.0], "a": [1.0, 2.0]})
    prep, _ = fitted(frame, kinds=dict.fromkeys(frame, kind))
    later = frame[["a", "b", "c"]].astype(dtype)
    later.loc[0, "a"], later.loc[1, "b"] = np.inf, -np.inf
    with pytest.raises(DataError, match=r"column 'b'.* infinite value in row 1 "):
        prep.transform(later)
    later["c"] = "text"  # this error comes first, though its column is not plain
    with pytest.raises(DataError, match="column 'c' was numeric in fit"):
        prep.transform(later)


def test_plain_columns_read_together_are_those_read_one_by_one():
    rng = np.random.default_rng(0)
    types = [bool, "int8", "uint8", "int64", "uint64", "float16", "float32", "float64"]
    frame = pd.DataFrame({f"{t}": rng.integers(0, 2, 40).astype(t) for t in types})
    for t in types[1:]:
        frame[f"many {t}"] = rng.integers(0, 99, 40).astype(t)
    frame["wide"] = rng.integers(2**62, 2**63 - 1, 40)
    frame["gaps"] = np.where(rng.random(40) < 0.3, np.nan, rng.random(40))
    prep = Preprocessor(kinds={"int8": "numeric"}).fit(frame)
    expected = prep.transform(frame.astype(object))
    assert expected.num.shape == (40, 10) and expected.bin.shape == (40, 8)
    for table in (frame, frame[frame.columns[::-1]], frame.assign(more="text")):
        assert_same(prep.transform(table), expected)
        table = table.astype({"gaps": "Float64", "uint8": "UInt8", "wide": object})
        assert_same(prep.transform(table), expected)
    swapped = frame.astype({"float64": ">f8", "many int64": ">i8"})
    assert_same(prep.transform(swapped), expected)


@pytest.mark.parametrize("dtype", [complex, object])
def test_complex_numbers_are_refused(dtype):
    with pytest.raises(DataError, match="Complex data not supported"):
        plain().fit(one([1 + 1j, 2j], dtype))


@pytest.mark.parametrize("cell", [{"foo": "bar"}, [1], {1}, np.zeros(2)])
def test_unhashable_cells_are_a_type_error_with_column_and_row(cell):
    frame = one([1.0, 2.0, 3.0], object)
    frame.at[1, "a"] = cell
    with pytest.raises(TypeError, match=r"must be a string or a number.*'a'.*row 1;"):
        plain().fit(frame)


def test_nested_columns_are_refused():
    lists = pa.table({"a": [[1], [2, 3]]})
    structs = pl.DataFrame({"a": [{"b": 1}, {"b": 2}]})
    arrow = lists.to_pandas(types_mapper=pd.ArrowDtype)
    for table in (lists, structs, structs.lazy(), arrow):
        with pytest.raises(DataError, match="column 'a' holds nested"):
            plain().fit(to_frame(table))


# --- binary columns


def test_two_numbers_are_binary_and_later_ones_linear_and_clipped():
    prep, arrays = fitted(one([10, 30, 30]))
    assert prep.kinds_ == {"a": "binary"} and arrays.bin.dtype == np.float32
    assert arrays.bin.ravel().tolist() == [0, 1, 1]
    later = prep.transform(one([15, 20, -100, 1e308, None], "float64"))
    assert later.bin.ravel().tolist() == [0.25, 0.5, 0, 1, 0.5]


@pytest.mark.parametrize("pair", [[-1.7e308, 1.7e308], [0.0, 5e-324], [-2.0, -1.0]])
def test_two_numbers_of_any_size_are_binary(pair):
    prep, arrays = fitted(one(pair))
    assert arrays.bin.ravel().tolist() == [0, 1]
    ends = one([-sys.float_info.max, sys.float_info.max])
    assert prep.transform(ends).bin.ravel().tolist() == [0, 1]


def test_two_numbers_with_missing_are_numeric():
    assert fitted(one([1, 2, None]))[0].kinds_ == {"a": "numeric"}


@pytest.mark.parametrize("dtype", [bool, "boolean", object])
def test_flags_are_binary_and_may_come_back_as_text(dtype):
    prep, arrays = fitted(one([True, False, True], dtype))
    assert prep.kinds_ == {"a": "binary"}
    assert arrays.bin.ravel().tolist() == [1, 0, 1]
    assert prep.transform(one(["True", "false", None])).bin.ravel().tolist() == [
        1,
        0,
        0.5,
    ]
    with pytest.raises(DataError, match="first value 'maybe'"):
        prep.transform(one(["maybe"]))


def test_flags_with_missing_are_categories():
    prep, arrays = fitted(one([True, False, None], object))
    assert prep.kinds_ == {"a": "categorical"}
    assert arrays.cat.ravel().tolist() == [1, 0, 2]


@pytest.mark.parametrize("dtype", [object, "string", "category"])
def test_two_texts_are_binary_and_unknown_ones_halfway(dtype):
    prep, arrays = fitted(one(["m", "f", "m"], dtype))
    assert prep.kinds_ == {"a": "binary"}
    assert arrays.bin.ravel().tolist() == [1, 0, 1]
    later = prep.transform(one(["f", "x", None], dtype))
    assert later.bin.ravel().tolist() == [0, 0.5, 0.5]


# --- categories


@pytest.mark.parametrize("dtype", [object, "string", "category"])
def test_missing_is_a_level_that_no_text_can_be(dtype):
    texts = ["nan", None, "None", "<NA>", "", "missing"]
    prep, arrays = fitted(one(texts, dtype))
    assert prep.cardinalities == (6,)
    assert len(set(arrays.cat.ravel())) == 6
    assert prep.transform(one([None], object)).cat[0, 0] == arrays.cat[1, 0]


def test_unseen_values_and_missing_only_later_have_no_level():
    prep, arrays = fitted(one(["a", "b", "c"]))
    assert arrays.cat.dtype == np.int64
    later = prep.transform(one(["c", "new", None]))
    assert later.cat.ravel().tolist() == [2, -1, -1]


def test_whole_numbers_are_one_level_in_every_type():
    prep, _ = fitted(one([1, 2, 3]), kinds={"a": "categorical"})
    for cells in ([3, 1], [3.0, 1.0], ["3", "1"], [Decimal("3.0"), 1]):
        for dtype in (None, object):
            codes = prep.transform(one(cells, dtype)).cat.ravel()
            assert codes.tolist() == [2, 0]
    assert prep.transform(one([3.0, None])).cat.ravel().tolist() == [2, -1]


def test_mixed_objects_are_levels_by_text():
    cells = ["a", 1, 2.5, True, (1, 2)]
    prep, arrays = fitted(one(cells, object))
    assert prep.cardinalities == (5,)
    again = prep.transform(one(cells[::-1], object))
    assert again.cat.ravel().tolist() == arrays.cat.ravel().tolist()[::-1]


def test_unused_categories_are_no_levels():
    column = pd.Categorical(["c", "a", "b"], categories=["z", "c", "b", "a"])
    prep, arrays = fitted(pd.DataFrame({"a": column}))
    assert prep.cardinalities == (3,)
    assert arrays.cat.ravel().tolist() == [2, 0, 1]
    assert fitted(pd.DataFrame({"a": column[:2]}))[0].kinds_ == {"a": "binary"}


def test_rare_levels_share_one_and_unseen_ones_still_have_none():
    cells = ["d"] * 3 + ["c"] * 2 + ["b"] * 2 + ["a"] * 2 + ["e"]
    prep, arrays = fitted(one(cells), max_levels=3)
    assert prep.cardinalities == (3,)
    code = dict(zip(cells, arrays.cat.ravel().tolist(), strict=True))
    assert code == {"a": 0, "d": 1, "b": 2, "c": 2, "e": 2}
    assert prep.transform(one(["new"])).cat.ravel().tolist() == [-1]


def test_the_missing_level_is_never_rare():
    prep, arrays = fitted(one(["a", "a", "b", "c", None]), max_levels=3)
    assert arrays.cat.ravel().tolist() == [0, 0, 1, 1, 2]
    prep, arrays = fitted(one(["a", "b", None]), max_levels=2)
    assert (prep.cardinalities, arrays.cat.ravel().tolist()) == ((2,), [0, 0, 1])


@given(st.lists(st.none() | st.text(max_size=3), min_size=1), st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_codes_stay_below_the_number_of_levels(cells, max_levels):
    kinds = {"a": "categorical"}
    prep, arrays = fitted(one(cells, object), max_levels=max_levels, kinds=kinds)
    for count, codes in zip(prep.cardinalities, arrays.cat.T, strict=True):
        assert 2 <= count <= max_levels
        assert set(codes) == set(range(count))


# --- means of levels


def sold(n=200, n_shops=30, seed=0):
    """Rows with a shop, one of many; their labels; their weights."""
    rng = np.random.default_rng(seed)
    shops = [f"s{k}" for k in rng.integers(0, n_shops, n)]
    shops[0] = None
    frame = pd.DataFrame({"shop": shops, "size": rng.normal(size=n)})
    labels = rng.normal(size=(n, 2)) + rng.integers(0, 2, n)[:, None]
    return frame, labels, rng.uniform(0.5, 3, n)


def with_means(frame, labels, weights=None, **options):
    options = {"normalization": "none", "max_levels": 9, "levels": "means"} | options
    prep = Preprocessor(**options)
    return prep, prep.fit_transform(frame, labels=labels, weights=weights)


def slow_mean(labels, weights):
    """The mean of some labels, drawn to that of all by ten rows of the mean weight."""
    prior = np.average(labels, axis=0, weights=weights)

    def of(rows):
        few = 10 * weights.mean()
        sums = few * prior
        total = few
        for row in np.flatnonzero(rows):
            sums = sums + weights[row] * labels[row]
            total += weights[row]
        return sums / total

    return of


def test_new_rows_get_the_mean_label_of_their_level():
    frame, labels, weights = sold()
    prep, _ = with_means(frame, labels, weights)
    later = prep.transform(frame)
    of = slow_mean(labels, weights)
    for row, shop in enumerate(frame["shop"]):
        same = frame["shop"].isna() if pd.isna(shop) else frame["shop"] == shop
        np.testing.assert_allclose(later.num[row, :2], of(same), rtol=1e-5)
    np.testing.assert_allclose(later.num[:, 2], frame["size"], rtol=1e-6)
    unseen = prep.transform(frame.head(1).assign(shop="new"))
    prior = np.average(labels, axis=0, weights=weights)
    np.testing.assert_allclose(unseen.num[0, :2], prior, rtol=1e-5)


def test_training_rows_get_the_means_of_other_folds():
    frame, labels, weights = sold()
    _, arrays = with_means(frame, labels, weights, seed=3)
    folds = np.random.RandomState(3).permutation(len(frame)) % 5
    shops = frame["shop"].fillna("").to_numpy()
    for row, shop in enumerate(shops):
        out = folds != folds[row]
        of = slow_mean(labels[out], weights[out])
        np.testing.assert_allclose(arrays.num[row, :2], of(shops[out] == shop), 1e-5)


def test_no_training_row_meets_its_own_label():
    frame, labels, _ = sold()
    _, arrays = with_means(frame, labels)
    for row in range(0, len(frame), 7):
        changed = labels.copy()
        changed[row] += 1000
        _, other = with_means(frame, changed)
        np.testing.assert_array_equal(other.num[row], arrays.num[row])
        assert (other.num[:, 0] != arrays.num[:, 0]).any()


def test_means_need_more_levels_than_have_columns_of_their_own_and_labels():
    frame, labels, _ = sold()
    without = plain(max_levels=9).fit_transform(frame)
    for options in ({"levels": "codes"}, {"max_levels": 40}):
        prep, arrays = with_means(frame, labels, **options)
        assert prep.n_num == 1
    prep, arrays = with_means(frame, None)
    assert_same(arrays, without)
    _, arrays = with_means(frame, labels)
    np.testing.assert_array_equal(arrays.cat, without.cat)


# --- dates


def stamps(*texts):
    return pd.DataFrame({"a": pd.to_datetime(list(texts), format="ISO8601")})


def test_dates_become_days_and_the_parts_that_vary():
    prep, arrays = fitted(stamps("1970-01-02", "1970-01-03", "1970-02-01"))
    assert prep.kinds_ == {"a": "date"} and prep.n_num == 4
    assert arrays.num.tolist() == [[1, 1, 2, 4], [2, 1, 3, 5], [31, 2, 1, 6]]
    assert fitted(stamps("1970-01-01T00", "1970-01-01T12"))[1].num.tolist() == [
        [0, 0],
        [0.5, 12],
    ]


def test_all_makes_of_a_date_are_equal():
    times = [datetime.datetime(2020, 1, d, 3) for d in (1, 2, 9)]
    expected = fitted(one(times))[1]
    zone = datetime.timezone(datetime.timedelta(hours=2))
    aware = [t.replace(tzinfo=datetime.UTC).astimezone(zone) for t in times]
    polars = pl.DataFrame({"a": aware})
    makes = [one(times, object), one(aware), one(aware, object), polars]
    makes += [one(times, "datetime64[s]"), one(times, pd.ArrowDtype(pa.timestamp("s")))]
    makes += [polars.to_arrow(), one(pd.Series(times).dt.to_period("h"))]
    for make in makes:
        assert_same(fitted(to_frame(make))[1], expected)


@pytest.mark.parametrize("year", [1500, 9999])
def test_plain_dates_of_any_year_are_read(year):
    dates = [datetime.date(year, 1, d) for d in (1, 2, 4)]
    for table in (one(dates, object), pl.DataFrame({"a": dates})):
        assert fitted(to_frame(table))[1].num[:, 1].tolist() == [1, 2, 4]


def test_missing_dates_are_missing_numbers_with_one_indicator():
    _, arrays = fitted(stamps("2020-01-01", None, "2020-03-01"))
    assert np.isfinite(arrays.num).all()
    assert arrays.bin.ravel().tolist() == [0, 1, 0]
    assert fitted(stamps("2020-01-01", None))[1].bin.ravel().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["2024-05-31", "2023-01-02", None], "date"),
        (["2024-05-31T10:00:00", "2023-01-02 11:30", "2023-01-02"], "date"),
        (["2024-05-31T10:00:00Z", "2023-01-02T11:30:00+02:00"], "date"),
        (["2024-05-31", "2023-13-02", "x"], "categorical"),
        (["2024-05-31", "2023-13-02", "2023-01-02"], "categorical"),  # no month 13
        (["2024-05-31-a", "2024-05-31-b", "2024-05-31-c"], "categorical"),
        (["20240531", "20230102", "20230103"], "categorical"),
        (pd.Categorical(["2024-05-31", "2023-01-02", "2023-01-03"]), "categorical"),
    ],
)
def test_text_is_a_date_if_all_of_it_is_written_as_one(texts, kind):
    frame = pd.DataFrame({"x": pd.Series(texts)})
    assert Preprocessor().fit(frame).kinds_ == {"x": kind}
    text = Preprocessor(kinds={"x": "categorical"}).fit(frame)
    assert text.kinds_ == {"x": "categorical"}


def test_dates_as_text_are_the_dates_themselves():
    days = pd.Series(pd.date_range("2020-01-01", periods=60, freq="37h"))
    as_text = pd.DataFrame({"x": days.dt.strftime("%Y-%m-%d %H:%M:%S")})
    read, true = (
        Preprocessor().fit(frame).transform(frame).num
        for frame in (as_text, pd.DataFrame({"x": days}))
    )
    np.testing.assert_array_equal(read, true)


def test_a_date_may_come_back_as_iso_text_and_as_nothing_else():
    frame = stamps("2020-01-01T01", "2020-02-01T02", "2020-02-03T04")
    prep, arrays = fitted(frame)
    texts = ["2020-01-01 01:00", "2020-02-01T02:00:00Z", "2020-02-03T06:00+02:00"]
    assert_same(prep.transform(one(texts)), arrays)
    with pytest.raises(DataError, match=r"was date in fit and is text.*'soon'"):
        prep.transform(one(["2020-01-01", "soon"]))
    with pytest.raises(DataError, match=r"'a' was date in fit and is numeric here"):
        prep.transform(one([1.0, 2.0]))


def test_cycles_are_places_on_circles_that_the_rows_go_round():
    hours = pd.date_range("2023-12-25", "2025-03-01", freq="7h")
    prep, arrays = fitted(pd.DataFrame({"a": hours}), dates="cycles")
    assert prep.kinds_ == {"a": "date"} and prep.n_num == 1
    np.testing.assert_allclose(
        arrays.num[:, 0], (hours - pd.Timestamp("1970")) / pd.Timedelta(days=1)
    )
    for row, time in zip(arrays.bin, hours, strict=True):
        midnight = time.normalize()
        share = (time - midnight) / pd.Timedelta(days=1)
        year = pd.Timestamp(time.year, 1, 1)
        turns = [
            *(share * k for k in (1, 2, 3, 4)),
            *((time.day_of_week + share) / 7 * k for k in (1, 2, 3)),
            (time.day - 1 + share) / time.days_in_month,
            *(
                (time - year) / (pd.Timestamp(time.year + 1, 1, 1) - year) * k
                for k in (1, 2)
            ),
        ]
        slow = [
            part
            for turn in turns
            for part in (np.sin(2 * np.pi * turn), np.cos(2 * np.pi * turn))
        ]
        np.testing.assert_allclose(row, slow, atol=1e-6)


@pytest.mark.parametrize(
    ("end", "freq", "width"),
    [
        ("2024-01-01T20", "2h", 0),  # not once round the day
        ("2024-01-03", "2h", 8),
        ("2024-01-12", "1D", 6),  # no times of day
        ("2024-01-12", "7h", 14),
        ("2024-06-01", "1D", 8),
        ("2025-06-01", "1D", 12),
    ],
)
def test_a_cycle_that_the_rows_do_not_go_round_is_left_out(end, freq, width):
    days = pd.DataFrame({"a": pd.date_range("2024-01-01", end, freq=freq)})
    assert fitted(days, dates="cycles")[1].bin.shape[1] == width


def test_a_missing_date_is_in_the_middle_of_each_circle():
    days = pd.date_range("2024-01-01", "2025-06-01", freq="1D").tolist()
    _, arrays = fitted(stamps(*days, None), dates="cycles")
    assert arrays.bin[-1].tolist() == [0] * 12 + [1]
    assert arrays.num[-1] == np.median(arrays.num[:-1])
    _, arrays = fitted(stamps("2020-01-01", None), dates="cycles")
    assert arrays.num.shape == (2, 1) and arrays.bin.ravel().tolist() == [0, 1]


# --- trends


def over_time(n=120):
    """Rows in time order: two columns follow time, the others do not."""
    rng = np.random.default_rng(0)
    days = pd.date_range("2020-01-01", periods=n, freq="9D")
    return pd.DataFrame(
        {
            "day": days,
            "count": np.arange(n) + rng.normal(size=n),
            "size": rng.normal(size=n),
            "spent": rng.poisson(0.2, n),  # most rows lie at its edge
            "flag": np.arange(n) % 2,
            "town": rng.choice(["a", "b", "c"], n),
        }
    )


def fitted_until(rows, until, **options):
    prep = Preprocessor(trends="within", **options)
    prep.fit_transform(rows.iloc[:until], rows.iloc[until:])
    return prep


def test_a_column_in_which_held_out_rows_lie_ahead_is_left_out():
    rows = over_time()
    prep = fitted_until(rows, 90)
    assert prep.dropped == ("count",)
    shuffled = rows.sample(frac=1, random_state=0)
    assert fitted_until(shuffled, 90).dropped == ()
    backwards = fitted_until(rows.iloc[::-1], 90)
    assert backwards.dropped == ("count",)


def test_the_trend_is_a_date_in_which_held_out_rows_lie_ahead_or_else_a_number():
    rows = over_time()
    assert fitted_until(rows, 90).trend == "day"
    assert fitted_until(rows[["size", "count"]], 90).trend == "count"
    assert fitted_until(rows.sample(frac=1, random_state=0), 90).trend is None
    assert fitted_until(rows[["size", "flag"]], 90).trend is None


@pytest.mark.parametrize("dates", ["parts", "cycles"])
def test_of_a_date_only_the_trend_is_left_out(dates):
    rows = over_time()
    with_days, without = (
        Preprocessor(trends=trends, dates=dates, normalization="none")
        for trends in ("all", "within")
    )
    for prep in (with_days, without):
        prep.fit_transform(rows[["day"]].iloc[:90], rows[["day"]].iloc[90:])
    first, second = (prep.transform(rows) for prep in (with_days, without))
    np.testing.assert_array_equal(second.num, first.num[:, 1:])
    np.testing.assert_array_equal(second.bin, first.bin)


def test_trends_are_kept_where_few_rows_or_nothing_else_tells_of_them():
    rows = over_time()
    assert fitted_until(rows, 105).dropped == ()  # 15 rows held out
    assert fitted_until(rows[["count"]], 90).dropped == ()  # nothing else is there
    prep = Preprocessor(trends="all")
    prep.fit_transform(rows.iloc[:90], rows.iloc[90:])
    assert prep.dropped == ()


def test_a_column_left_out_may_be_absent_later():
    rows = over_time()
    prep = fitted_until(rows, 90, dates="cycles")
    later = rows.drop(columns="count")
    assert_same(prep.transform(later), prep.transform(rows))


# --- constant columns, matching of columns


@pytest.mark.parametrize(
    "column", [[1, 1, 1], ["a", "a", "a"], [None] * 3, [True] * 3, [pd.NaT] * 3]
)
def test_constant_columns_are_dropped_and_may_be_absent_later(column):
    frame = pd.DataFrame({"c": column, "a": [1, 2, 3]})
    prep, arrays = fitted(frame)
    assert prep.dropped == ("c",) and prep.feature_names == ("c", "a")
    assert prep.kinds_ == {"a": "numeric"}
    assert_same(prep.transform(frame[["a"]]), arrays)


def test_an_all_constant_table_keeps_its_first_column_as_zeros():
    frame = pd.DataFrame({"t": ["a", "a"], "n": [1, 1]})
    prep = Preprocessor().fit(frame)
    assert (prep.n_num, prep.n_bin, prep.dropped) == (1, 0, ("n",))
    assert prep.transform(frame).num.tolist() == [[0], [0]]
    again = Preprocessor.from_state(*prep.state())
    assert again.transform(frame).num.tolist() == [[0], [0]]


@given(st.permutations(list(mixed_frame(2))), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_column_order_and_extra_columns_do_not_matter(order, n_extra):
    frame = mixed_frame()
    prep = Preprocessor().fit(frame)
    extra = {f"extra{i}": 1j for i in range(n_extra)}
    assert_same(prep.transform(frame[order].assign(**extra)), prep.transform(frame))


def test_absent_columns_are_named():
    prep = Preprocessor().fit(mixed_frame())
    with pytest.raises(DataError, match=r"\['age', 'town'\] are absent"):
        prep.transform(mixed_frame().drop(columns=["town", "age"]))


def test_unnamed_tables_are_matched_by_position_and_width():
    X = np.random.default_rng(0).normal(size=(20, 3))
    named = pd.DataFrame(X, columns=["a", "b", "c"])
    for fit_on in (to_frame(X), named):
        prep = Preprocessor().fit(fit_on)
        assert_same(prep.transform(to_frame(X)), prep.transform(named))
        for width in (1, 2, 4):
            wrong = to_frame(np.zeros((2, width)))
            words = f"X has {width} features, but TabR is expecting 3 features as input"
            with pytest.raises(DataError, match=words):
                prep.transform(wrong, caller="TabR")
    with pytest.raises(DataError, match="X has 2 features, but Preprocessor is"):
        Preprocessor().fit(to_frame(X)).transform(named[["a", "b"]])


def test_ignored_columns_are_no_features_and_may_be_absent():
    frame = mixed_frame()
    prep = Preprocessor(ignore=["town", "nowhere"]).fit(frame)
    assert "town" not in prep.feature_names and prep.cardinalities == ()
    assert_same(prep.transform(frame.drop(columns="town")), prep.transform(frame))
    unnamed = to_frame(frame.to_numpy(dtype=object))
    assert_same(prep.transform(unnamed), prep.transform(frame))
    with pytest.raises(DataError, match="ignore fewer"):
        Preprocessor(ignore=list(frame)).fit(frame)


# --- changed types and kinds


def test_numbers_may_come_back_as_text_if_all_parse():
    prep, arrays = fitted(one([1.5, 2.0, 4.0]))
    for dtype in (object, "category"):
        assert_same(prep.transform(one(["1.5", "2", "4e0"], dtype)), arrays)
    with pytest.raises(DataError) as error:
        prep.transform(one(["1", "n/a", "x"]))
    assert str(error.value) == (
        "column 'a' was numeric in fit and is text here (first value 'n/a');"
        " convert it or fit again"
    )
    with pytest.raises(DataError, match="was numeric in fit and is date here"):
        prep.transform(stamps("2020-01-01"))


def test_kinds_override_what_a_column_looks_like():
    assert fitted(one([1, 2, 2]), kinds={"a": "numeric"})[1].num.shape == (3, 1)
    assert fitted(one([1, 2, 3]), kinds={"a": "categorical"})[0].cardinalities == (3,)
    assert fitted(one(["1", "2"]), kinds={"a": "numeric"})[1].num.tolist() == [[1], [2]]
    dates, _ = fitted(one(["2020-01-01", "2021-01-01"]), kinds={"a": "date"})
    assert dates.kinds_ == {"a": "date"}
    halves = fitted(one([1, 2, None]), kinds={"a": "binary"})[1]
    assert halves.bin.ravel().tolist() == [0, 1, 0.5]


@pytest.mark.parametrize(
    ("cells", "kinds", "words"),
    [
        ([1, 2], {"b": "numeric"}, r"it names \['b'\]"),
        ([1, 2], {"a": "number"}, "'number' for column 'a'"),
        ([1, 2, 3], {"a": "binary"}, "'a' is binary in kinds and holds 3"),
        (["a", "b", "c"], {"a": "binary"}, "'a' is binary in kinds and holds 3"),
        (["a", "b"], {"a": "numeric"}, "is numeric in kinds and is text.* change kin"),
        ([1, 2], {"a": "date"}, "is date in kinds and is numeric"),
    ],
)
def test_impossible_kinds_are_refused(cells, kinds, words):
    with pytest.raises(DataError, match=words):
        plain(kinds=kinds).fit(one(cells))


def test_impossible_options_are_refused():
    with pytest.raises(DataError, match="normalization must be one of"):
        Preprocessor(normalization="minmax")
    with pytest.raises(DataError, match="dates must be one of"):
        Preprocessor(dates="circles")
    with pytest.raises(DataError, match="trends must be one of"):
        Preprocessor(trends="none")
    with pytest.raises(DataError, match="levels must be one of"):
        Preprocessor(levels="ranks")
    with pytest.raises(DataError, match="max_levels must be at least 2"):
        Preprocessor(max_levels=1)
    with pytest.raises(NotFittedError, match="TabR is not fitted"):
        Preprocessor().transform(one([1]), caller="TabR")


# --- normalisation


def scikit_learn(train, rows):
    n_quantiles = min(max(min(len(train) // 30, 1000), 10), len(train))
    quantile = QuantileTransformer(
        n_quantiles=n_quantiles, output_distribution="normal", subsample=10**9
    )
    return quantile.fit(train).transform(rows).astype(np.float32)


@pytest.mark.parametrize("n", [7, 400, 40_000])
def test_quantile_equals_scikit_learn_on_noisy_rows(n):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(3, 5, n), rng.lognormal(size=n).round(1)])
    rows = np.vstack([X, X + rng.normal(size=X.shape), [[1e9, -1e9]]])
    z = np.random.RandomState(3).standard_normal(X.shape)
    columns = [np.ascontiguousarray(column) for column in X.T]
    std = np.array([column.std() for column in columns])
    noises = {"quantile": 1e-3 * std, "published-quantile": 1e-3 / np.fmax(std, 1e-3)}
    for method, noise in noises.items():
        prep = Preprocessor(normalization=method, seed=3).fit(to_frame(X))
        expected = scikit_learn(X + noise * z, rows)
        np.testing.assert_array_equal(prep.transform(to_frame(rows)).num, expected)


def test_quantile_does_not_depend_on_the_unit_where_the_published_one_does():
    X = np.random.default_rng(0).normal(size=(500, 1))

    def normalized(method, unit):
        prep = Preprocessor(normalization=method).fit(to_frame(X * unit))
        return prep.transform(to_frame(X * unit)).num

    usual = normalized("quantile", 1.0)
    for unit in (2.0**-60, 2.0**40):
        np.testing.assert_array_equal(normalized("quantile", unit), usual)
    np.testing.assert_allclose(normalized("quantile", 1e-12), usual, atol=1e-4)
    drowned = normalized("published-quantile", 1e-12)
    assert np.ptp(drowned) < 0.01 < np.ptp(normalized("published-quantile", 1.0))


def test_same_seed_same_result_and_the_noise_depends_on_the_seed():
    frame = mixed_frame()
    first, second = (Preprocessor(seed=1).fit(frame).transform(frame) for _ in "ab")
    assert_same(first, second)
    other = Preprocessor(seed=2).fit(frame).transform(frame)
    assert (first.num != other.num).any()


def test_standard_has_mean_zero_and_deviation_one():
    X = np.random.default_rng(0).normal(50, 7, size=(300, 2))
    prep = Preprocessor(normalization="standard").fit(to_frame(X))
    expected = (X - X.mean(axis=0)) / X.std(axis=0)
    num = prep.transform(to_frame(X)).num
    np.testing.assert_allclose(num, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "method", ["quantile", "published-quantile", "standard", "none"]
)
@given(st.lists(st.floats(allow_infinity=False), min_size=2, max_size=12))
@settings(max_examples=40, deadline=None)
@pytest.mark.filterwarnings("error")
def test_results_are_finite_and_ordered_for_any_finite_numbers(method, cells):
    kinds = {"a": "numeric"}
    prep = Preprocessor(normalization=method, kinds=kinds).fit(one(cells, "float64"))
    ends = [-sys.float_info.max, sys.float_info.max]
    later = np.sort([c for c in [*cells, *ends] if not np.isnan(c)])
    num = prep.transform(one(later)).num.ravel()
    # in float64, as the difference of the ends overflows in float32
    steps = np.diff(num.astype(np.float64))
    assert np.isfinite(num).all() and (steps >= -1e-6).all()


def test_numbers_beyond_float32_are_clipped():
    arrays = fitted(one([1e300, -1e300, 0.0]))[1]
    limit = np.finfo(np.float32).max
    assert arrays.num.ravel().tolist() == [limit, -limit, 0]


# --- state and speed


@pytest.mark.parametrize("dates", ["parts", "cycles"])
@pytest.mark.parametrize(
    "method", ["quantile", "published-quantile", "standard", "both", "none"]
)
def test_a_preprocessor_from_state_transforms_bit_identically(method, dates):
    frame = mixed_frame()
    options = {"kinds": {"age": "numeric"}, "max_levels": 3, "ignore": ["member"]}
    options |= {"dates": dates, "trends": "within", "levels": "means"}
    prep = Preprocessor(normalization=method, seed=5, **options)
    labels = np.arange(2.0 * len(frame)).reshape(-1, 2)
    frame["shop"] = [f"s{k % 9}" for k in range(len(frame))]
    latest = frame.iloc[np.argsort(frame["since"])[-25:]]
    prep.fit_transform(frame, latest, labels=labels)
    later = mixed_frame(30, 1).assign(shop=[f"s{k % 11}" for k in range(30)])
    state, arrays = prep.state()
    assert all(a.dtype.kind in "if" and a.flags.c_contiguous for a in arrays.values())
    again = Preprocessor.from_state(json.loads(json.dumps(state)), arrays)
    assert_same(again.transform(later), prep.transform(later))
    for name in ("feature_names", "kinds_", "dropped", "n_num", "n_bin"):
        assert getattr(again, name) == getattr(prep, name)
    assert again.cardinalities == prep.cardinalities
    assert json.dumps(again.state()[0]) == json.dumps(state)


@pytest.mark.parametrize(
    "method", ["quantile", "published-quantile", "standard", "none"]
)
@given(st.integers(0, 2**32 - 1), st.integers(20, 90), st.randoms())
@settings(max_examples=6, deadline=None)
def test_rows_one_by_one_have_the_bits_of_all_together(method, seed, n, random):
    frame = every_kind(n, seed)
    dates = random.choice(["parts", "cycles"])
    prep = Preprocessor(normalization=method, kinds=EVERY_KIND, dates=dates).fit(frame)
    later = every_kind(25, seed + 1)
    later = later[random.sample(list(later), later.shape[1])]
    together = prep.transform(later)
    assert together.num.shape == (25, prep.n_num)
    assert together.bin.shape == (25, prep.n_bin)
    rows = [prep.transform(later.iloc[[i]]) for i in range(25)]
    for part in ("num", "bin", "cat"):
        whole = getattr(together, part)
        joined = np.concatenate([getattr(row, part) for row in rows])
        assert whole.flags.c_contiguous and joined.dtype == whole.dtype
        assert joined.tobytes() == whole.tobytes()


def test_the_frame_of_every_kind_holds_them_all():
    prep = Preprocessor(kinds=EVERY_KIND).fit(every_kind(80, 0))
    assert {type(c).__name__ for c in prep._columns} == {
        "Numeric",
        "Date",
        "BinaryNumber",
        "BinaryText",
        "Categorical",
    }
    assert prep.dropped == ("one",) and prep.n_bin > 5 and len(prep.cardinalities) == 4


@pytest.mark.parametrize("first", ["a\ud800", True])
def test_text_that_is_no_unicode_is_refused(first):
    whole = pd.DataFrame({"x": ["a", "b", "c"] * 4})
    frame = pd.DataFrame({"x": pd.Series([first, "\ud800", "c"] * 4, dtype=object)})
    prep = Preprocessor().fit(whole)
    for read in (Preprocessor().fit, prep.transform):
        with pytest.raises(DataError, match=r"column 'x' holds half of a character"):
            read(frame)
    for table in ({"x": ["a", "\ud800"]}, [{"x": "a"}, {"x": "\ud800"}]):
        with pytest.raises(DataError, match=r"column 'x' holds half of a character"):
            to_frame(table)
    with pytest.raises(DataError, match=r"'.ud800' holds half of a character"):
        to_frame({"\ud800": [1]})
    names = pd.Index(["\ud800"], dtype=object)
    with pytest.raises(DataError, match=r"'.ud800' holds half of a character"):
        to_frame(pd.DataFrame([[1]], columns=names))


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("day", "9999-12-31T23:59-05:00", "in UTC too"),
        ("span", datetime.timedelta(days=999_999_999), "shorter than 292 years"),
    ],
)
def test_times_that_no_unit_holds_are_refused_in_words(column, value, told):
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    frame = pd.DataFrame({"day": pd.date_range("2024", periods=9), "span": range(9)})
    frame["span"] = pd.to_timedelta(frame.span, unit="h")
    row = frame.head(1).astype(object)
    row[column] = pd.Series([value], dtype=object)
    with pytest.raises(DataError, match=f"{told}, however column {column!r} holds"):
        Preprocessor().fit(frame).transform(row)


def test_an_endless_decimal_is_a_level_of_its_own():
    frame = pd.DataFrame({"x": ["a", Decimal("Infinity"), Decimal(3)] * 4})
    levels = Preprocessor().fit(frame)._columns[0].levels
    assert levels == ("3", "Infinity", "a")


@pytest.mark.parametrize("levels", ["codes", "means"])
def test_levels_that_no_row_has_go_and_nothing_else_changes(levels: Levels):
    frame = pd.DataFrame({"town": [*"aabbccddee", None], "size": np.arange(11.0)})
    before = Preprocessor(max_levels=4, levels=levels)
    before.fit_transform(frame, labels=np.arange(11.0)[:, None])
    left = frame[~frame["town"].isin(["b", "e"])]
    after, gone = before.with_levels_of(left)
    assert gone == {"town": ["b", "e"]}
    assert after.known_texts == {"town": ("a", "c", "d")}
    state, arrays = after.state()
    again = Preprocessor.from_state(json.loads(json.dumps(state)), arrays)
    for name in ("num", "bin", "cat"):
        old = getattr(before.transform(left), name)
        np.testing.assert_array_equal(getattr(again.transform(left), name), old)
    unseen = before.transform(left.head(1).assign(town="never seen"))
    now_unseen = again.transform(left.head(1).assign(town="b"))
    np.testing.assert_array_equal(now_unseen.num, unseen.num)
    np.testing.assert_array_equal(now_unseen.cat, unseen.cat)
    assert before.known_texts == {"town": (*"abcde",)}
    assert after.with_levels_of(left)[1] == {}

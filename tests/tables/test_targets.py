import datetime
import json
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import DataConversionWarning

from tabr.errors import DataError
from tabr.tables.targets import ClassTarget, NumberTarget, choose_task

BOTH = pytest.mark.parametrize("target", [NumberTarget, ClassTarget])


def reborn(target):
    state, arrays = target.state()
    assert all(array.dtype.kind in "iuf" for array in arrays.values())
    return type(target).from_state(json.loads(json.dumps(state)), arrays)


def makes(values):
    yield from (list(values), tuple(values), np.array(values), pd.Series(values))
    yield from (pl.Series(values), pa.chunked_array([values]), pa.array(values))
    yield pd.Series(values, index=range(7, 7 + len(values)), dtype="category")
    yield pd.Series(values, dtype=object)


# --- both targets


def test_all_makes_of_a_target_are_equal():
    for y in makes([3, 1, 2, 1]):
        assert ClassTarget().fit(y).encode(y).tolist() == [2, 0, 1, 0]
        assert NumberTarget().fit(y).mean == 1.75
    for y in makes(["c", "a", "b"]):
        assert ClassTarget().fit(y).classes.tolist() == ["a", "b", "c"]
        assert ClassTarget().fit(y).encode(y).tolist() == [2, 0, 1]


@BOTH
def test_one_column_is_taken_with_the_warning_of_scikit_learn(target):
    column = [[1], [2], [3]]
    tables = [column, np.array(column), pd.DataFrame({"y": [1, 2, 3]})]
    tables += [pl.DataFrame({"y": [1, 2, 3]}), pa.table({"y": [1, 2, 3]})]
    for y in tables:
        with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
            labels = target().fit(y).encode(y)
        assert labels.shape == (3,)


@BOTH
def test_a_plain_target_does_not_warn(target):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for y in makes([3, 1, 2, 1]):
            target().fit(y).encode(y)


@BOTH
def test_no_target_is_refused_in_the_words_of_scikit_learn(target):
    words = "TabR requires y to be passed, but the target y is None"
    with pytest.raises(ValueError, match=words):
        target().fit(None, caller="TabR")


@BOTH
def test_a_wrong_length_is_refused_in_the_words_of_scikit_learn(target):
    words = r"Found input variables with inconsistent numbers of samples: \[4, 3\]"
    with pytest.raises(ValueError, match=words):
        target().fit([1, 2, 3], n_rows=4)
    model = target().fit([1, 2, 3], n_rows=3)
    with pytest.raises(ValueError, match=words):
        model.encode([1, 2, 3], n_rows=4)


@BOTH
@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, pd.NaT])
def test_missing_targets_are_counted_and_refused(target, gap):
    for y in ([1, gap, gap, 2], pd.Series([1, gap, gap, 2], dtype=object)):
        with pytest.raises(DataError, match=r"missing \(NaN\) in 2 of 4 rows; drop"):
            target().fit(y)
    with pytest.raises(DataError, match="in 1 of 2 rows"):
        ClassTarget().fit(["a", gap])


@BOTH
@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.zeros((3, 2)), "y must be one column, however it has 2"),
        (pd.DataFrame({"a": [1], "b": [2]}), "it has 2"),
        (np.zeros((3, 1, 1)), "one dimension, however it has 3"),
        (3, "one dimension, however it has 0"),
        ([[1], [1, 2]], "rows differ"),
        ([], "it is empty"),
        ([1.0, np.inf], "infinite"),
        ([1, 2j], "Complex data not supported"),
    ],
)
def test_impossible_targets_are_refused(target, y, words):
    with pytest.raises(DataError, match=words):
        target().fit(y)


# --- numbers


@given(
    st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_decoded_labels_are_the_numbers(y, as_column):
    target = NumberTarget().fit(y)
    labels = target.encode(y)
    assert labels.dtype == np.float32 and np.isfinite(labels).all()
    decoded = target.predictions(labels[:, None] if as_column else labels)
    assert decoded.dtype == np.float64 and decoded.shape == (len(y),)
    atol = 1e-5 * max(target.scale, abs(target.mean))
    if target.scale > 1e-290:
        np.testing.assert_allclose(decoded, y, rtol=1e-5, atol=atol)
    again = reborn(target)
    assert (again.mean, again.scale) == (target.mean, target.scale)


def test_labels_have_mean_zero_and_deviation_one():
    y = np.random.default_rng(0).normal(1e6, 3.0, 1000)
    target = NumberTarget().fit(y)
    assert (target.mean, target.scale) == (y.mean(), y.std())
    labels = target.encode(y)
    assert abs(labels.mean()) < 1e-4 and abs(labels.std() - 1) < 1e-4


@pytest.mark.parametrize("value", [0.1, 1e-6, 1e12, -3e300, 5e-324, 0.0])
def test_equal_targets_have_no_scale_and_all_outputs_mean_them(value):
    target = reborn(NumberTarget().fit([value] * 7))
    assert (target.mean, target.scale) == (value, 0.0)
    assert target.encode([value, value + 1.1]).tolist() == [0, 0]
    assert target.predictions(np.array([0.0, -3.0, 1e30])).tolist() == [value] * 3
    assert target.usual(np.full(7, value)) == value


def test_the_least_numbers_that_differ_have_a_scale():
    y = np.array([0.0, 5e-324, 5e-324])
    target = NumberTarget().fit(y)
    assert target.predictions(target.encode(y)).tolist() == y.tolist()


@pytest.mark.parametrize(
    ("seen", "far", "near"),
    [
        ([0.0, 10.0], [40.1, -30.1, 1e300], [40.0, -30.0, 5.0]),
        ([5.0, 5.0], [5.1, -5.0], [5.0]),
        ([-1e308, 1e308], [], [1.7e308, -1.7e308]),
        ([0.0, 5e-324, 1.0], [-3.5], [3.5]),
    ],
)
def test_labels_far_beyond_those_of_fit_are_doubted(seen, far, near):
    target = reborn(NumberTarget().fit(seen))
    for label in far:
        assert "1 label lies far beyond" in target.doubt(np.array([label, *near]))
    assert target.doubt(np.array(near)) is None
    old = NumberTarget.from_state({"mean": 0.0, "std": 1.0}, {})
    assert old.doubt(np.array([1e300])) is None  # its range is not known
    assert reborn(old).high == np.inf


def test_new_labels_of_a_heavy_tail_are_hardly_ever_doubted():
    rng = np.random.default_rng(0)
    n_doubted = 0
    for _ in range(100):
        target = NumberTarget().fit(rng.lognormal(sigma=1.5, size=1000))
        n_doubted += target.doubt(rng.lognormal(sigma=1.5, size=1000)) is not None
    assert n_doubted < 10


@pytest.mark.parametrize(
    "y", [pd.Series([1, 2, 6], dtype="Int64"), [Decimal(1), 2, 6.0]]
)
def test_any_numeric_type_is_a_number(y):
    assert NumberTarget().fit(y).mean == 3


@pytest.mark.parametrize("y", [["a", "b"], ["1", "2"], [datetime.date(2020, 1, 1)] * 2])
def test_text_and_dates_are_no_regression_targets(y):
    with pytest.raises(DataError, match=r"must be numeric, however .* the classifier"):
        NumberTarget().fit(y)


# --- classes

LABELS = [
    np.array(["b", "a", "ccc"]),
    np.array([3, -1, 2], dtype=np.int8),
    np.array([2**63, 1], dtype=np.uint64),
    np.array([1.0, 0.0, 2.0]),
    np.array([1.0, 0.0], dtype=np.float32),
    np.array([True, False]),
    np.array(["2020-01-02", "2020-01-01"], dtype="datetime64[s]"),
    np.array([2, 1], dtype="timedelta64[ms]"),
    np.array([2, 1], dtype=">i4"),
    np.array([1, "a", True, 2.5, 0], dtype=object),
    np.array(["a\0", "a"], dtype=object),
    np.array([datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)], dtype=object),
]


@pytest.mark.parametrize("y", LABELS, ids=lambda y: y.dtype.str)
def test_classes_survive_with_their_types(y):
    target = ClassTarget().fit(y)
    again = reborn(target)
    assert again.classes.dtype == target.classes.dtype
    if y.dtype.isnative:
        assert target.classes.dtype == y.dtype
    for kept, before in zip(again.classes, target.classes, strict=True):
        assert kept == before and type(kept) is type(before)
    codes = again.encode(y)
    assert codes.dtype == np.int64
    decoded = again.answers(np.eye(again.n_classes)[codes])
    assert decoded.tolist() == y.tolist()


@given(
    st.one_of(
        st.lists(st.text(max_size=4), min_size=2),
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2),
        st.lists(st.booleans(), min_size=2),
        st.lists(st.one_of(st.text(max_size=2), st.integers(0, 2)), min_size=2),
    ).filter(lambda y: len(set(y)) > 1)
)
@settings(max_examples=100, deadline=None)
def test_decoded_codes_are_the_labels(y):
    target = reborn(ClassTarget().fit(y))
    codes = target.encode(y)
    assert target.answers(np.eye(target.n_classes)[codes]).tolist() == y
    assert set(codes) == set(range(target.n_classes))


def test_mixed_labels_are_sorted_by_type_and_value():
    target = ClassTarget().fit(["b", 2, True, "a", 1])
    assert target.classes.tolist() == [True, 1, 2, "a", "b"]
    assert type(target.classes[0]) is bool
    assert target.encode([1, 1]).tolist() == [1, 1]
    assert target.encode(["b", "a"]).tolist() == [4, 3]


def test_two_classes_are_a_task_of_their_own():
    two, three = ClassTarget().fit([1, 2]), ClassTarget().fit([1, 2, 3])
    assert (two.n_classes, two.task) == (2, "binary")
    assert (three.n_classes, three.task) == (3, "classes")


def test_one_logit_of_two_classes_is_that_of_the_second():
    target = ClassTarget().fit(["no", "yes"])
    logits = np.array([2.0, -1.0, 0.0])
    second = 1 / (1 + np.exp(-logits))
    for outputs in (logits, logits[:, None]):
        proba = target.predictions(outputs)
        np.testing.assert_allclose(proba, np.column_stack([1 - second, second]))
        assert target.answers(proba).tolist() == ["yes", "no", "no"]


def test_logits_become_probabilities_however_large():
    target = ClassTarget().fit(["a", "b", "c"])
    logits = np.array([[0.0, 0.0, 1.0], [1e4, 0.0, -1e4]], np.float32)
    proba = target.predictions(logits)
    np.testing.assert_allclose(proba[0], np.exp(logits[0]) / np.exp(logits[0]).sum())
    assert proba[1].tolist() == [1.0, 0.0, 0.0]
    assert target.answers(proba).tolist() == ["c", "a"]


def test_what_is_usual_is_the_mean_or_the_shares():
    assert NumberTarget().fit([0.0, 10.0]).usual(np.array([1.0, 4.0])) == 2.5
    target = ClassTarget().fit(["a", "b", "c"])
    assert target.usual(np.array(["b", "a", "b", "b"])).tolist() == [0.25, 0.75, 0]


@pytest.mark.parametrize(
    "y", [[0.5, 1.5, 2.0], pd.Series([0.5, 1.0], dtype=object), pl.Series([0.5, 1.0])]
)
def test_continuous_targets_are_sent_to_the_regressor(y):
    with pytest.raises(ValueError, match=r"Unknown label type: continuous.*regressor"):
        ClassTarget().fit(y)


def test_a_single_class_is_refused():
    with pytest.raises(DataError, match=r"at least two classes.* only 1 class: 'a'"):
        ClassTarget().fit(["a", "a"])


@pytest.mark.parametrize(
    ("y", "new", "words"),
    [
        ([1, 2], [1, 3], "it holds 3;"),
        ([1, 2], ["1"], "it holds '1';"),
        (["a", "b"], ["a", "c"], "it holds 'c';"),
        (["a", "b"], [1], "it holds 1;"),
        ([1, "b"], ["c"], "it holds 'c';"),
        ([True, False], ["x"], "it holds 'x';"),
    ],
)
def test_unseen_labels_are_named(y, new, words):
    with pytest.raises(DataError, match=words):
        ClassTarget().fit(y).encode(new)


def test_labels_may_change_their_width():
    target = ClassTarget().fit(np.array([1, 2], dtype=np.int64))
    for dtype in (np.int8, np.float32, object, "Int64"):
        assert target.encode(pd.Series([2, 1], dtype=dtype)).tolist() == [1, 0]


def test_times_with_a_zone_are_taken_as_utc():
    times = pd.Series(pd.to_datetime(["2020-01-01", "2020-01-02"])).dt.tz_localize(
        "Europe/Berlin"
    )
    target = reborn(ClassTarget().fit(times))
    assert target.classes[0] == np.datetime64("2019-12-31T23:00")
    assert target.encode(times).tolist() == [0, 1]


def test_labels_that_json_cannot_hold_are_refused_when_stored():
    target = ClassTarget().fit(pd.Series([(1, 2), (3, 4)]))
    assert target.encode(pd.Series([(3, 4)])).tolist() == [1]
    with pytest.raises(DataError, match="is a tuple; turn the classes into text"):
        target.state()


def test_nested_labels_are_refused():
    with pytest.raises(DataError, match="Unknown label type"):
        ClassTarget().fit(pd.Series([[1], [2]]))


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b"] * 30, "classification"),
        ([True, False] * 30, "classification"),
        (pd.Categorical([1.5, 2.5] * 30), "classification"),
        ([0, 1] * 30, "classification"),
        ([0.0, 1.0] * 30, "classification"),
        ([1, 2, 3, 4, 5] * 12, "classification"),
        (list(range(60)), "regression"),
        ([0.5, 1.5] * 30, "regression"),
    ],
)
def test_task_follows_from_the_target(values: object, task: str):
    assert choose_task(pd.Series(values, name="y"))[0] == task


def test_text_of_many_values_is_no_target_unless_asked():
    texts = pd.Series([f"{k},5" for k in range(60)], name="price")
    with pytest.raises(DataError, match="'price' is text with 60 distinct values"):
        choose_task(texts)


def test_sides_are_numbers_or_who_has_a_class():
    numbers = NumberTarget().fit([1.0, 2.0, 3.0])
    assert numbers.sides(numbers.encode([2.0, 2.0])).tolist() == [[0], [0]]
    two = ClassTarget().fit(["no", "yes"])
    assert two.sides(two.encode(["yes", "no"])).tolist() == [[1], [0]]
    three = ClassTarget().fit(["a", "b", "c"])
    assert three.sides(three.encode(["c", "a"])).tolist() == [[0, 0, 1], [1, 0, 0]]
    labels = np.repeat(np.arange(12), np.arange(12, 0, -1))
    many = ClassTarget().fit(labels)
    sides = many.sides(labels)
    assert sides.sum(axis=0).tolist() == [12, 11, 10, 9, 8, 7, 6, 5]


WIDE = [[2**53 + 1, 2**53 + 2, 2**53 + 3], [2**63 + 1, 2**63 + 2, 2**63 + 3]]
WIDE += [[-1, 2**63 + 1, 2**63 + 2], [2**70 + 1, 2**70 + 2, 2**70 + 3]]


@pytest.mark.parametrize("wide", WIDE, ids=str)
def test_whole_numbers_beyond_floats_are_classes_as_they_are(wide):
    target = reborn(ClassTarget().fit(wide))
    assert target.classes.tolist() == wide
    for dtype in (object, "int64", "uint64", "Int64", "UInt64"):
        bounds = None if dtype is object else np.iinfo(dtype.lower())
        if bounds and not bounds.min <= min(wide) <= max(wide) <= bounds.max:
            continue
        y = pd.Series(wide, dtype=dtype)
        codes = target.encode(y)
        assert codes.tolist() == [0, 1, 2]
        assert target.as_fitted(y.to_numpy(), codes).tolist() == wide
    for odd in (float(wide[2]), 2.0**64, -2.0, np.uint64(2**64 - 2)):
        with pytest.raises(DataError, match="classes that fit saw"):
            target.encode([odd])

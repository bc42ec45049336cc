"""Values as text, tables as lines, and what JSON can hold."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabr.text import (
    ABSENT,
    aligned,
    cell,
    is_exact_json,
    json_text,
    markdown_table,
    percent,
    plain,
    plain_tree,
)

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=12)
        | st.dictionaries(st.text(), inner)
        | st.dictionaries(st.integers(), inner)
        | st.tuples(inner)
    ),
    max_leaves=15,
)


@given(TREES, st.booleans())
def test_json_in_parts_is_the_same(value, sort_keys):
    expected = json.dumps(value, sort_keys=sort_keys)
    assert json_text(value, sort_keys=sort_keys) == expected
    assert is_exact_json(value) == (json.loads(expected) == value)


def test_long_json_in_parts_is_the_same():
    value = {"rows": [{"b": k, "a": "Köln"} for k in range(2500)], "labels": [1] * 2500}
    assert json_text(value, sort_keys=True) == json.dumps(value, sort_keys=True)
    assert is_exact_json(value)
    value["rows"][2100]["b"] = (1, 2)
    assert not is_exact_json(value)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0%"),
        (1.0, "100%"),
        (0.25, "25%"),
        (0.034, "3.4%"),
        (0.0004, "0.04%"),
        (1e-7, "<0.01%"),
        (0.9996, "99.96%"),
        (0.9999999, ">99.99%"),
        (float("nan"), ABSENT),
    ],
)
def test_only_nothing_is_zero_percent_and_only_all_is_a_hundred(
    share: float, text: str
):
    assert percent(share) == text


def test_so_many_digits_and_characters_are_kept():
    values = (1.0, 0.123456, 12345.6, 123456.7, float("nan"), None, "x")
    written = [cell(value, digits=4) for value in values]
    assert written == ["1", "0.1235", "12346", "123457", ABSENT, ABSENT, "x"]
    assert cell(pd.Timestamp("2021-05-05")) == "2021-05-05"
    assert len(cell("long" * 9, longest=18)) == 18


def test_columns_of_a_table_stand_below_each_other():
    lines = aligned([["a", "bb", "c"], ["long", "1", "22"]], "lr")
    assert lines == ["a     bb   c", "long   1  22"]


def test_markdown_has_a_rule_below_its_header():
    lines = markdown_table(["a", "b"], [["1", "2"]], "r").splitlines()
    assert lines == ["| a | b |", "| ---: | --- |", "| 1 | 2 |"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.datetime64("2024-05-31T00:00", "ns"), "2024-05-31T00:00:00"),
        (np.datetime64("NaT"), None),
        (pd.NA, None),
        (np.bool_(True), True),
        (np.int8(3), 3),
        (float("-inf"), None),
        (1 + 2j, "(1+2j)"),
    ],
)
def test_a_value_of_any_type_becomes_plain(value: object, expected: object):
    assert plain(value) == expected


def test_trees_become_json_with_ragged_lists_and_arrays_inside():
    tree = {
        "ragged": [[1], [2.5, np.nan], ()],
        "array": np.arange(4, dtype=np.float32).reshape(2, 2) / 10,
        "dates": np.array(["2024-01-01", "NaT"], dtype="datetime64[ns]"),
        7: np.int64(1),
    }
    assert json.loads(json.dumps(plain_tree(tree), allow_nan=False)) == {
        "ragged": [[1], [2.5, None], []],
        "array": [[0.0, 0.1], [0.2, 0.3]],
        "dates": ["2024-01-01T00:00:00", None],
        "7": 1,
    }

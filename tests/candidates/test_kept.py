"""Rows to keep beside others: joined, they are read as each of them is."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest

from tabr import DataError
from tabr.candidates.kept import forms_of, kept
from tabr.tables.cells import Cells

DAY = pd.Timestamp("2024-05-31 12:30")
DATES = {
    "ns": pd.Series([DAY]).astype("datetime64[ns]"),
    "us": pd.Series([DAY]).astype("datetime64[us]"),
    "s": pd.Series([DAY]).astype("datetime64[s]"),
    "zone": pd.Series([DAY.tz_localize("Asia/Tokyo")]),
    "objects": pd.Series([DAY.to_pydatetime()], dtype=object),
    "text": pd.Series(["2024-05-31T12:30"], dtype=object),
}


@pytest.mark.parametrize("second", DATES)
@pytest.mark.parametrize("first", DATES)
def test_dates_of_any_make_can_stand_below_each_other(first: str, second: str) -> None:
    above, below = (DATES[name].to_frame("x") for name in (first, second))
    below = below.reindex([0, 1])  # and a missing one
    part = kept(below, forms_of(above), ["x"])
    whole = pd.concat([above, part], ignore_index=True)
    read = [Cells.read(frame.x, "x", in_fit=False).dates() for frame in (above, below)]
    again = Cells.read(whole.x, "x", in_fit=False)
    np.testing.assert_array_equal(again.dates(), np.concatenate(read))
    if first not in ("objects", "text"):
        assert whole.x.dtype == above.x.dtype


def test_a_finer_date_keeps_its_time_beside_coarse_ones() -> None:
    above = pd.DataFrame({"x": np.array(["9999-12-31"], "M8[s]")})
    below = pd.DataFrame({"x": np.array(["2024-05-31T12:30:00.25"], "M8[ns]")})
    whole = pd.concat([above, kept(below, forms_of(above), ["x"])])
    assert whole.x.tolist() == [
        pd.Timestamp("9999-12-31"),
        pd.Timestamp("2024-05-31 12:30:00.25"),
    ]


@pytest.mark.parametrize(
    "value",
    [datetime.date(9999, 12, 31), "9999-12-31", np.datetime64("1500-01-01", "s")],
)
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_a_date_beyond_nanoseconds_is_refused_beside_them(value, zone) -> None:
    above = DATES["ns"].dt.tz_localize(zone).to_frame("x")
    below = pd.DataFrame({"x": pd.Series([value], dtype=object)})
    with pytest.raises(DataError, match=r"'x' is kept in nanoseconds.*leave the cell"):
        kept(below, forms_of(above), ["x"])


def test_spans_and_numbers_are_told_by_their_seconds() -> None:
    spans = pd.DataFrame({"x": pd.to_timedelta([2, 3], unit="h")})
    numbers = pd.DataFrame({"x": [1.5, np.nan]})
    for above, below in ((spans, numbers), (numbers, spans)):
        whole = pd.concat([above, kept(below, forms_of(above), ["x"])])
        seconds = Cells.read(whole.x, "x", in_fit=False).numbers()
        assert np.nansum(seconds) == 5 * 3600 + 1.5 and whole.x.dtype == above.x.dtype
    beyond = pd.DataFrame({"x": [1e300]})
    with pytest.raises(DataError, match="a number of seconds came that no span holds"):
        kept(beyond, forms_of(spans), ["x"])


def test_absent_columns_are_missing_and_others_left_out() -> None:
    above = pd.DataFrame({"x": [1], "note": ["a"]})
    part = kept(pd.DataFrame({"z": [3], "x": [2]}), forms_of(above), ["x", "note"])
    assert part.columns.tolist() == ["x", "note"] and part.note.isna().all()


def test_half_a_character_is_refused_with_its_column() -> None:
    above = pd.DataFrame({"x": ["a"], "y": [[1]]})
    below = pd.DataFrame({"x": pd.Series(["\ud800"], dtype=object), "y": [[2]]})
    with pytest.raises(DataError, match=r"column 'x' holds half of a character"):
        kept(below, forms_of(above), ["x", "y"])
    assert kept(below.assign(x="b"), forms_of(above), ["x", "y"]).y[0] == [2]


@pytest.mark.parametrize("first", DATES)
@pytest.mark.parametrize("value", ["10000-01-01", "20000-01-01", "0000-12-31"])
def test_years_that_python_cannot_write_are_refused(first: str, value: str) -> None:
    above, forms = DATES[first].to_frame("x"), forms_of(DATES[first].to_frame("x"))
    for dtype in ("M8[us]", object):
        cells = pd.Series([np.datetime64(value, "us")], dtype=object).astype(dtype)
        with pytest.raises(DataError, match="in the years 1 to 9999, in UTC too"):
            kept(cells.to_frame("x"), forms, above.columns.tolist())


def test_a_time_may_be_beyond_the_years_in_its_zone_alone() -> None:
    above = DATES["zone"].dt.as_unit("us").to_frame("x")
    below = pd.DataFrame({"x": np.array(["9999-12-31T23:00"], "M8[us]")})
    with pytest.raises(DataError, match="in the years 1 to 9999"):
        kept(below, forms_of(above), ["x"])

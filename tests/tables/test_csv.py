"""CSV as a model knows its columns, as nobody knows them, and safe to open."""

import csv
import datetime
import io
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tabr.errors import DataError
from tabr.tables.csv import ColumnType, read_csv, to_csv, types_of

NASTY = ["01234", "NA", "1e5", "True", " x", "", "null", "1.0", "-1", "x,\n\"y'", "=1"]


def types(**columns: Any) -> dict[str, ColumnType]:
    """Types of columns that fit saw with these cells."""
    frame = pd.DataFrame(columns)
    return {str(name): ColumnType.of(cells) for name, cells in frame.items()}


def texts(cells: pd.Series) -> list[Any]:
    return cells.astype(object).where(cells.notna(), None).tolist()


def test_text_stays_as_it_is_written():
    frame = pd.DataFrame({"a": NASTY, "n": range(len(NASTY))})
    content = frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC).encode()
    again = read_csv(content, types(a=NASTY, n=frame["n"]))
    assert again["a"].tolist() == NASTY
    assert again["n"].tolist() == frame["n"].tolist()


def test_words_for_missing_are_missing_unless_fit_saw_one_as_a_level():
    content = b'a,b\nNA,NA\n"","null"\n,\nx,y\n'
    again = read_csv(content, types(a=["x", "NA"], b=["x", "y"]))
    assert texts(again["a"]) == ["NA", "", None, "x"]
    assert texts(again["b"]) == [None, None, None, "y"]


def test_numbers_are_exact_and_keep_the_type_of_fit():
    rng = np.random.default_rng(0)
    values = rng.normal(size=500) * 10.0 ** rng.integers(-300, 300, 500)
    frame = pd.DataFrame({
        "a": values,
        "b": rng.normal(size=500).astype(np.float32),
        "whole": rng.integers(-(2**62), 2**62, 500),
    })  # fmt: skip
    again = read_csv(frame.to_csv(index=False).encode(), types_of(frame))
    pd.testing.assert_frame_equal(again, frame, check_exact=True)
    (column,) = read_csv(b'a\n9007199254740993\n\n""\n', types(a=[1])).to_numpy().T
    assert column[0] == 2**53 + 1 and pd.isna(column[1])


def test_flags_and_dates_are_what_they_were():
    day = pd.Timestamp("2024-05-31 12:00")
    known = types(f=[True, False], d=[day, day], z=[day.tz_localize("UTC")] * 2)
    content = b"f,d,z\nTrue,2024-05-31 12:00:00,2024-05-31T14:00:00+02:00\n0,,\n,,\n"
    again = read_csv(content, known)
    assert texts(again["f"]) == [True, False, None]
    assert again["d"][0] == day and again["z"][0] == day.tz_localize("UTC")
    assert again.isna().sum().tolist() == [1, 2, 2]
    content = b"f,d,z\ntrue,2024-05-31,2024-05-31\nFALSE,2024-06-01,2024-06-01\n"
    assert read_csv(content, known).dtypes.astype(str)["f"] == "bool"


def test_a_column_of_several_types_is_restored():
    frame = pd.DataFrame({"a": pd.Series(["x", 2, 1.0, True, "1e5"], dtype=object)})
    again = read_csv(frame.to_csv(index=False).encode(), types_of(frame))
    assert again["a"].tolist() == ["x", 2, 1.0, True, "1e5"]
    levels = pd.Series([1.0, 2.5, None], dtype="category", name="a")
    again = read_csv(b"a,b\n1.0,1\n2.50,1\nx,1\n", types(a=levels))
    assert again["a"].tolist() == [1.0, 2.5, "x"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"n,d,f\n1,,\n\n2,,\ndear,,\n", "'n' must hold numbers, .* line 5 .*'dear'"),
        (b'n,d,f\n1,,"a\nb"\n', "'f' must hold true or false, .* line 2 "),
        (
            b"n,d,f\n1,,\n1,31.5.,\n",
            "must hold dates like 2024-05-31, .* line 3 .*'31.5.'",
        ),
        (b"n,d,f\n1_0,,\n", "line 2 holds '1_0'"),
        (b"n,d,f\n0x1F,,\n", "line 2 holds '0x1F'"),
        (b"n,d,f\n1,,2\n", "'f' must hold true or false"),
    ],
)
def test_a_cell_of_another_kind_is_named_with_its_line(content: bytes, words: str):
    known = types(n=[1, 2], d=[pd.Timestamp("2024-05-31")] * 2, f=[True, False])
    with pytest.raises(DataError, match=f"(?s){words}.*; correct the cell"):
        read_csv(content, known)


def test_dates_that_were_text_are_checked_too():
    known = {"d": ColumnType.of(pd.Series(["2024-05-31"]), kind="date")}
    again = read_csv(b"d,a\n2024-06-01,1\n,1\n", known)
    assert texts(again["d"]) == ["2024-06-01", None]
    with pytest.raises(
        DataError, match=r"dates like 2024-05-31, .* line 2 holds .soon."
    ):
        read_csv(b"d,a\nsoon,1\n", known)


def test_what_the_model_does_not_need_may_be_anything():
    known = {"n": ColumnType.of(pd.Series([1, 2]), needed=False)}
    assert read_csv(b"n,a\nx,1\n", known)["n"].tolist() == ["x"]


def test_a_decimal_comma_is_read_where_numbers_were():
    again = read_csv(b"a;b;t\n1,5;2;1,5\n", types(a=[1.5], b=[1], t=["x"]))
    assert again.iloc[0].tolist() == [1.5, 2, "1,5"]


def test_columns_without_names_are_known_by_their_place():
    known = types(x0=["01", "02"], x1=[1.0, 2.0])
    assert read_csv(b"zip,area\n01,3\n", known).iloc[0].tolist() == ["01", 3.0]
    labelled = {**known, "y": ColumnType.of(pd.Series(["1"]))}
    again = read_csv(b"y,zip,area\n1,01,3\n", labelled)
    assert again.iloc[0].tolist() == ["1", "01", 3.0]


# --- columns that nobody knows ------------------------------------------------


@pytest.mark.parametrize(
    "cells",
    [
        ["1", "2"], ["1", ""], ["1", "NA"], ["1.5", "2"], ["1", "x"], ["True", "FALSE"],
        ["true", ""], ["True", "1"], ["", "NaN"], [" 1", "2 "], ["+5", "-3"],
        ["1e5", "2"],
        ["0x1F", "1"], ["1_0", "1"], [".5", "5."], ["inf", "-Infinity"], ["a", ""],
        ["2024-05-31", ""], ["18446744073709551615", "1"],
        ["9223372036854775807", "-1"],
        ["x", "N/A"], ['"q,"', "b"], ["-", "1"], ["+-5", "1"],
    ],
)  # fmt: skip
def test_cells_are_guessed_as_pandas_does(cells: list[str]):
    text = "a,b\n" + "".join(f"{cell},1\n" for cell in cells)
    expected = pd.read_csv(io.StringIO(text), low_memory=False)
    pd.testing.assert_frame_equal(read_csv(text.encode()), expected)


def test_leading_zeros_are_kept_where_asked_and_never_lost_without_a_word():
    content = b"zip,hour\n01234,00\n99999,12\n"
    with pytest.warns(UserWarning, match=r"'zip' has leading zeros \('01234'\)"):
        frame = read_csv(content, keeps_zeros=["hour"])
    assert frame["zip"].tolist() == [1234, 99999]
    frame = read_csv(content, keeps_zeros=["zip", "hour"])
    assert frame["zip"].tolist() == ["01234", "99999"]
    assert frame["hour"].tolist() == ["00", "12"]
    frame = read_csv(b"a,b\n0,0.5\n10,0\n", keeps_zeros=["a", "b"])
    assert frame.dtypes.astype(str).tolist() == ["int64", "float64"]


# --- what is no table -----------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b,a\n1,2,3\n", r"must differ, however \['a'\] came more than once"),
        (b"a,b\n1,2\n\na,b\n3,4\n", "line 4 is the header again; drop that line"),
        (b'\xef\xbb\xbf"a",b\n1,2\n\xef\xbb\xbf"a",b\n3,4\n', "no such cell"),
        (b"a,,b\n1,2,3\na,,b\n", "line 3 is the header again"),
        (b"a,b\n1,2\n1,2,3\n", "header, 2, however line 3 has 3;"),
        (b"a,b\n1,2\n1\n", "header, 2, however line 3 has 1;"),
        (b'a,b\n1,"x\ny"\n1\n', "header, 2, however line 4 has 1;"),
        (b'a,b\n1,2\n1,"open\n3,4\n', "a quote must be closed, .* line 3"),
        (b"a,b\n1,2\ncaf\xe9,2\n", "UTF-8, however line 3 has the byte 0xe9"),
        ("a,b\n1,2\n".encode("utf-16"), "UTF-8, however line 1"),
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
    ],
)
def test_what_is_no_table_is_refused_with_the_line(content: bytes, words: str):
    if words == "no such cell":  # the quotes stand inside of the cell then
        assert len(read_csv(content)) == 3
        return
    with pytest.raises(DataError, match=words):
        read_csv(content)


def test_numbers_as_names_may_come_as_rows():
    assert read_csv(b"0,1\n0,1\n2,3\n").to_numpy().tolist() == [[0, 1], [2, 3]]
    assert len(read_csv(b"a,b\na,c\nd,b\n")) == 2


# --- safe to open -----------------------------------------------------------------


def test_no_cell_begins_a_formula():
    cells = ["=1+1", "+x", "-x", "@x", "\tx", "\rx", "-1", "+1.5e3", "x=1", "", None]
    frame = pd.DataFrame({"=name": cells, "n": [-1.0] * len(cells)})
    written = pd.read_csv(io.StringIO(to_csv(frame), newline=""), dtype=str)
    assert written.columns.tolist() == ["'=name", "n"]
    expected = ["'=1+1", "'+x", "'-x", "'@x", "'\tx", "'\rx", "-1", "+1.5e3", "x=1"]
    assert written["'=name"].tolist()[:9] == expected
    assert set(written["n"]) == {"-1.0"}
    levels = pd.DataFrame({"a": pd.Series(["=1", "x"], dtype="category")})
    assert to_csv(levels) == "a\n'=1\nx\n"


def test_what_was_written_is_read_again_where_the_text_is_known():
    cells = ["=1+1", "'=2", "@x", "-1", "'quoted'"]
    frame = pd.DataFrame({"@a": cells, "b": range(5)})
    again = read_csv(to_csv(frame).encode(), types_of(frame))
    levels = {"@a": ColumnType.of(frame["@a"], levels=cells)}
    again = read_csv(to_csv(frame).encode(), levels)
    assert again["@a"].tolist() == cells
    assert read_csv(b"'@a,b\n'=new,1\n", levels)["@a"].tolist() == ["'=new"]


def test_dates_stay_dates_when_written():
    frame = pd.DataFrame({"a": [datetime.date(2024, 5, 31)], "b": [True]})
    assert to_csv(frame) == "a,b\n2024-05-31,True\n"

import datetime
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from safetensors import numpy as safetensors

from tabr.errors import ModelFileError
from tabr.tables.stored.packed import pack_frame, unpack_frame


def columns() -> dict[str, pd.Series]:
    """Columns that come back as they were; other ones are in test_storage."""
    days = pd.to_datetime([1, None, 3, 4], unit="D")
    half = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
    pairs = {
        "decimals": [Decimal("1.50"), None],
        "times": [datetime.time(1, 2), None],
        "spans": [datetime.timedelta(1), None],
        "moments": [datetime.datetime(2020, 1, 1), None],
        "flags": [True, None],
        "floats": [1.5, None],
        "texts": ["", None],
        "nothing": [None, None],
    }
    of_arrow = {
        "arrow text": (["b", None, "a", ""], pa.string()),
        "arrow flags": ([True, None, False, True], pa.bool_()),
        "arrow nothing": ([None] * 4, pa.null()),
        "arrow dates": ([datetime.date(2020, 1, 1), None] * 2, pa.date32()),
        "arrow decimals": ([Decimal("1.50"), None] * 2, pa.decimal128(10, 2)),
        "arrow times": (list(days), pa.timestamp("us", "UTC")),
    }
    return {
        **{k: pd.Series(pair * 2, dtype=object) for k, pair in pairs.items()},
        **{k: pd.Series(v, dtype=pd.ArrowDtype(t)) for k, (v, t) in of_arrow.items()},
        "float16": pd.Series([1.5, 2, 3, 4], dtype="float16"),
        "nullable floats": pd.Series([1.5, None, 2, 3], dtype="Float32"),
        "seconds": pd.Series(np.array(["2020", "2021", "NaT", "2022"], "M8[s]")),
        "half hours": pd.Series(days.tz_localize("UTC")).dt.tz_convert(half),
        "dates as levels": pd.Series(pd.Categorical(days)),
        "levels of none": pd.Series(pd.Categorical([None] * 4)),
    }


def through_bytes(arrays, about):
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return safetensors.load(safetensors.save(whole)), json.loads(json.dumps(about))


@pytest.mark.parametrize("name", columns())
@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [1], [3, 1, 1, 0, 2]], ids=len)
def test_column_comes_back_as_it_was(name: str, rows: list[int]):
    frame = pd.DataFrame({name: columns()[name].take(rows).reset_index(drop=True)})
    arrays, about = through_bytes(*pack_frame(frame))
    found = unpack_frame(arrays, about, len(rows))
    pd.testing.assert_frame_equal(found, frame)
    again = through_bytes(*pack_frame(found))
    assert again[1] == about
    assert {k: v.tobytes() for k, v in again[0].items()} == {
        k: v.tobytes() for k, v in arrays.items()
    }


def test_slice_of_a_longer_column_comes_back():
    values = pa.chunked_array([["a", "b", None], ["ccc", "a"]])
    frame = pd.DataFrame({"t": pd.Series(values, dtype=pd.ArrowDtype(pa.string()))})
    part = frame.iloc[1:4].reset_index(drop=True)
    arrays, about = through_bytes(*pack_frame(part))
    pd.testing.assert_frame_equal(unpack_frame(arrays, about, 3), part)


@pytest.mark.parametrize(
    "about",
    [
        {"type": "values", "dtype": "<M8[25s]"},
        {"type": "values", "dtype": "<U1000000"},
        {"type": "values", "dtype": "f8,f8"},
        {"type": "values", "dtype": 3},
        {"type": "Int8", "arrow": "int64"},
        {"type": "str", "arrow": "large_string"},
        {"type": "objects", "arrow": "int64"},
        {"type": "zoned", "arrow": "timestamp[us, tz=Nowhere/Else]"},
        {"type": "arrow", "arrow": "list<item: int64>"},
        {"type": "arrow", "arrow": "decimal128(99, 2)"},
        {"type": "arrow", "arrow": None},
        {"type": "period[D]", "arrow": "int64"},
        {"type": None, "arrow": "int64"},
        {},
    ],
)
def test_false_type_is_refused(about: dict):
    frame = pd.DataFrame({"a": [300, 2, 1]})
    arrays, _ = pack_frame(frame)
    with pytest.raises(
        (ModelFileError, KeyError, TypeError, ValueError, pa.ArrowException)
    ):
        unpack_frame(arrays, [{"name": "a", **about}], 3)


def test_column_has_as_many_rows_as_the_others():
    arrays, about = pack_frame(pd.DataFrame({"a": [1, 2, 3]}))
    with pytest.raises(ModelFileError, match="do not all have 4 rows"):
        unpack_frame(arrays, about, 4)

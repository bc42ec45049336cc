import json

import numpy as np
import pandas as pd

from tabr import TabRRegressor
from tabr.errors import DataError
from tabr.serving.messages import Schema
from tabr.text import plain, plain_list

from .conftest import SMALL, houses


def test_columns_tell_what_is_usual(regressor_file):
    model = TabRRegressor.load(regressor_file)
    schema = Schema(model)
    columns = {column.name: column for column in schema.columns}
    assert list(columns) == [
        "size", "rooms", "town", "garden", "built", "latitude", "longitude",
    ]  # fmt: skip
    frame = model.candidates_.frame
    assert columns["size"].low == frame["size"].min()
    assert columns["size"].median == np.nanmedian(frame["size"])
    assert columns["size"].levels is None
    counts = frame["town"].value_counts()
    assert list(columns["town"].levels) == list(counts.index)
    assert columns["built"].kind == "date" and columns["built"].cell == "text"
    assert columns["garden"].cell == "flag"
    assert schema.others == ["constant"]  # nothing reads it
    assert schema.place == ("latitude", "longitude")


def test_rows_go_out_and_come_back_as_they_were(regressor_file):
    model = TabRRegressor.load(regressor_file)
    schema = Schema(model)
    frame, _ = houses(40, seed=3)
    rows = json.loads(json.dumps(schema.to_rows(frame)))
    again = schema.to_frame(rows)
    np.testing.assert_array_equal(model.predict(again), model.predict(frame))
    assert rows[0]["size"] is None  # a gap


def test_a_column_that_is_absent_is_missing_and_a_date_may_be_a_day(regressor_file):
    model = TabRRegressor.load(regressor_file)
    schema = Schema(model)
    frame, _ = houses(2)
    (row, _) = schema.to_rows(frame)
    row["built"] = row["built"][:10]
    assert model.predict(schema.to_frame([row])) == model.predict(frame.head(1))
    del row["size"]
    assert np.isnan(schema.to_frame([row])["size"][0])


def test_a_date_that_is_none_is_refused(regressor_file):
    schema = Schema(TabRRegressor.load(regressor_file))
    (row, _) = schema.to_rows(houses(2)[0])
    for text in ("yesterday", "2024-13-01"):
        try:
            schema.to_frame([{**row, "built": text}])
        except DataError as error:
            assert "'built'" in str(error) and text in str(error)
        else:
            raise AssertionError(text)


def test_columns_of_a_rule_are_part_of_a_row():
    from tabr import NotSameGroup

    frame, price = houses()
    frame["owner"] = np.arange(len(frame)) % 7
    model = TabRRegressor(
        **SMALL, device="cpu", candidates=NotSameGroup("owner"), ignore=("owner",)
    ).fit(frame, price)
    (owner,) = [c for c in Schema(model).columns if c.name == "owner"]
    assert owner.kind is None and owner.cell == "number"


def test_plain_values_are_what_json_has():
    values = [np.int64(3), np.bool_(True), pd.NaT, np.inf, pd.NA, None, "a", 1.5]
    assert plain_list(values) == [3, True, None, None, None, None, "a", 1.5]
    assert json.dumps(plain(np.str_("b"))) == '"b"'

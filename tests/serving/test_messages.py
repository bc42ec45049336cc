import json

import numpy as np
import pandas as pd
from starlette.testclient import TestClient

from tabr import TabRClassifier, TabRRegressor
from tabr.errors import DataError
from tabr.serving.app import create_app
from tabr.serving.messages import Schema
from tabr.serving.served_model import ServedModel
from tabr.text import plain, plain_list

from .conftest import OWN, SMALL, houses


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


def test_whole_numbers_of_any_length_travel_exactly(tmp_path):
    frame, price = houses()
    rng = np.random.default_rng(0)
    frame["account"] = rng.integers(2**60, 2**61, len(frame))
    labels = np.where(price > price.median(), 2**60 + 1, 2**60)
    path = tmp_path / "accounts.tabr"
    TabRClassifier(**SMALL, device="cpu").fit(frame, labels).save(path)
    served = ServedModel(path, tmp_path / "store", "cpu")
    row = served.schema.to_rows(frame)[0]
    sent = {**row, "account": 2**60 + 12345}
    with TestClient(create_app(served), OWN) as client:
        body = {"rows": [sent, {**row, "account": None}], "labels": [2**60 + 1] * 2}
        assert client.post("/v1/candidates", json=body).status_code == 201
        rows = client.get("/v1/candidates?n=1000").json()["rows"]
        assert rows[0]["row"]["account"] == frame["account"][0]
        assert [r["row"]["account"] for r in rows[-2:]] == [2**60 + 12345, None]
        assert [r["label"] for r in rows[-2:]] == [2**60 + 1] * 2
        answer = client.post("/v1/predict", json={"rows": [sent]}).json()
        (prediction,) = answer["predictions"]
        assert prediction["prediction"] in (2**60, 2**60 + 1)
        about = client.get("/v1/model").json()
        assert about["classes"] == [2**60, 2**60 + 1]
        (account,) = [c for c in about["columns"] if c["name"] == "account"]
        assert account["example"] in frame["account"].tolist()
        assert account["low"] == frame["account"].min()
    again = ServedModel(path, tmp_path / "store", "cpu")
    (kept,) = again.model.candidates_.look_up([len(frame)])["account"]
    assert kept == 2**60 + 12345
    again.close()

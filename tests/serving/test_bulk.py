"""Tables as bodies: what would unfold is refused by its header, the rest is read."""

import io
import time
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tabr.errors import DataError
from tabr.serving import app
from tabr.serving.app import CHUNK, create_app
from tabr.serving.bounds import Bounds
from tabr.serving.bulk import ARROW, CSV, read
from tabr.serving.guards import Limits
from tabr.serving.messages import MOST_TEXT

from .conftest import OWN, houses
from .test_app import from_bytes, to_bytes

MIB = 1 << 20
BOUNDS = Bounds(rows=1000, columns=20, cells=20_000, n_bytes=MIB)


def stream(*columns: pa.Array, batches: int = 1, **options) -> bytes:
    """An Arrow stream of columns, in so many batches of the same rows."""
    names = [f"c{k}" for k in range(len(columns))]
    batch = pa.record_batch(list(columns), names=names)
    sink = io.BytesIO()
    with pa.ipc.new_stream(
        sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)
    ) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return sink.getvalue()


def refusal(content: bytes, media: str, bounds: Bounds = BOUNDS) -> str:
    """The words of a refusal, for which little memory was taken."""
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            read(content, media, bounds, {})
        assert tracemalloc.get_traced_memory()[1] < 8 * max(len(content), MIB)
    finally:
        tracemalloc.stop()
    assert pa.total_allocated_bytes() - before < 8 * MIB
    return str(caught.value)


def levels(text: str, n: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int8()), [text])


BOMBS = {
    "nulls": (stream(pa.nulls(300_000_000)), "1000 rows"),
    "many batches": (stream(pa.nulls(900), batches=50), "1000 rows"),
    "zstd": (stream(pa.array(np.zeros(900_000)), compression="zstd"), "rows"),
    "zstd of one text": (
        stream(pa.array(["a" * 20 * MIB]), compression="zstd"),
        "bytes",
    ),
    "lz4": (stream(pa.array(["a" * 20 * MIB]), compression="lz4"), "bytes"),
    "packed twice": (
        stream(pa.array(["a" * (MIB // 2)]), compression="zstd", batches=3),
        "bytes",
    ),
    "packed levels": (
        stream(levels("a" * 20 * MIB, 2), compression="zstd"),
        "bytes",
    ),
    "long levels": (stream(levels("a" * 9000, 900)), "bytes"),
    "columns": (stream(*[pa.array([1])] * 21), "20 columns"),
    "cells": (stream(*[pa.nulls(900)] * 20, batches=2), "rows"),
    "long text": (stream(pa.array(["a" * (MOST_TEXT + 1)])), "10000 characters"),
    "views": (stream(pa.array(["a" * 50], pa.string_view())), "'c0'"),
    "lists": (stream(pa.array([[1]])), "'c0'"),
    "structs": (stream(pa.array([{"a": 1}])), "'c0'"),
    "bytes": (stream(pa.array([b"a"])), "'c0'"),
    "runs": (
        stream(pa.RunEndEncodedArray.from_arrays([900], pa.array([1]))),
        "'c0'",
    ),
    "unions": (
        stream(
            pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        ),
        "'c0'",
    ),
    "levels of lists": (
        stream(pa.DictionaryArray.from_arrays([0], pa.array([[1]]))),
        "'c0'",
    ),
    "an old version": (
        stream(pa.array([1]), metadata_version=pa.ipc.MetadataVersion.V4),
        "version",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_arrow_that_would_unfold_is_refused(name):
    content, words = BOMBS[name]
    assert words in refusal(content, ARROW)


def test_columns_that_share_their_bytes_count_each():
    """A stream whose columns all lie in the same bytes of its body."""
    content = stream(*[pa.array(np.arange(900) + k) for k in range(19)])
    assert len(content) > 19 * 900 * 8
    few = Bounds(rows=1000, columns=20, cells=20_000, n_bytes=18 * 900 * 8)
    assert "bytes" in refusal(content, ARROW, few)


def test_arrow_within_the_bounds_is_read_as_it_was():
    columns = {
        "number": pa.array([1.5, None]),
        "whole": pa.array([2**60 + 1, 7]),
        "flag": pa.array([True, False]),
        "text": pa.array(["Köln", None]),
        "level": pa.array(["a", "b"]).dictionary_encode(),
        "day": pa.array([0, 1], pa.timestamp("s")),
        "nothing": pa.nulls(2),
    }
    batch = pa.table(columns).to_batches()[0]
    for compression in (None, "zstd", "lz4"):
        sink = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        frame = read(sink.getvalue(), ARROW, BOUNDS, {})
        pd.testing.assert_frame_equal(frame, batch.to_pandas())


def test_what_pandas_noted_beside_a_table_is_not_followed():
    content = to_bytes(houses(3)[0], ARROW)
    table = pa.ipc.open_stream(content).read_all()
    for note in (b"[" * 100_000, b'{"index_columns": [[]]}', b"{}", b"\xff"):
        sink = io.BytesIO()
        noted = table.replace_schema_metadata({b"pandas": note})
        with pa.ipc.new_stream(sink, noted.schema) as writer:
            writer.write_table(noted)
        assert len(read(sink.getvalue(), ARROW, BOUNDS, {})) == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"," * MIB, "cells"),
        (b";" * MIB, "cells"),
        (b"\t" * MIB, "cells"),
        (b"," * 20, "20 columns"),
        (b'"\n\n"' + b"," * 20, "20 columns"),
        (b"\n\n \n" + b"," * 20 + b"\n1", "header"),
        (b"a\n" * 5000, "rows"),
        (b"a\r" * 5000, "rows"),
        (b"a\n" + b"1\n" * 1500, "1000 rows"),
        (b",".join([b"a" * 100_000] * 15), "header"),
        (b"a\n" + b"a" * (MOST_TEXT + 1), "10000 characters"),
        (b'a,b\n"1,2\n3,4\n', "line 2"),
        (b"", "empty"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_csv_that_would_unfold_is_refused(content, words):
    assert words in refusal(content, CSV)


def test_csv_within_the_bounds_is_read():
    text = ",".join(f'"{k}, and more"' for k in range(20)) + "\n" + ",".join("1" * 20)
    assert read(text.encode(), CSV, BOUNDS, {}).shape == (1, 20)


VALID = {
    CSV: to_bytes(houses(4)[0], CSV),
    ARROW: to_bytes(houses(4)[0].astype({"town": "category"}), ARROW),
}


@pytest.mark.parametrize("media", VALID)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_tables_are_read_or_refused_in_words(media, data):
    content = bytearray(VALID[media])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content)))
        end = data.draw(st.sampled_from([place, place + 1, place + 4, place + 8]))
        pieces = [b"\xff" * 4, b"\xff" * 8, b"\0" * 8, b"\x7f" * 4, b'"', b",", b"\n"]
        content[place:end] = data.draw(st.binary(max_size=8) | st.sampled_from(pieces))
    try:
        frame = read(bytes(content), media, BOUNDS, {})
    except DataError:
        return
    assert len(frame) <= BOUNDS.rows and frame.size <= BOUNDS.cells


# --- in the service -------------------------------------------------------------


@pytest.mark.parametrize("media", [CSV, ARROW])
def test_a_long_table_is_predicted_part_by_part(served, media, monkeypatch):
    frame, _ = houses(2 * CHUNK + 5, seed=9)
    sizes, predict = [], served.predict

    def noted(rows, *more):
        sizes.append(len(rows))
        return predict(rows, *more)

    expected = served.model.predict(frame)
    monkeypatch.setattr(served, "predict", noted)
    with TestClient(create_app(served), OWN) as client:
        answer = client.post(
            "/v1/predict/table",
            content=to_bytes(frame, media),
            headers={"content-type": media},
        )
    table = from_bytes(answer.content, media)
    np.testing.assert_allclose(table["prediction"], expected, rtol=1e-5)
    assert sizes == [CHUNK, CHUNK, 5]


def test_each_part_of_a_long_table_has_the_time_of_an_answer(served, monkeypatch):
    frame, _ = houses(60, seed=9)
    monkeypatch.setattr(app, "CHUNK", 10)
    predict, seconds = served.predict, 0.2

    def slow(*arguments):
        time.sleep(seconds)
        return predict(*arguments)

    monkeypatch.setattr(served, "predict", slow)
    content, headers = to_bytes(frame, ARROW), {"content-type": ARROW}
    limits = Limits(seconds=0.9)  # of all six parts it would not be enough
    with TestClient(create_app(served, limits=limits), OWN) as client:
        request = {"content": content, "headers": headers}
        assert client.post("/v1/predict/table", **request).status_code == 200
        seconds = 1.5
        answer = client.post("/v1/predict/table", **request)
        assert answer.status_code == 503 and "too long" in answer.json()["detail"]


@pytest.mark.parametrize("media", [CSV, ARROW])
@pytest.mark.parametrize("cell", ["many", "", float("inf"), "inf"])
def test_rows_of_a_table_are_added_as_the_model_can_read_them(served, media, cell):
    frame, price = houses(2)
    frame["price"] = price
    headers = {"content-type": media}
    path = "/v1/candidates/table?target=price"
    before = served.version
    with TestClient(create_app(served), OWN, raise_server_exceptions=False) as client:
        cells = ["1", cell] if isinstance(cell, str) else [1.0, cell]
        wrong = to_bytes(frame.assign(rooms=cells), media)
        answer = client.post(path, content=wrong, headers=headers)
        if media == CSV and cell == "":  # a gap
            return
        assert answer.status_code == 422 and "'rooms'" in answer.text
        assert served.version == before
        texts = to_bytes(frame.assign(rooms=["1", "2.5"]), media)
        assert client.post(path, content=texts, headers=headers).status_code == 201
        added = served.model.candidates_.frame["rooms"].iloc[-2:]
        assert added.astype(float).tolist() == [1.0, 2.5]


def test_bombs_change_nothing_in_the_service(served):
    before = served.version
    app = create_app(served, limits=Limits(bulk_rows=1000, body_bytes=MIB))
    with TestClient(app, OWN, raise_server_exceptions=False) as client:
        for path in ("/v1/predict/table", "/v1/candidates/table?target=c0"):
            for name, (content, _) in BOMBS.items():
                headers = {"content-type": ARROW}
                answer = client.post(path, content=content, headers=headers)
                assert answer.status_code in (413, 422), (name, answer.text)
    assert served.version == before

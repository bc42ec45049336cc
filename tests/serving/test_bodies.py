"""JSON bodies: what is costly is refused by its counts, the rest is read as it came."""

import gzip
import json
import threading

import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tabr import TabRRegressor
from tabr.errors import DataError
from tabr.serving.app import create_app
from tabr.serving.bodies import MOST_PROBLEMS, measure, read
from tabr.serving.messages import MOST_TEXT, Removal, Requests, Schema

from .conftest import OWN, houses

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def schema(regressor_file) -> Schema:
    return Schema(TabRRegressor.load(regressor_file, "cpu"))


@pytest.fixture(scope="module")
def requests(schema: Schema) -> Requests:
    return Requests(schema, most_rows=100)


@pytest.fixture(scope="module")
def rows(schema: Schema) -> list[dict]:
    return schema.to_rows(houses(5, seed=4)[0])


def counted(value) -> tuple[int, int]:
    """The values of a tree and its depth, counted one by one."""
    if not isinstance(value, list | dict):
        return 1, 0
    parts = list(value.values() if isinstance(value, dict) else value)
    sizes = [counted(part) for part in parts]
    return 1 + sum(n for n, _ in sizes), 1 + max((d for _, d in sizes), default=0)


@settings(max_examples=150, deadline=None)
@given(VALUES, st.booleans())
def test_size_is_never_less_than_what_is_there(value, ascii):
    n_values, depth = counted(value)
    size = measure(json.dumps(value, ensure_ascii=ascii).encode())
    assert size.depth == depth
    assert (
        n_values <= size.n_values <= 2 * n_values
    )  # an empty list looks like one item


def test_size_is_counted_across_parts():
    texts = ["[" * 700_000, '"\\', "," * 700_000]
    assert measure(json.dumps([texts] * 3).encode()) == (13, 2)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_rows_are_read_as_json_has_them(data, requests, rows):
    cells = {
        "size": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "rooms": st.none() | st.integers(-(2**70), 2**70),
        "town": st.none() | st.booleans() | st.text(max_size=20),
        "garden": st.none() | st.booleans(),
    }
    made = [
        {**row, **{name: data.draw(cell) for name, cell in cells.items()}}
        for row in rows[:2]
    ]
    body = {"coverage": 0.5, "rows": made}
    text = json.dumps(body, indent=data.draw(st.sampled_from([None, 1, "\t"])))
    query = read(text.encode(), requests.query)
    own = [{name: row[name] for name in query.rows[0]} for row in made]
    assert query.rows == own
    assert query.coverage == 0.5


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_hostile_bytes_are_refused_in_words(data, requests, rows):
    body = json.dumps({"rows": rows[:2], "labels": [1.0, 2.0]}).encode()
    place = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(place, min(place + 20, len(body))))
    pieces = st.sampled_from(
        [b"[", b"{", b'"', b"\\", b",", b":", b"]", b"}", b"\\ud800", b"NaN", b"1e999",
         b"-", b"\xff", b"\xef\xbb\xbf", b"9" * 5000, b'"rows":[],', b"null", b"\x00"]
    )  # fmt: skip
    piece = data.draw(st.binary(max_size=8) | pieces)
    kind = data.draw(st.sampled_from([requests.query, requests.addition, Removal]))
    try:
        message = read(body[:place] + piece + body[end:], kind)
    except (DataError, RequestValidationError):
        return
    assert isinstance(message, kind)


def refusal(content: bytes, kind) -> str:
    with pytest.raises((DataError, RequestValidationError)) as caught:
        read(content, kind)
    if isinstance(caught.value, DataError):
        return str(caught.value)
    return json.dumps(caught.value.errors())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[" * 100_000, "values"),
        (b'{"rows": [' + b"[" * 1000 + b"]" * 1000 + b"]}", "deep"),
        (b'{"rows": [' + b"[]," * 50_000 + b"[]]}", "values"),
        (b'{"rows": [{' + b'"a":1,' * 50_000 + b'"a":1}]}', "values"),
        (b'{"rows": [{"a":1,"a":1}]}', "'a' came more than once"),
        (b'{"rows": [], "rows": []}', "'rows' came more than once"),
        (b'{"rows": [{"rooms": ' + b"9" * 5000 + b"}]}", "digits"),
        (b'{"rows": [{"rooms": ' + b"9" * 400 + b"}]}", "finite"),
        (b'{"rows": [{"rooms": 1e400}]}', "finite"),
        (b'{"rows": [{"rooms": NaN}]}', "finite"),
        (b'{"rows": [{"town": "\\ud800"}]}', "town"),
        (json.dumps({"rows": [{"town": "a" * (MOST_TEXT + 1)}]}).encode(), "10000"),
        ('{"rows": []}'.encode("utf-16"), "UTF-8"),
        (b'{"rows": ["\xff"]}', "UTF-8"),
        (b'{"rows": []} {}', "JSON decode error"),
        (b'{"rows": [],}', "JSON decode error"),
        (b'{"rows": [1 2]}', "JSON decode error"),
        (b'{1: []}', "JSON decode error"),
        (b"\xef\xbb\xbf", "JSON decode error"),
    ],
)  # fmt: skip
def test_odd_json_is_refused_in_words(content, words, requests):
    assert words in refusal(content, requests.query)


def test_many_mistakes_are_named_in_part(requests, rows):
    unknown = {**rows[0], **{f"unknown {k}": 1 for k in range(1000)}}
    wrong = [{**row, "rooms": "many"} for row in rows] * 20
    for made in ([unknown], wrong):
        with pytest.raises(RequestValidationError) as caught:
            read(json.dumps({"rows": made}).encode(), requests.query)
        assert 1 <= len(caught.value.errors()) <= MOST_PROBLEMS
    with pytest.raises(RequestValidationError) as caught:
        read(json.dumps({"ids": ["wrong"] * 9000}).encode(), Removal)
    assert len(caught.value.errors()) == 1


def test_a_byte_order_mark_is_no_mistake(requests, rows):
    content = b"\xef\xbb\xbf" + json.dumps({"rows": rows}).encode()
    assert len(read(content, requests.query).rows) == len(rows)


@pytest.fixture
def client(served):
    with TestClient(create_app(served), OWN, raise_server_exceptions=False) as client:
        yield client


def test_names_that_cannot_be_encoded_are_refused_and_cut(client, rows):
    for name in ("\ud800", "long" * 10_000):
        content = json.dumps({"rows": [{**rows[0], name: 1}]})
        headers = {"content-type": "application/json"}
        answer = client.post("/v1/predict", content=content, headers=headers)
        assert answer.status_code == 422
        assert len(answer.content) < 1000


def test_bodies_of_another_type_or_packed_are_refused(client, rows):
    content = json.dumps({"rows": rows}).encode()
    for more in (
        {"content-type": "text/csv"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ):
        packed = gzip.compress(content) if "content-encoding" in more else content
        answer = client.post("/v1/predict", content=packed, headers=more)
        assert answer.status_code == 415, answer.text
    headers = {"content-type": "text/csv", "content-encoding": "gzip"}
    answer = client.post("/v1/predict/table", content=packed, headers=headers)
    assert answer.status_code == 415
    headers = {"content-type": "application/json; charset=utf-8"}
    answer = client.post("/v1/predict", content=content, headers=headers)
    assert answer.status_code == 200


def test_long_bodies_are_read_beside_the_loop(served, rows, monkeypatch):
    names = []

    def noted(content, message):
        names.append(threading.current_thread().name)
        return read(content, message)

    monkeypatch.setattr("tabr.serving.bodies.read", noted)
    with TestClient(create_app(served), OWN) as client:
        for n in (1, 200):
            answer = client.post("/v1/predict", json={"rows": rows * n})
            assert answer.status_code == 200
    assert not names[0].startswith("bodies") and names[1].startswith("bodies")

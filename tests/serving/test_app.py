"""The service over HTTP, in one process."""

import gc
import io
import json
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from tabr import TabRRegressor
from tabr.serving import service
from tabr.serving.access.tokens import Tokens
from tabr.serving.app import create_app
from tabr.serving.guards import Limits
from tabr.serving.served_model import ServedModel
from tabr.serving.service import Compacting
from tabr.serving.store.connection import OutcomeUnknown, StoreError

from .conftest import OWN, houses

WRITE, READ = "w" * 20, "r" * 20


@pytest.fixture
def client(served: ServedModel) -> Iterator[TestClient]:
    app = create_app(served)
    with TestClient(app, OWN, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def rows(served: ServedModel) -> list[dict]:
    return served.schema.to_rows(houses(5, seed=4)[0])


def test_predictions_are_those_of_the_model(client, served, rows):
    answer = client.post("/v1/predict", json={"rows": rows})
    assert answer.status_code == 200
    model = TabRRegressor.load(served.path, "cpu")
    frame, _ = houses(5, seed=4)
    predictions = [p["prediction"] for p in answer.json()["predictions"]]
    np.testing.assert_allclose(predictions, model.predict(frame))
    assert answer.json()["version"] == served.version


def test_the_model_is_described(client, served):
    about = client.get("/v1/model").json()
    assert about["task"] == "regression" and about["target"] == "price"
    assert about["rights"] == "write" and about["n_candidates"] == len(
        served.model.candidates_
    )
    assert about["place"] == {"latitude": "latitude", "longitude": "longitude"}
    assert [c["name"] for c in about["columns"]][:3] == ["size", "rooms", "town"]


def test_a_new_row_is_used_at_once_and_can_be_taken_back(client, rows):
    row = {**rows[0], "rooms": 7}
    before = client.post("/v1/explain", json={"rows": [row], "top": 3}).json()
    body = {"rows": [row], "labels": [99999.0]}
    added = client.post("/v1/candidates", json=body)
    assert added.status_code == 201
    (new,) = added.json()["ids"]
    after = client.post("/v1/explain", json={"rows": [row], "top": 3}).json()
    assert after["explanations"][0]["neighbors"][0]["id"] == new
    assert after["version"] != before["version"]
    gone = client.request("DELETE", "/v1/candidates", json={"ids": [new]})
    assert gone.status_code == 200
    again = client.post("/v1/explain", json={"rows": [row], "top": 3}).json()
    last, first = again["explanations"][0], before["explanations"][0]
    assert last["prediction"] == pytest.approx(first["prediction"])


@pytest.mark.parametrize(
    ("change", "place", "kind"),
    [
        ({"rooms": "seven"}, "rooms", "float_type"),
        ({"rooms": True}, "rooms", "float_type"),
        ({"town": ["Ulm"]}, "town", "string_type"),
        ({"garden": "yes"}, "garden", "bool_type"),
        ({"gardne": True}, "gardne", "extra_forbidden"),
        ({"built": 7}, "built", "string_type"),
    ],
)
def test_a_wrong_cell_is_named(client, rows, change, place, kind):
    body = {"rows": [rows[1], {**rows[0], **change}]}
    answer = client.post("/v1/predict", json=body)
    assert answer.status_code == 422
    problems = answer.json()["detail"]
    assert problems[0]["loc"][:4] == ["body", "rows", 1, place]
    assert problems[0]["type"] == kind
    assert "seven" not in answer.text


def test_an_absent_column_is_named_and_a_gap_is_not_a_mistake(client, rows):
    without = {name: cell for name, cell in rows[0].items() if name != "town"}
    answer = client.post("/v1/predict", json={"rows": [without]})
    (detail,) = answer.json()["detail"]
    assert detail["loc"][-1] == "town" and detail["type"] == "missing"
    gap = client.post("/v1/predict", json={"rows": [{**rows[0], "town": None}]})
    assert gap.status_code == 200
    extra = client.post("/v1/predict", json={"rows": [{**rows[0], "constant": 1}]})
    assert extra.status_code == 200  # a column of the table that nothing reads


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'{"rows": []}', b'{"rows": {}}', b"\xff\xfe",
        b'{"rows": [{}], "more": 1}', b"[" * 100_000, b'{"rows": ' + b"[" * 50_000,
        b'{"rows": [{"rooms": NaN}]}', b'{"rows": [{"rooms": 1e999}]}',
        b'{"rows": [{"rooms": ' + b"9" * 5000 + b"}]}",
    ],
)  # fmt: skip
def test_hostile_bodies_are_refused(client, body):
    headers = {"content-type": "application/json"}
    for path in ("/v1/predict", "/v1/explain", "/v1/candidates"):
        answer = client.post(path, content=body, headers=headers)
        assert answer.status_code in (400, 422), answer.text
        assert "Traceback" not in answer.text


def test_numbers_that_are_not_finite_are_refused(client, rows):
    for cell in ("NaN", "Infinity", "-Infinity", "1e400"):
        row = json.dumps({**rows[0], "rooms": "HERE"}).replace('"HERE"', cell)
        answer = client.post(
            "/v1/predict",
            content=f'{{"rows": [{row}]}}',
            headers={"content-type": "application/json"},
        )
        assert answer.status_code == 422, cell


def test_labels_and_ids_are_checked(client, rows):
    answer = client.post("/v1/candidates", json={"rows": rows[:2], "labels": [1.0]})
    assert answer.status_code == 422 and "each row needs one label" in answer.text
    answer = client.post("/v1/candidates", json={"rows": rows[:1], "labels": ["x"]})
    assert answer.status_code == 422
    for body in ({"ids": [-1]}, {"ids": []}, {"ids": [2**70]}, {"ids": ["1"]}):
        assert client.request("DELETE", "/v1/candidates", json=body).status_code == 422
    body = {"ids": [4, 10**9], "labels": [1.0, 2.0]}
    answer = client.patch("/v1/candidates", json=body)
    assert answer.status_code == 404 and "1000000000" in answer.json()["detail"]


def test_a_key_makes_retries_harmless(client, rows):
    headers = {"Idempotency-Key": "order-17"}
    body = {"rows": rows[:1], "labels": [1.0]}
    first = client.post("/v1/candidates", json=body, headers=headers)
    again = client.post("/v1/candidates", json=body, headers=headers)
    assert first.json() == again.json() and again.status_code == 201
    other = {"rows": rows[:1], "labels": [2.0]}
    assert client.post("/v1/candidates", json=other, headers=headers).status_code == 409


def test_a_retry_of_any_write_gets_the_first_answer_whole(client, rows):
    frame, price = houses(3, seed=6)
    table = frame.assign(price=price).to_csv(index=False).encode()
    body = {"rows": rows[:2], "labels": [1.0, 2.0]}
    csv = {"content-type": "text/csv"}
    writes = [
        ("POST", "/v1/candidates", {"json": body}, {}),
        ("POST", "/v1/candidates/table?target=price", {"content": table}, csv),
        ("PATCH", "/v1/candidates", {"json": {"ids": [3], "labels": [7.0]}}, {}),
        ("DELETE", "/v1/candidates", {"json": {"ids": [4]}}, {}),
        ("POST", "/v1/compact", {}, {}),
    ]

    def write(number: int) -> tuple[int, bytes]:
        method, path, content, headers = writes[number]
        headers = {**headers, "Idempotency-Key": f"write-{number}"}
        answer = client.request(method, path, headers=headers, **content)
        return answer.status_code, answer.content

    first = [write(number) for number in range(5)]
    assert [status for status, _ in first] == [201, 201, 200, 200, 200]
    client.request("DELETE", "/v1/candidates", json={"ids": [5]})
    version = client.get("/v1/model").json()["version"]
    assert [write(number) for number in range(5)] == first
    assert client.get("/v1/model").json()["version"] == version
    headers = {"Idempotency-Key": "write-0"}
    assert client.post("/v1/compact", headers=headers).status_code == 409


@pytest.mark.parametrize("media", ["text/csv", "application/vnd.apache.arrow.stream"])
def test_tables_go_in_and_out(client, served, media):
    frame, price = houses(12, seed=6)
    frame["price"] = price
    expected = served.model.predict(frame)
    content = to_bytes(frame, media)
    headers = {"content-type": media}
    answer = client.post("/v1/predict/table", content=content, headers=headers)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith(
        media
    )
    table = from_bytes(answer.content, media)
    np.testing.assert_allclose(table["prediction"], expected)
    added = client.post(
        "/v1/candidates/table?target=price", content=content, headers=headers
    )
    assert added.status_code == 201 and len(added.json()["ids"]) == 12
    y = served.model.candidates_.y_of(np.array(added.json()["ids"]))
    np.testing.assert_allclose(y.astype(float), price)
    for bad in (b"", b"\x00\xff", b"a,b\n1"):
        answer = client.post("/v1/predict/table", content=bad, headers=headers)
        assert answer.status_code == 422
    other = client.post("/v1/predict/table", content=content)
    assert other.status_code == 415


def test_cells_that_are_no_values_are_refused(client):
    media = "application/vnd.apache.arrow.stream"
    frame, _ = houses(2)
    frame["size"] = [[1.0], [2.0]]
    headers = {"content-type": media}
    content = to_bytes(frame, media)
    answer = client.post("/v1/predict/table", content=content, headers=headers)
    assert answer.status_code == 422 and "'size'" in answer.json()["detail"]


def to_bytes(frame: pd.DataFrame, media: str) -> bytes:
    if media == "text/csv":
        return frame.to_csv(index=False).encode()
    sink = io.BytesIO()
    table = pa.Table.from_pandas(frame, preserve_index=False)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_bytes(content: bytes, media: str) -> pd.DataFrame:
    if media == "text/csv":
        return pd.read_csv(io.BytesIO(content))
    return pa.ipc.open_stream(content).read_all().to_pandas()


def test_without_the_right_token_nothing_is_revealed_or_changed(served, rows):
    app = create_app(served, Tokens(WRITE, READ))
    with TestClient(app, OWN, raise_server_exceptions=False) as client:
        before = served.version
        body = {"rows": rows[:1], "labels": [1.0]}
        asked = [
            ("GET", "/v1/model", None),
            ("GET", "/v1/candidates", None),
            ("POST", "/v1/predict", {"rows": rows[:1]}),
            ("POST", "/v1/explain", {"rows": rows[:1]}),
            ("POST", "/v1/candidates", body),
            ("PATCH", "/v1/candidates", {"ids": [1], "labels": [1.0]}),
            ("DELETE", "/v1/candidates", {"ids": [1]}),
            ("POST", "/v1/compact", None),
            ("GET", "/metrics", None),
            ("GET", "/openapi.json", None),
            ("GET", "/v1/changes", None),
            ("GET", "/v1/nothing", None),
        ]
        for token in (None, "Bearer wrong", f"Bearer {WRITE}x", "Bearer ", WRITE):
            headers = {} if token is None else {"authorization": token}
            for method, path, json_body in asked:
                answer = client.request(method, path, json=json_body, headers=headers)
                assert answer.status_code == 401, (path, token)
                assert set(answer.json()) == {"detail"} and "size" not in answer.text
        for path in ("/", "/healthz", "/readyz"):
            assert client.get(path).status_code == 200
        reader = {"authorization": f"Bearer {READ}"}
        assert client.get("/v1/model", headers=reader).json()["rights"] == "read"
        for method, path, json_body in asked[4:8]:
            answer = client.request(method, path, json=json_body, headers=reader)
            assert answer.status_code == 403
        assert served.version == before
        writer = {"authorization": f"Bearer {WRITE}"}
        answer = client.post("/v1/candidates", json=body, headers=writer)
        assert answer.status_code == 201


def test_too_much_is_refused(served, rows):
    app = create_app(served, limits=Limits(rows=3, body_bytes=2000))
    with TestClient(app, OWN, raise_server_exceptions=False) as client:
        answer = client.post("/v1/predict", json={"rows": rows[:4]})
        assert answer.status_code == 422
        headers = {"content-type": "application/json"}
        answer = client.post("/v1/predict", content=b"x" * 3000, headers=headers)
        assert answer.status_code == 413

        def parts() -> Iterator[bytes]:
            for _ in range(30):
                yield b"x" * 100

        answer = client.post("/v1/predict", content=parts(), headers=headers)
        assert answer.status_code == 413


def test_a_refused_body_is_let_go_at_once(client):
    headers, size = {"content-type": "application/json"}, 2_000_000
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(8):
            body = b" " * size
            answer = client.post("/v1/predict", content=body, headers=headers)
            assert answer.status_code == 422
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held < 12 * size  # of which the client here holds 8; it was 24


def test_a_store_that_fails_is_said_and_the_service_goes_on(client, served, rows):
    append = served.store.append

    def full(*arguments, **more):
        raise StoreError("/secret/path is full, and nothing was changed")

    served.store.append = full
    body = {"rows": rows[:1], "labels": [1.0]}
    answer = client.post("/v1/candidates", json=body)
    assert answer.status_code == 503 and "try again later" in answer.json()["detail"]
    assert answer.json()["outcome"] == "not made" and "secret" not in answer.text
    assert client.post("/v1/predict", json={"rows": rows[:1]}).status_code == 200
    served.store.append = append
    assert client.post("/v1/candidates", json=body).json()["ids"] == [120]


def test_a_change_of_unknown_outcome_is_not_called_not_made(client, served, rows):
    def lost(*arguments, **more):
        raise OutcomeUnknown("the server at /secret/path was lost")

    served.store.append = lost
    answer = client.post("/v1/candidates", json={"rows": rows[:1], "labels": [1.0]})
    assert answer.status_code == 504 and answer.json()["outcome"] == "unknown"
    assert "same Idempotency-Key" in answer.text and "secret" not in answer.text
    assert "not made" not in answer.text


def test_a_change_that_takes_too_long_may_yet_be_made(served, rows):
    app, gate = create_app(served, limits=Limits(seconds=0.3)), threading.Event()
    append = served.store.append

    def slow(*arguments, **more):
        gate.wait(10)
        return append(*arguments, **more)

    served.store.append = slow
    with TestClient(app, OWN, raise_server_exceptions=False) as client:
        body = {"rows": rows[:1], "labels": [1.0]}
        headers = {"Idempotency-Key": "slow"}
        answer = client.post("/v1/candidates", json=body, headers=headers)
        assert (answer.status_code, answer.json()["outcome"]) == (504, "unknown")
        gate.set()
        again = client.post("/v1/candidates", json=body, headers=headers)
        assert again.status_code == 201 and again.json()["n_candidates"] == 121


def test_readiness_follows_the_store(client, served, rows, monkeypatch):
    assert client.get("/readyz").json() == {"status": "ready"}
    monkeypatch.setattr(service, "HEALTH_SECONDS", 0.2)
    gate, check = threading.Event(), client.app.state.service.health
    monkeypatch.setattr(check, "_check", lambda: gate.wait(10))
    time.sleep(0.15)  # for which the last answer holds
    for _ in range(2):
        answer = client.get("/readyz")
        assert answer.status_code == 503 and "not answered" in answer.json()["reason"]
    assert client.post("/v1/predict", json={"rows": rows[:1]}).status_code == 200
    gate.set()
    time.sleep(0.15)
    assert client.get("/readyz").status_code == 200


def test_a_model_file_that_cannot_be_written_is_said(client, served, rows):
    client.post("/v1/candidates", json={"rows": rows[:1], "labels": [1.0]})
    served.path.with_name("houses-1.tabr").mkdir()
    answer = client.post("/v1/compact")
    assert answer.status_code == 503 and answer.json()["outcome"] == "not made"
    assert "houses" not in answer.text


def test_an_unexpected_error_shows_no_trace(client, served, rows, monkeypatch):
    monkeypatch.setattr(served, "explain", lambda *_: 1 / 0)
    answer = client.post("/v1/explain", json={"rows": rows[:1]})
    assert answer.status_code == 500
    assert answer.json() == {"detail": "something went wrong here; see the log"}


def test_logs_hold_no_contents(client, rows, caplog):
    caplog.set_level("INFO", "tabr.serving")
    client.post("/v1/predict", json={"rows": rows[:1]})
    (line,) = [r.getMessage() for r in caplog.records if "predict" in r.getMessage()]
    assert line.startswith("POST /v1/predict 200 ") and "Ulm" not in caplog.text


def test_nobody_writes_lines_of_their_own_into_the_log(client, caplog):
    caplog.set_level("INFO", "tabr.serving")
    forged = "/a%0a2026-01-01%20GET%20/%20200%1b[2J%e2%80%ae%c2%9b"
    client.get(forged)
    client.get("/" + "b" * 5000)
    first, second = (r.getMessage() for r in caplog.records if "GET" in r.getMessage())
    assert first.isprintable() and first.isascii() and "\\n2026" in first
    assert "404" in first and len(second) < 300


def test_pages_come_with_headers_that_browsers_obey(client):
    answer = client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get("/static/../app.py").status_code == 404


def test_requests_are_counted_by_route(client, rows):
    client.post("/v1/predict", json={"rows": rows[:1]})
    client.get("/v1/some/secret/path")
    text = client.get("/metrics").text
    assert 'tabr_requests_total{path="/v1/predict",status="200"} 1.0' in text
    assert "secret" not in text and "tabr_candidates " in text


def test_many_changes_or_old_ones_are_compacted_unasked(
    served, rows, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(service, "CATCH_UP_SECONDS", 0.02)
    monkeypatch.setattr(service, "APART_SECONDS", 0.02)
    for compacting, n in ((Compacting(changes=2), 2), (Compacting(seconds=0.1), 1)):
        app = create_app(served, compacting=compacting)
        app.router.lifespan_context = partial(keep_open, served, app)
        with TestClient(app, OWN) as client:
            for _ in range(n):
                body = {"rows": rows[:1], "labels": [1.0]}
                client.post("/v1/candidates", json=body)
            end = time.monotonic() + 20
            while served.n_uncompacted and time.monotonic() < end:
                time.sleep(0.02)
            assert not served.n_uncompacted
    assert served.path.with_name("houses-3.tabr").is_file()


@asynccontextmanager
async def keep_open(served, app, _):
    """Run the app without closing the model at its end."""
    close, served.close = served.close, lambda: None
    async with app.state.service.lifespan(app):
        yield
    served.close = close


def test_the_end_compacts_what_has_changed(model_file: Path):
    served = ServedModel(model_file, model_file.with_name("store"), "cpu")
    rows = served.schema.to_rows(houses(1)[0])
    with TestClient(create_app(served), OWN) as client:
        client.post("/v1/candidates", json={"rows": rows, "labels": [1.0]})
    assert model_file.with_name("houses-1.tabr").is_file()
    again = ServedModel(model_file, model_file.with_name("store"), "cpu")
    assert again.applied == 1 and again.n_uncompacted == 0
    again.close()


def test_a_label_far_beyond_those_of_fit_is_told_with_the_answer(served, rows):
    with TestClient(create_app(served), OWN) as client:
        usual = {"rows": rows[:1], "labels": [2000.0]}
        assert client.post("/v1/candidates", json=usual).json()["doubt"] is None
        far = {"rows": rows[:1], "labels": [1e9]}
        headers = {"Idempotency-Key": "far"}
        first = client.post("/v1/candidates", json=far, headers=headers).json()
        assert "far beyond those that fit saw" in first["doubt"]
        assert client.post("/v1/candidates", json=far, headers=headers).json() == first
        change = {"ids": first["ids"], "labels": [-1e9]}
        assert (
            "far beyond" in client.patch("/v1/candidates", json=change).json()["doubt"]
        )
        removal = client.request("DELETE", "/v1/candidates", json={"ids": first["ids"]})
        assert removal.json()["doubt"] is None

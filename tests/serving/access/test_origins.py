"""Which pages may ask, by the headers that a browser sends with a request."""

import pytest
from starlette.testclient import TestClient

from tabr.errors import DataError
from tabr.serving.access.origins import Origins, check_name
from tabr.serving.app import create_app
from tabr.serving.guards import BODIES, OPEN
from tabr.serving.service import Compacting

PATHS = [*OPEN, "/static/page.js", "/v1/model", "/metrics", "/openapi.json", "/nothing"]


@pytest.fixture
def client(served):
    app = create_app(served, compacting=Compacting(at_end=False))
    with TestClient(app, base_url="http://localhost:8000") as client:
        yield client


def ask(client, path="/v1/model", method="GET", **headers):
    headers = {name.replace("_", "-"): text for name, text in headers.items()}
    return client.request(method, path, headers=headers).status_code


@pytest.mark.parametrize("path", PATHS)
def test_no_route_answers_a_foreign_name_or_page(client, path):
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        assert ask(client, path, method, host="evil.test:8000") == 421
        assert ask(client, path, method, origin="http://evil.test:8000") == 403
        assert ask(client, path, method, sec_fetch_site="cross-site") == 403


@pytest.mark.parametrize(
    ("bound", "host", "is_own"),
    [
        ("127.0.0.1", "127.0.0.1:8000", True),
        ("127.0.0.1", "localhost:1", True),
        ("127.0.0.1", "LOCALHOST", True),
        ("127.0.0.1", "[::1]:8000", True),
        ("127.0.0.1", "10.0.0.5:8000", False),
        ("127.0.0.1", "localhost.evil.test", False),
        ("127.0.0.1", "127.0.0.1.evil.test:8000", False),
        ("127.0.0.1", "127.0.0.1@evil.test", False),
        ("127.0.0.1", "evil.test#localhost", False),
        ("127.0.0.1", "localhost:80x", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "proxy.test", True),
        ("127.0.0.1", "proxy.test:4000", True),
        ("127.0.0.1", "other.test:81", True),
        ("127.0.0.1", "other.test:82", False),
        ("0.0.0.0", "10.0.0.5:8000", True),
        ("0.0.0.0", "[2001:db8::1]", True),
        ("0.0.0.0", "evil.test", False),
        ("server.test", "server.test:8000", True),
    ],
)
def test_a_name_is_own_if_bound_or_given(bound, host, is_own):
    assert Origins(bound, ("proxy.test", "other.test:81")).is_own(host) == is_own


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:8000", "http://localhost:8000", 200),
        ("127.0.0.1:8000", "http://localhost:8000", 403),
        ("localhost:8000", "http://localhost:8001", 403),
        ("localhost:8000", "http://localhost", 403),
        ("localhost", "http://localhost", 200),
        ("localhost", "https://localhost:443", 200),
        ("localhost:443", "http://localhost", 403),
        ("localhost:8000", "null", 403),
        ("localhost:8000", "", 403),
        ("localhost:8000", "file://", 403),
        ("localhost:8000", "ftp://localhost:8000", 403),
        ("127.0.0.1:8000", "https://proxy.test", 200),  # which sends its own Host
        ("proxy.test", "https://proxy.test", 200),
        ("proxy.test", "https://proxy.test.evil.test", 403),
        ("proxy.test", "https://other.test", 403),
    ],
)
def test_an_origin_is_that_of_the_address_or_a_name(served, host, origin, status):
    names = Origins(names=("proxy.test", "other.test:81"))
    app = create_app(served, origins=names, compacting=Compacting(at_end=False))
    client = TestClient(app)
    assert ask(client, host=host, origin=origin) == status


def test_a_link_leads_to_a_page_and_to_nothing_else(client):
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert ask(client, "/", sec_fetch_dest="document", **link) == 200
    assert ask(client, "/", sec_fetch_dest="iframe", **link) == 403
    assert ask(client, "/v1/model", sec_fetch_dest="document", **link) == 403
    assert ask(client, "/", "POST", sec_fetch_dest="document", **link) == 403
    assert ask(client, "/v1/model", sec_fetch_site="same-origin") == 200
    assert ask(client, "/v1/model", sec_fetch_site="same-site") == 403


def test_a_body_must_be_of_a_type_that_no_form_can_send(client, served):
    rows = served.sample(1)
    body = {"rows": [rows[0]["row"]], "labels": [1.0]}
    forms = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
    before = served.version
    for media in [*forms, "text/plain; application/json", "application/jsonx", None]:
        headers = {} if media is None else {"content-type": media}
        for method in ("POST", "PATCH", "DELETE"):
            answer = client.request(
                method,
                "/v1/candidates",
                content=client.build_request("POST", "/", json=body).content,
                headers=headers,
            )
            assert answer.status_code == 415 and BODIES[0] in answer.json()["detail"]
    assert served.version == before
    assert client.post("/v1/candidates", json=body).status_code == 201


@pytest.mark.parametrize(
    "name", ["https://a.test", "a.test/", "*.test", "", "a:b", "ü.de"]
)
def test_a_name_that_no_browser_sends_is_refused(name):
    with pytest.raises(DataError, match=r"like example\.org"):
        check_name(name)

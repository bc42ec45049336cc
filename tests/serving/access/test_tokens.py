import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.testclient import TestClient

from tabr import cli
from tabr.errors import DataError
from tabr.serving.access import tokens as tokens_module
from tabr.serving.access.tokens import (
    TokenFile,
    Tokens,
    add,
    hash_of,
    read_file,
    revoke,
)
from tabr.serving.app import create_app
from tabr.serving.service import Compacting

from ..conftest import OWN

BOTH = Tokens("w" * 20, "r" * 20)


@pytest.mark.parametrize(
    ("header", "rights"),
    [
        ("Bearer " + "w" * 20, "write"),
        ("bearer " + "r" * 20, "read"),
        ("Basic " + "w" * 20, None),
        ("w" * 20, None),
        ("Bearer", None),
        ("", None),
        (None, None),
    ],
)
def test_a_token_tells_what_one_may_do(header, rights):
    token = BOTH.find(header)
    assert (token and token.rights) == rights


@given(st.text())
def test_no_other_text_is_a_token(text):
    expected = {"w" * 20: "write", "r" * 20: "read"}.get(text.strip())
    token = BOTH.find(f"Bearer {text}")
    assert (token and token.rights) == expected


def test_empty_tokens_open_nothing_and_none_is_shown():
    assert not Tokens().needed and Tokens().find("Bearer ") is None
    assert Tokens(write="w" * 20).find("Bearer ") is None
    assert Tokens(write="w" * 20, read="").find("Bearer ") is None
    assert "wwww" not in repr(BOTH)
    token = BOTH.find("Bearer " + "w" * 20)
    assert token.sha256 not in repr(token)


# --- the file ---------------------------------------------------------------------


def run(*words):
    return CliRunner().invoke(cli.main, ["token", *map(str, words)])


@pytest.fixture
def at_once(monkeypatch):
    """Let a file be looked at with each request."""
    monkeypatch.setattr(tokens_module, "REREAD_SECONDS", 0.0)


def write(path, **changes):
    end = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    entry = {"name": "ci", "rights": "write", "sha256": hash_of("x" * 20)}
    content = {"format": 1, "tokens": [{**entry, "expires": end, **changes}]}
    path.write_text(json.dumps(content))
    path.chmod(0o600)


def test_tokens_are_made_listed_and_revoked_by_command(tmp_path):
    path = tmp_path / "folder" / "tokens.json"
    made = run("new", "ci", "--rights", "write", "--days", 7, "--file", path)
    assert made.exit_code == 0 and made.stdout.startswith("tabr_")
    secret = made.stdout.strip()
    assert len(secret) > 40 and secret not in path.read_text() + made.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    other = json.loads(run("new", "page", "--file", path, "--json").stdout)
    assert other["rights"] == "read"
    days = datetime.fromisoformat(other["expires"]) - datetime.now(UTC)
    assert timedelta(days=89) < days < timedelta(days=91)
    listed = run("list", "--file", path).stdout
    assert "ci" in listed and "page" in listed and secret not in listed
    found = Tokens(file=TokenFile(path)).find(f"Bearer {secret}")
    assert (found.name, found.rights, found.is_over) == ("ci", "write", False)
    assert run("revoke", "ci", "--file", path).exit_code == 0
    assert [token.name for token in read_file(path)] == ["page"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["tokens.json"]


def test_mistakes_about_tokens_are_said(tmp_path):
    path = tmp_path / "tokens.json"
    add(path, "ci", "read", 1)
    before = path.read_bytes()
    for words, text in (
        (("new", "ci"), "revoke it first"),
        (("new", "token"), "must not be token"),
        (("new", "a b"), "letters, digits"),
        (("revoke", "cii"), "none of them: ci"),
    ):
        result = run(*words, "--file", path)
        assert result.exit_code == 2 and text in result.stderr
    assert path.read_bytes() == before
    assert "--file" in run("list").stderr


def test_no_token_is_lost_when_many_are_made_at_once(tmp_path):
    path = tmp_path / "tokens.json"
    names = {f"name-{k}" for k in range(12)}
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda name: add(path, name, "read", 1), names))
    assert {token.name for token in read_file(path)} == names


def test_a_service_that_runs_sees_changes_of_the_file(tmp_path, served, at_once):
    path = tmp_path / "tokens.json"
    reader = add(path, "page", "read", 1)
    app = create_app(served, Tokens(write="w" * 20, file=TokenFile(path)))
    with TestClient(app, OWN) as client:

        def status(secret, method="GET", path="/v1/model"):
            headers = {"authorization": f"Bearer {secret}"}
            return client.request(method, path, headers=headers).status_code

        assert (status(reader), status("w" * 20), status("x" * 20)) == (200, 200, 401)
        assert status(reader, "POST", "/v1/compact") == 403
        writer = add(path, "ci", "write", 1)
        assert status(writer, "POST", "/v1/compact") == 200
        revoke(path, "page")
        assert (status(reader), status(writer)) == (401, 200)


def test_a_token_ends(tmp_path, served):
    path = tmp_path / "tokens.json"
    end = datetime.now(UTC) - timedelta(seconds=1)
    write(path, expires=end.isoformat())
    with TestClient(create_app(served, Tokens(file=TokenFile(path))), OWN) as client:
        headers = {"authorization": "Bearer " + "x" * 20}
        answer = client.get("/v1/model", headers=headers)
        assert answer.status_code == 401 and "expired" in answer.json()["detail"]
        assert client.get("/", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        {"rights": "all"},
        {"name": "a\nb"},
        {"sha256": "x" * 20},
        {"sha256": None},
        {"expires": "tomorrow"},
        {"expires": "2030-01-01T00:00:00"},
        {"expires": 5},
    ],
)
def test_a_damaged_file_leaves_the_tokens_as_they_were(
    tmp_path, caplog, at_once, change
):
    path = tmp_path / "tokens.json"
    write(path)
    tokens = Tokens(file=TokenFile(path))
    header = "Bearer " + "x" * 20
    write(path, **change)
    assert tokens.find(header).name == "ci"
    assert "the tokens stay as they were" in caplog.text
    for text in ("", "{}", "[]", "null", '{"format": 2}', "[" * 10_000):
        path.write_text(text)
        assert tokens.find(header).name == "ci"
    n_lines = len(caplog.records)
    assert tokens.find(header) and len(caplog.records) == n_lines  # said once
    path.unlink()
    assert tokens.find(header).name == "ci"
    with pytest.raises((DataError, OSError)):
        TokenFile(path)


@pytest.mark.skipif(os.name != "posix", reason="no modes of files")
def test_a_file_that_others_can_write_to_is_not_trusted(tmp_path, at_once):
    path = tmp_path / "tokens.json"
    write(path)
    path.chmod(0o666)
    with pytest.raises(DataError, match="chmod 600"):
        TokenFile(path)
    path.chmod(0o644)  # as containers get theirs
    tokens = Tokens(file=TokenFile(path))
    write(path, sha256=hash_of("y" * 20))
    path.chmod(0o622)
    assert tokens.find("Bearer " + "y" * 20) is None


def client_seen(served, tokens, secret):
    """The client of a request, as a route sees it."""
    app = create_app(served, tokens, compacting=Compacting(at_end=False))
    seen = []

    @app.get("/v1/seen")
    async def look(request: Request) -> None:
        seen.append(request.state.client)

    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    TestClient(app, OWN).get("/v1/seen", headers=headers)
    return seen


def test_the_name_of_the_token_goes_along_with_the_request(tmp_path, served):
    path = tmp_path / "tokens.json"
    secret = add(path, "ci", "write", 1)
    tokens = Tokens("w" * 20, "r" * 20, TokenFile(path))
    assert client_seen(served, Tokens(), None) == [None]
    assert client_seen(served, tokens, None) == []
    assert client_seen(served, tokens, "w" * 20) == ["token"]
    assert client_seen(served, tokens, "r" * 20) == ["read-token"]
    assert client_seen(served, tokens, secret) == ["ci"]

"""What only a server can do: go away, be elsewhere, be somebody else's."""

import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reliability.wire import Wire
from tabr.errors import DataError
from tabr.serving.store import changes
from tabr.serving.store.changes import Change, Store, open_store
from tabr.serving.store.connection import OutcomeUnknown, StoreError
from tabr.serving.store.postgres import PostgresConnection, settings_of

from ..conftest import Open
from ..work import keep
from .test_store import names

psycopg = pytest.importorskip("psycopg", reason="pip install 'tabr[serve]'")


@pytest.fixture
def identity() -> str:
    return secrets.token_hex(32)


@pytest.fixture
def url(postgres: str) -> str:
    return postgres.replace("+psycopg", "")


def end_connections(url: str) -> None:
    """Do what a restart of the server does to its clients."""
    ours = "FROM pg_stat_activity WHERE application_name = 'tabr'"
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(f"SELECT pg_terminate_backend(pid) {ours}")
        while database.execute(f"SELECT 1 {ours}").fetchall():
            time.sleep(0.01)


def test_a_lost_connection_is_made_again(opened: Open, url: str, identity: str):
    store = opened(url, identity)
    keep(store, "one", 0)
    names(store)
    end_connections(url)
    assert keep(store, "two", 1).seq == 2
    assert names(store) == ["one", "two"]


def test_a_connection_lost_half_way_leaves_nothing(
    opened: Open, url: str, identity: str
):
    store, calls = opened(url, identity), []

    def make(newer: list[Change]) -> Any:
        calls.append(newer)
        end_connections(url)
        return "add", {"name": "lost"}, {}

    with pytest.raises(StoreError, match="nothing was changed, try again"):
        store.append(make, after=0, key="key")
    assert len(calls) == 1
    assert names(store) == []
    assert keep(store, "one", 0, key="key").seq == 1


def test_many_may_begin_at_once(opened: Open, url: str):
    with psycopg.connect(url) as database:
        database.execute("CREATE SCHEMA crowd")
    address, errors = f"{url}?options=-csearch_path%3Dcrowd", []
    together = threading.Barrier(4)

    def work(identity: str) -> None:
        try:
            together.wait()
            keep(opened(address, identity), "one", 0)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(4 * name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@contextmanager
def wired(url: str, identity: str) -> Iterator[tuple[Wire, Store]]:
    """Yield a store at the other end of a wire."""
    host, port = "127.0.0.1", int(url.rpartition(":")[2].partition("/")[0])
    wire = Wire(host, port)
    store = open_store(url.replace(f":{port}/", f":{wire.port}/"), identity)
    try:
        yield wire, store
    finally:
        store.close()
        wire.close()


def test_a_commit_whose_answer_was_lost_is_found(url: str, identity: str):
    with wired(url, identity) as (wire, store):
        keep(store, "one", 0)
        wire.cut = "after"
        assert keep(store, "two", 1).seq == 2
        assert wire.cut is None
        assert names(store) == ["one", "two"]


def test_a_change_that_others_have_compacted_meanwhile_is_found(
    url: str, identity: str, opened: Open, monkeypatch: pytest.MonkeyPatch
):
    other = opened(url, identity)
    with wired(url, identity) as (wire, store):
        keep(store, "one", 0)
        has_kept = store._has_kept

        def has_kept_later(*change: Any) -> bool:
            wait_until(lambda: len(other.changes(0)) == 2)
            other.compact(2, b"model")
            return has_kept(*change)

        monkeypatch.setattr(store, "_has_kept", has_kept_later)
        wire.cut = "after"
        assert keep(store, "two", 1).seq == 2


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_commit_that_never_arrived_is_an_error(url: str, identity: str):
    with wired(url, identity) as (wire, store):
        keep(store, "one", 0)
        wire.cut = "before"
        with pytest.raises(
            StoreError, match="nothing was changed; try again"
        ) as caught:
            keep(store, "two", 1)
        assert not isinstance(caught.value, OutcomeUnknown)
        assert names(store) == ["one"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_server_that_hangs_is_found_out(
    url: str, identity: str, when: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(PostgresConnection, "patience_seconds", 0.3)
    with wired(url, identity) as (wire, store):
        keep(store, "one", 0)
        wire.cut, wire.hangs = when, True
        if when == "after":
            assert keep(store, "two", 1).seq == 2
        else:  # the connection that still has the lock is ended
            with pytest.raises(StoreError, match="nothing was changed; try again"):
                keep(store, "two", 1)
            assert keep(store, "two", 1).seq == 2
        assert wire.cut is None and names(store) == ["one", "two"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_where_nothing_can_be_found_out_the_key_helps(
    url: str, identity: str, when: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(changes, "SETTLING_SECONDS", 0.5)
    with wired(url, identity) as (wire, store):
        keep(store, "one", 0)
        wire.cut, wire.dies = when, True
        with pytest.raises(OutcomeUnknown, match="send it again with the same key"):
            keep(store, "two", 1, key="key")
        with pytest.raises(StoreError, match="nothing was changed, try again"):
            keep(store, "two", 1, key="key")
        wire.is_dead = wire.dies = False
        assert keep(store, "two", 1, key="key").seq == 2
        assert names(store) == ["one", "two"]


def test_a_commit_waits_for_the_disk(url: str):
    for setting, used in (
        ("off", "on"),
        ("on", "on"),
        ("remote_apply", "remote_apply"),
    ):
        options = f"?options=-csynchronous_commit%3D{setting}"
        connection = PostgresConnection(settings_of(url + options), "a" * 64)
        connection.begin(writes=True)
        assert connection.execute("SHOW synchronous_commit") == [(used,)]
        connection.close()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://user:se%2Fcret@127.0.0.1:1/name",
        "postgresql://user:se/cret@127.0.0.1:1/name",
        "postgresql://user:se@cret@127.0.0.1:1/name",
        "postgresql://user:se?cret@127.0.0.1:1/name",
        "postgresql://user:se#cret@127.0.0.1:1/name",
        "postgresql://user:se:cret@127.0.0.1:1/name",
        "postgresql://user:se%cret@127.0.0.1:1/name",
        "postgresql://user:cret/127.0.0.1/name",
        "postgresql://user:[cret@127.0.0.1:1/name",
        "postgresql://127.0.0.1:1/name?user=user&password=cret",
        "postgresql://127.0.0.1:1/name?user=user&pasword=cret",
        "postgresql://127.0.0.1:1/name?cret",
    ],
)
def test_a_password_is_never_shown(address: str):
    with pytest.raises((DataError, StoreError)) as caught:
        open_store(address, "a" * 64)
    assert "cret" not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in str(caught.value) and "however" in str(caught.value)


def test_a_wrong_password_is_never_shown(url: str):
    # The server asks nobody for one, so a name that it does not know has to do.
    address = url.replace("tabr@", "se%20cret:se%20cret@")
    with pytest.raises(StoreError, match=r'role "\*\*\*" does not exist') as caught:
        open_store(address, "a" * 64)
    assert "cret" not in "".join(traceback.format_exception(caught.value))

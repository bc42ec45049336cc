"""Every store keeps the same promises; each test runs on each database."""

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabr.errors import DataError
from tabr.serving.store import changes
from tabr.serving.store.changes import (
    Change,
    ChangesCompacted,
    KeyReused,
    Store,
    open_store,
)
from tabr.serving.store.connection import Connection, NoStore, StoreError

from ..conftest import Begin, Open
from ..work import append_beside_others, append_for_ever, finish, keep, start


def names(store: Store, after: int = 0) -> list[str]:
    return [change.payload["name"] for change in store.changes(after)]


# --- one process ------------------------------------------------------------------

ANY_TEXT = st.text(st.characters())  # half characters and zeros, too
ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=8,
)
OBJECTS = st.dictionaries(ANY_TEXT, ANY_JSON, max_size=3)
KEYS = st.none() | st.sampled_from(["a", "b", "\ud800 \0", "k" * 5000])
BACK = st.integers(0, 3)  # how far the caller is behind


@dataclass
class Append:
    kind: Any
    payload: dict[str, Any]
    response: dict[str, Any]
    key: str | None
    fingerprint: str
    back: int


@dataclass
class Compact:
    model: bytes
    back: int


@dataclass
class Read:
    back: int


class Refuse:
    """A change that turns out to be none."""


class Reopen:
    """The process ends, and another begins."""


STEPS = st.lists(
    st.builds(
        Append,
        st.sampled_from(["add", "remove", "relabel"]),
        OBJECTS,
        OBJECTS,
        KEYS,
        st.sampled_from(["", "f"]),
        BACK,
    )
    | st.builds(Compact, st.binary(max_size=9), BACK)
    | st.builds(Read, BACK)
    | st.builds(Refuse)
    | st.builds(Reopen),
    max_size=12,
)


@dataclass
class Transcript:
    """What a store must hold, written down without a database."""

    changes: list[Change] = field(default_factory=list)
    keys: dict[str, tuple[str, Change]] = field(default_factory=dict)
    checkpoint: tuple[int, bytes] | None = None

    @property
    def first(self) -> int:
        return self.checkpoint[0] if self.checkpoint else 0

    def after(self, back: int) -> int:
        return max(0, len(self.changes) - back)

    def take_key(self, step: Append) -> Change | type[KeyReused] | None:
        if step.key not in self.keys:
            return None
        fingerprint, change = self.keys[step.key]
        if fingerprint != step.fingerprint:
            return KeyReused
        return change if change.seq > self.first else change._replace(payload={})


def do(store: Store, step: Any, transcript: Transcript) -> None:
    """Do a step on both, and compare what comes of it."""
    if isinstance(step, Append):
        do_append(store, step, transcript)
    elif isinstance(step, Compact):
        seq = transcript.after(step.back)
        store.compact(seq, step.model)
        if seq >= transcript.first:
            transcript.checkpoint = (seq, step.model)
    elif isinstance(step, Read):
        after = transcript.after(step.back)
        if after < transcript.first:
            with pytest.raises(
                ChangesCompacted, match="begin again from the checkpoint"
            ):
                store.changes(after)
        else:
            assert repr(store.changes(after)) == repr(transcript.changes[after:])
    elif isinstance(step, Refuse):
        with pytest.raises(ZeroDivisionError):
            store.append(
                lambda _: 1 // 0, after=len(transcript.changes), key="a new key"
            )


def do_append(store: Store, step: Append, transcript: Transcript) -> None:
    after, calls = transcript.after(step.back), []

    def make(newer: list[Change]) -> Any:
        calls.append(newer)
        return step.kind, step.payload, step.response

    def append() -> tuple[Change, bool]:
        key, fingerprint = step.key, step.fingerprint
        return store.append(make, after=after, key=key, fingerprint=fingerprint)

    old = transcript.take_key(step)
    if old is KeyReused:
        with pytest.raises(KeyReused):
            append()
    elif old is not None:
        assert repr(append()) == repr((old, False))
    elif after < transcript.first:
        with pytest.raises(ChangesCompacted):
            append()
    else:
        n = len(transcript.changes) + 1
        change = Change(n, step.kind, step.payload, step.response)
        assert repr(append()) == repr((change, True))
        assert repr(calls.pop()) == repr([transcript.changes[after:]][0])
        transcript.changes.append(change)
        if step.key is not None:
            transcript.keys[step.key] = step.fingerprint, change
    assert not calls


@given(steps=STEPS)
@settings(max_examples=25)
def test_a_store_does_what_its_transcript_says(begin: Begin, steps: list[Any]):
    address, identity = begin()
    store, transcript = open_store(address, identity), Transcript()
    for step in [*steps, Reopen()]:
        if isinstance(step, Reopen):
            store.close()
            store = open_store(address, identity)
        do(store, step, transcript)
        assert store.checkpoint() == transcript.checkpoint
        kept = store.changes(transcript.first)
        assert repr(kept) == repr(transcript.changes[transcript.first :])
    store.close()


def test_awkward_values_come_back_as_they_were(opened: Open, begin: Begin):
    address, identity = begin()
    values = ["\ud800", "\0", "naïve 🦎", 10**60, 0.1 + 0.2, -0.0, 5e-324, True, None]
    payload = {"": values, "\udfff\0": {}}
    store = opened(address, identity)
    store.append(lambda _: ("add", payload, {"x": values}), after=0)
    store.close()
    kept = opened(address, identity).changes(0)
    assert repr(kept) == repr([Change(1, "add", payload, {"x": values})])


def test_what_json_would_alter_is_refused(store: Store):
    wrong: list[Any] = [
        {"x": float("nan")},
        {"x": float("inf")},
        {"x": (1, 2)},
        {1: "x"},
        {"x": {1}},
        {"x": 10**5000},
    ]
    for value in wrong:
        for pair in ((value, {}), ({}, value)):
            with pytest.raises(DataError, match="must be plain JSON, however"):
                store.append(lambda _, pair=pair: ("add", *pair), after=0)
    with pytest.raises(ValueError, match=r"a change is one of .*, however: 'replace'"):
        store.append(lambda _: ("replace", {}, {}), after=0)  # type: ignore[arg-type]
    assert store.changes(0) == []
    assert keep(store, "right", 0).seq == 1


def test_a_model_file_may_be_larger_than_a_cell(store: Store):
    keep(store, "one", 0)
    model = random.Random(0).randbytes(2 * changes.PART_BYTES + 5)
    store.compact(1, model)
    assert store.checkpoint() == (1, model)
    store.compact(1, b"")
    assert store.checkpoint() == (1, b"")


def test_a_checkpoint_holds_only_what_there_was(store: Store):
    keep(store, "one", 0)
    for seq in (-1, 2):
        with pytest.raises(ValueError, match="up to one of 1, however: seq="):
            store.compact(seq, b"model")
    assert store.checkpoint() is None


def test_an_older_checkpoint_does_not_replace_a_newer_one(store: Store):
    for n in range(3):
        keep(store, f"change {n}", n)
    store.compact(2, b"newer")
    store.compact(1, b"older")
    assert store.checkpoint() == (2, b"newer")
    assert names(store, 2) == ["change 2"]


def test_who_knows_more_than_the_store_is_told(store: Store):
    keep(store, "one", 0)
    for ask in (lambda: store.changes(2), lambda: keep(store, "three", 2)):
        with pytest.raises(StoreError, match="it was set back or damaged"):
            ask()
    assert names(store) == ["one"]


def test_a_retry_after_compaction_is_recognized_for_a_day_and_not_for_ever(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    assert changes.KEY_SECONDS >= 24 * 3600
    keep(store, "one", 0, key="key")
    for _ in range(2):
        store.compact(1, b"model")
        old = store.append(lambda _: ("add", {}, {}), after=1, key="key")
        assert old == (Change(1, "add", {}, {"told": "one"}), False)
    monkeypatch.setattr(changes, "KEY_SECONDS", 0)
    store.compact(1, b"model")
    assert keep(store, "two", 1, key="key").seq == 2
    store.compact(2, b"model")
    assert keep(store, "three", 2, key="key").seq == 3


def test_a_closed_store_says_so(store: Store):
    store.close()
    store.close()
    for ask in (store.checkpoint, lambda: keep(store, "one", 0)):
        with pytest.raises(StoreError, match="this one was closed"):
            ask()


def test_another_model_has_no_part_in_a_store(opened: Open, begin: Begin):
    address, identity = begin()
    keep(opened(address, identity), "one", 0)
    if "://" in address:  # where models share a database, each has its own
        other = opened(address, "b" * 64)
        assert other.changes(0) == []
        other.compact(0, b"other")
    else:
        with pytest.raises(DataError, match=f"with {identity[:12]} and this file is"):
            opened(address, "b" * 64)
    store = opened(address, identity)
    assert names(store) == ["one"] and store.checkpoint() is None


def test_a_store_is_not_begun_by_looking_for_it(opened: Open, begin: Begin):
    address, identity = begin()
    with pytest.raises(NoStore, match="must have been begun"):
        open_store(address, identity, begin=False)
    if "://" not in address:
        assert not Path(address).exists()
    keep(opened(address, identity), "one", 0)
    store = open_store(address, identity, begin=False)
    assert names(store) == ["one"]
    store.close()
    with pytest.raises(NoStore, match="must have been begun"):
        open_store(address, "c" * 64, begin=False)


def test_an_unknown_format_is_refused(
    opened: Open, begin: Begin, monkeypatch: pytest.MonkeyPatch
):
    address, identity = begin()
    if "://" in address:  # tables of another version need a place of their own
        import psycopg

        with psycopg.connect(address.replace("+psycopg", "")) as database:
            database.execute("CREATE SCHEMA later")
        address += "?options=-csearch_path%3Dlater"
    monkeypatch.setattr(changes, "VERSION", 3)
    opened(address, identity).close()
    monkeypatch.undo()
    with pytest.raises(StoreError, match=r"must have format 2, however .* has 3: use"):
        opened(address, identity)


# --- several threads --------------------------------------------------------------


def test_reading_does_not_wait_for_writing(store: Store):
    keep(store, "one", 0)
    seen: list[Any] = []

    def make(newer: list[Change]) -> Any:
        reader = threading.Thread(target=lambda: seen.append(names(store)))
        reader.start()
        reader.join(10)
        return "add", {"name": "two"}, {}

    store.append(make, after=1)
    assert seen == [["one"]]
    assert names(store) == ["one", "two"]


def test_who_waited_sees_what_was_kept_meanwhile(opened: Open, begin: Begin):
    address, identity = begin()
    first, second = opened(address, identity), opened(address, identity)
    waiting = threading.Thread(target=lambda: keep(second, "two", 0))

    def make(newer: list[Change]) -> Any:
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        return "add", {"name": "one"}, {}

    first.append(make, after=0)
    waiting.join()
    assert names(first) == ["one", "two"]


def test_threads_share_a_store(store: Store):
    errors: list[Exception] = []

    def work(name: str) -> None:
        try:
            for n in range(10):
                keep(store, f"{name} {n}", 0, key=f"{name} {n}")
                assert f"{name} {n}" in names(store)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    kept = names(store)
    assert sorted(kept) == sorted(f"{name} {n}" for name in "abcd" for n in range(10))
    assert [change.seq for change in store.changes(0)] == [*range(1, 41)]


# --- several processes ------------------------------------------------------------


def test_who_waits_too_long_is_told_and_may_try_again(
    opened: Open, begin: Begin, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Connection, "wait_seconds", 0.1)
    address, identity = begin()
    first, second = opened(address, identity), opened(address, identity)

    def make(newer: list[Change]) -> Any:
        with pytest.raises(StoreError, match="nothing was changed, try again"):
            keep(second, "beside", 0)
        assert names(second) == []
        return "add", {"name": "one"}, {}

    first.append(make, after=0)
    assert keep(second, "two", 0).seq == 2
    assert names(first) == ["one", "two"]


def test_processes_append_beside_each_other(opened: Open, begin: Begin):
    address, identity = begin()  # which is not there yet: all three begin it
    n = 25
    workers = [start(append_beside_others, address, identity, name, n) for name in "ab"]
    store, other = opened(address, identity), opened(address, identity)
    everything: dict[int, str] = {}
    compacted = 0
    while len(everything) < 2 * n:
        for change in other.changes(compacted):
            everything[change.seq] = change.payload["name"]
        if len(everything) >= compacted + 10:  # while they go on
            compacted = len(everything)
            store.compact(compacted, b"model")
    assert list(everything) == [*range(1, 2 * n + 1)]
    wanted = sorted(f"{name} {k}" for name in "ab" for k in range(n))
    assert sorted(everything.values()) == wanted
    for kept, seen in (finish(*worker) for worker in workers):
        assert len(kept) == n
        assert kept.items() <= seen.items() <= everything.items()


def test_what_is_read_is_one_state(opened: Open, begin: Begin):
    address, identity = begin()
    store, reader = opened(address, identity), opened(address, identity)
    ends: list[Any] = []

    def read() -> None:
        after, n_behind = 0, 0
        try:
            while after < 150:
                try:
                    after += len(reader.changes(after))
                except ChangesCompacted:
                    after, n_behind = reader.checkpoint()[0], n_behind + 1
            ends.append(after)
        except Exception as error:
            ends.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    for n in range(150):
        keep(store, f"change {n}", n)
        store.compact(n + 1, b"model")
    thread.join()
    assert ends == [150]


def test_what_was_acknowledged_survives_a_kill(begin: Begin):
    address, identity = begin()
    draw, n = random.Random(0), 0
    for _ in range(5):
        process, receiver = start(append_for_ever, address, identity, n)
        for _ in range(draw.randint(1, 12)):
            n = receiver.recv() + 1
        time.sleep(draw.random() / 100)
        process.kill()
        process.join()
        try:
            while True:
                n = receiver.recv() + 1
        except (EOFError, OSError):
            pass
        store = open_store(address, identity)
        kept = names(store)
        assert kept[:n] == [f"change {k}" for k in range(n)]
        assert len(kept) <= n + 1  # the one that nobody was told of
        keep(store, f"change {n}", len(kept), key=f"key {n}")  # its client asks again
        n += 1
        assert names(store) == [f"change {k}" for k in range(n)]
        assert [change.seq for change in store.changes(0)] == [*range(1, n + 1)]
        store.close()


def test_an_address_of_something_else_is_refused_without_showing_it():
    with pytest.raises(DataError, match=r"a store is a file, .*, however") as caught:
        open_store("mysql://user:secret@host/name", "a" * 64)
    assert "secret" not in str(caught.value)


def test_a_path_may_be_text_or_a_path(opened: Open, tmp_path: Path):
    keep(opened(str(tmp_path / "text.db"), "a" * 64), "one", 0)
    assert names(opened(tmp_path / "text.db", "a" * 64)) == ["one"]

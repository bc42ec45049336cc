"""What only a file can suffer: cuts, full disks, failing syncs, wrong files."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabr.errors import DataError
from tabr.serving.store.changes import open_store
from tabr.serving.store.connection import StoreDamaged, StoreError
from tabr.serving.store.sqlite import SqliteConnection, files_of
from tabr.serving.store.witness import Witness

from ..conftest import Open
from ..work import append_to_a_full_disk, finish, keep, start
from .test_store import names

ME = "a" * 64
N_CHANGES = 12


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A store as a power cut leaves it, and the size of its log after each change."""
    folder = tmp_path_factory.mktemp("unfinished")
    store, sizes, draw = open_store(folder / "whole.db", ME), [], random.Random(0)
    for n in range(N_CHANGES):
        text = f"change {n} {'x' * draw.randrange(0, 9000)}"  # of one or more pages
        keep(store, text, n)
        sizes.append((folder / "whole.db-wal").stat().st_size)
    copy_store(folder / "whole.db", folder / "cut.db")
    store.close()
    return folder / "cut.db", sizes


def copy_store(path: Path, to: Path) -> None:
    for file in files_of(path):
        shutil.copy(file, f"{to}{file.name.removeprefix(path.name)}")


@given(data=st.data())
@settings(max_examples=40)
def test_a_torn_log_leaves_the_changes_before_the_tear(
    unfinished: tuple[Path, list[int]],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
):
    path, sizes = unfinished
    folder = tmp_path_factory.mktemp("torn")
    log = bytearray(Path(f"{path}-wal").read_bytes())
    place = data.draw(st.integers(0, len(log) - 1) | st.sampled_from(sizes[:-1]))
    if data.draw(st.booleans(), "is cut"):
        del log[place:]
    else:
        log[place] ^= data.draw(st.integers(1, 255), "flipped bits")
    n = sum(size <= place for size in sizes)
    shutil.copy(path, folder / "torn.db")
    (folder / "torn.db-wal").write_bytes(log)
    records = Path(f"{path}-witness").read_bytes()[: 64 * (n + 1)]
    torn = data.draw(st.sampled_from([b"", bytes(64), bytes(9)]), "after the last")
    (folder / "torn.db-witness").write_bytes(records + torn)
    store = open_store(folder / "torn.db", ME)
    kept = [name.split(" x")[0].strip() for name in names(store)]
    assert kept == [f"change {k}" for k in range(n)]
    assert keep(store, "next", len(kept)).seq == len(kept) + 1
    store.close()
    store = open_store(folder / "torn.db", ME)
    assert names(store, len(kept)) == ["next"]
    store.close()


def outcome(path: Path, expected: list[str]) -> str:
    """What a store tells after damage: all that was acknowledged, or a refusal."""
    try:
        store = open_store(path, ME)
    except (StoreError, DataError) as error:
        assert "however" in str(error) and "\n" not in str(error)
        return "refused"
    try:
        checkpoint, after = store.beginning()
        content = checkpoint[1].decode() if checkpoint else ""
        kept = content.split() + [change.payload["name"] for change in after]
        assert [name.split(" x")[0] for name in kept] == expected
        n = len(kept)
        assert keep(store, "next", n).seq == n + 1
        old = store.append(lambda _: ("add", {}, {}), after=n + 1, key="key 1")[0]
        assert old.response["told"].split()[0] == expected[1]
    except StoreError as error:
        assert "however" in str(error)
        return "refused"
    finally:
        store.close()
    return "whole"


def stores(folder: Path) -> dict[str, list[str]]:
    """Stores as a kill leaves them, by name, and the changes in each."""
    for name in ("in the log", "in the file", "compacted"):
        path = folder / name / "memory.db"
        store = open_store(path, ME)
        for n in range(8):
            keep(store, f"c{n} {'x' * 700}", n, key=f"key {n}")
        if name == "compacted":
            store.compact(5, b" ".join(b"c%d" % n for n in range(5)))
        copy = folder / "left" / name
        copy.mkdir(parents=True)
        if name == "in the file":
            store.close()
        copy_store(path, copy / "memory.db")
        store.close()
    changes = [f"c{n}" for n in range(8)]
    return {"in the log": changes, "in the file": changes, "compacted": changes}


def test_a_flipped_byte_is_no_lost_change(tmp_path: Path):
    draw, outcomes = random.Random(3), Counter[str]()
    for name, expected in stores(tmp_path).items():
        for file in files_of(tmp_path / "left" / name / "memory.db"):
            content = file.read_bytes()
            for place in draw.sample(range(len(content)), min(30, len(content))):
                copy_store(file.with_name("memory.db"), tmp_path / "try.db")
                end = file.name.removeprefix("memory.db")
                damaged = bytearray(content)
                damaged[place] ^= draw.randrange(1, 256)
                (tmp_path / f"try.db{end}").write_bytes(damaged)
                outcomes[outcome(tmp_path / "try.db", expected)] += 1
                for left in tmp_path.glob("try.db*"):
                    left.unlink()
    assert min(outcomes["whole"], outcomes["refused"]) > 20, outcomes


def test_a_missing_or_shortened_file_is_no_lost_change(tmp_path: Path):
    outcomes: dict[str, str] = {}
    for name, expected in stores(tmp_path).items():
        for file in files_of(tmp_path / "left" / name / "memory.db"):
            end, size = file.name.removeprefix("memory.db"), file.stat().st_size
            for length in (None, 0, size // 2 // 512 * 512, size // 3, size - 1):
                copy_store(file.with_name("memory.db"), tmp_path / "try.db")
                damaged = tmp_path / f"try.db{end}"
                if length is None:
                    damaged.unlink()
                else:
                    os.truncate(damaged, length)
                result = outcome(tmp_path / "try.db", expected)
                outcomes[f"{name} {end} {length is None}"] = result
                for left in tmp_path.glob("try.db*"):
                    left.unlink()
    assert outcomes["in the log  True"] == "refused"
    assert outcomes["in the log -wal True"] == "refused"
    assert outcomes["in the file  True"] == "refused"
    assert outcomes["in the file -witness True"] == "refused"
    assert outcomes["in the log -shm True"] == "whole"


def test_a_loss_may_be_accepted_and_the_log_is_kept(
    unfinished: tuple[Path, list[int]], tmp_path: Path
):
    path, sizes = unfinished
    copy_store(path, tmp_path / "lost.db")
    os.truncate(tmp_path / "lost.db-wal", sizes[4] + 100)
    with pytest.raises(StoreDamaged, match=r"ends with change 5, and 12 were"):
        open_store(tmp_path / "lost.db", ME)
    assert (tmp_path / "lost.db-wal.damaged").stat().st_size == sizes[4] + 100
    store = open_store(tmp_path / "lost.db", ME, accept_loss=True)
    assert len(names(store)) == 5 and keep(store, "next", 5).seq == 6
    store.close()
    assert len(names(open_store(tmp_path / "lost.db", ME))) == 6


def test_a_store_that_was_begun_half_way_is_begun(tmp_path: Path):
    Witness(tmp_path / "memory.db").begin(0, "0" * 64)
    store = open_store(tmp_path / "memory.db", ME)
    assert keep(store, "one", 0).seq == 1
    store.close()


def test_only_the_owner_may_read_a_store(opened: Open, tmp_path: Path):
    store = opened(tmp_path / "new" / "memory.db", ME)
    keep(store, "one", 0)
    modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "new").iterdir()}
    assert modes.keys() >= {"memory.db", "memory.db-wal", "memory.db-witness"}
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_a_store_of_an_earlier_version_is_brought_to_this_one(tmp_path: Path):
    for n_kept, failing in ((0, False), (3, False), (3, True)):
        path = tmp_path / f"{n_kept}{failing}.db"
        old_store(path, n_kept)
        if failing:
            os.mkdir(f"{path}-witness")  # where nothing can be written
            with pytest.raises(StoreError):
                open_store(path, ME)
            os.rmdir(f"{path}-witness")
            with sqlite3.connect(path) as database:
                rows = database.execute("SELECT version FROM tabr_store").fetchall()
            assert rows == [(1,)]
        store = open_store(path, ME)
        assert names(store, n_kept) == [f"c{n}" for n in range(n_kept, 5)]
        assert store.checkpoint() == ((n_kept, b"model") if n_kept else None)
        old = store.append(lambda _: ("add", {}, {}), after=5, key="key 1")
        assert old[0].response == {"ids": [1]} and not old[1]
        assert keep(store, "next", 5).seq == 6
        store.close()


def old_store(path: Path, n_kept: int) -> None:
    """Write five changes as version 1 did, the first n of them compacted."""
    from tabr.serving.store.changes import _hash

    with sqlite3.connect(path) as database:
        database.executescript(
            "CREATE TABLE tabr_store (identity text PRIMARY KEY, version integer NOT"
            " NULL, settled text);"
            "CREATE TABLE tabr_changes (identity text NOT NULL, seq bigint NOT NULL,"
            " kind text NOT NULL, payload text NOT NULL, response text NOT NULL,"
            " key_hash text, fingerprint text NOT NULL, token text NOT NULL,"
            " at double precision NOT NULL, PRIMARY KEY (identity, seq),"
            " UNIQUE (identity, key_hash));"
            "CREATE TABLE tabr_keys (identity text NOT NULL, key_hash text NOT NULL,"
            " fingerprint text NOT NULL, seq bigint NOT NULL, kind text NOT NULL,"
            " response text NOT NULL, at double precision NOT NULL,"
            " PRIMARY KEY (identity, key_hash));"
            "CREATE TABLE tabr_checkpoints (identity text NOT NULL, part integer NOT"
            " NULL, seq bigint NOT NULL, content blob NOT NULL, PRIMARY KEY (identity,"
            " part));"
        )
        database.execute("INSERT INTO tabr_store VALUES (?, 1, NULL)", (ME,))
        none = _hash("")
        for n in range(5):
            told, key = f'{{"ids": [{n}]}}', _hash(f"key {n}")
            if n < n_kept:
                row = (ME, key, none, n + 1, "add", told, 1e9)
                database.execute("INSERT INTO tabr_keys VALUES (?,?,?,?,?,?,?)", row)
            else:
                row = (
                    ME,
                    n + 1,
                    "add",
                    f'{{"name": "c{n}"}}',
                    told,
                    key,
                    none,
                    "t",
                    1e9,
                )
                sql = "INSERT INTO tabr_changes VALUES (?,?,?,?,?,?,?,?,?)"
                database.execute(sql, row)
        if n_kept:
            sql = "INSERT INTO tabr_checkpoints VALUES (?, 0, ?, ?)"
            database.execute(sql, (ME, n_kept, b"model"))
    database.close()


def test_a_full_disk_loses_nothing_and_leaves_no_half(opened: Open, tmp_path: Path):
    path, draw = tmp_path / "memory.db", random.Random(1)
    rooms = [0, 1, 24, 4095, *(draw.randrange(60_000) for _ in range(8))]
    kept, reasons = finish(*start(append_to_a_full_disk, str(path), ME, rooms))
    assert len(reasons) == 2 * len(rooms)  # appending and compacting
    assert all("nothing was changed, try again" in reason for reason in reasons)
    assert len(kept) > len(rooms)
    store = opened(path, ME)
    assert names(store) == kept and store.checkpoint() is None
    store.close()
    ((verdict,),) = sqlite3.connect(path).execute("PRAGMA integrity_check")
    assert verdict == "ok"


# A library between SQLite and the disk: syncing fails if a file says so.
FAILING_SYNC = r"""
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int fails(void) {
  char word[9] = "";
  FILE *file = fopen(getenv("SWITCH"), "r");
  if (!file) return 0;
  if (!fgets(word, sizeof word, file)) word[0] = 0;
  fclose(file);
  if (!strcmp(word, "once")) unlink(getenv("SWITCH"));
  errno = EIO;
  return word[0] != 0;
}
int fdatasync(int fd) { return fails() ? -1 : 0; }
int fsync(int fd) { return fails() ? -1 : 0; }
"""

CALL = "import sys; from tests.serving.work import *; fail_to_sync(*sys.argv[1:])"


@pytest.mark.skipif(sys.platform != "linux", reason="replaces a call of Linux")
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize("how", ["once", "always"])
def test_a_failing_sync_is_no_commit(opened: Open, tmp_path: Path, how: str):
    library, switch = tmp_path / "failing.so", tmp_path / "switch"
    build = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(build, input=FAILING_SYNC, text=True, check=True)
    path, variables = tmp_path / "memory.db", {"LD_PRELOAD": str(library)}
    variables |= {"SWITCH": str(switch), "PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", CALL, str(path), ME, str(switch), how],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    error, *kept, sentence = run.stdout.splitlines()
    assert run.returncode == -9 and kept == ["before"], run.stderr
    store = opened(path, ME)
    if how == "once":  # what the failed commit had written must not come back
        assert error == "StoreError" and "nothing was changed" in sentence
        assert names(store) == ["before"]
    else:  # here it may
        assert error == "OutcomeUnknown" and "with the same key" in sentence
        assert keep(store, "failed", 1).seq in (2, 3)


def test_every_commit_is_synced(opened: Open, tmp_path: Path):
    opened(tmp_path / "memory.db", ME).close()
    connection = SqliteConnection(tmp_path / "memory.db")
    assert connection.execute("PRAGMA synchronous") == [(2,)]  # FULL
    assert connection.execute("PRAGMA journal_mode") == [("wal",)]
    assert connection.execute("PRAGMA fullfsync") == [(1,)]
    connection.close()


def test_a_folder_gets_a_file(opened: Open, tmp_path: Path):
    for folder in (tmp_path, tmp_path / "new" / "folder"):
        keep(opened(folder, ME), "one", 0)
        assert (folder / "memory.db").is_file()
        assert names(opened(folder / "memory.db", ME)) == ["one"]


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path):
    garbage, other = tmp_path / "garbage.db", tmp_path / "other.db"
    garbage.write_bytes(b"no database" * 1000)
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    for path, words in (
        (garbage, "file is not a database"),
        (other, "a database of something else: give another name"),
        (garbage / "folder", "cannot be made"),
    ):
        before = {file: file.read_bytes() for file in tmp_path.iterdir()}
        with pytest.raises(StoreError, match=words) as caught:
            open_store(path, ME)
        assert "\n" not in str(caught.value)
        assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_of_compacted_changes_no_file_keeps_the_contents(tmp_path: Path, opened: Open):
    path = tmp_path / "memory.db"
    store = opened(path, ME)
    for n in range(5):
        keep(store, f"somebody {n} {'x' * 9000}", n)
    store.compact(5, b"a model")
    store.close()
    assert all(b"somebody" not in file.read_bytes() for file in files_of(path))


def test_who_claims_a_file_is_alone(tmp_path: Path, opened: Open, monkeypatch):
    monkeypatch.setattr(SqliteConnection, "wait_seconds", 0.1)
    path = tmp_path / "memory.db"
    one, other = opened(path, ME), opened(path, ME)
    keep(other, "first", 0)
    with pytest.raises(StoreError, match="stop the service"):
        one.claim()
    assert keep(other, "second", 1).seq == 2
    other.close()
    one.close()
    own = opened(path, ME)
    own.claim()
    with pytest.raises(StoreError, match="locked"):
        open_store(path, ME)
    own.overwrite()
    own.close()
    assert names(opened(path, ME)) == ["first", "second"]
    assert not path.with_name("memory.db-journal").exists()

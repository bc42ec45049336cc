"""What only a file can suffer: cuts, full disks, failing syncs, wrong files."""

import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabr.serving.store.changes import open_store
from tabr.serving.store.connection import StoreError
from tabr.serving.store.sqlite import SqliteConnection

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
    for end in ("", "-wal"):
        shutil.copy(folder / f"whole.db{end}", folder / f"cut.db{end}")
    store.close()
    return folder / "cut.db", sizes


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
    shutil.copy(path, folder / "torn.db")
    (folder / "torn.db-wal").write_bytes(log)
    store = open_store(folder / "torn.db", ME)
    kept = [name.split(" x")[0].strip() for name in names(store)]
    assert kept == [f"change {n}" for n in range(sum(s <= place for s in sizes))]
    assert keep(store, "next", len(kept)).seq == len(kept) + 1
    store.close()
    store = open_store(folder / "torn.db", ME)
    assert names(store, len(kept)) == ["next"]
    store.close()


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

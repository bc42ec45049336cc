import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from tabr.tables import files
from tabr.tables.files import draft_of, write_bytes, write_table

posix = pytest.mark.skipif(os.name != "posix", reason="modes and locks of POSIX")
TABLE = pd.DataFrame({"a": [1, 2]})


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def drafts(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".tabr-")]


@posix
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.feather", "t"])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_replaced_file_keeps_its_mode(tmp_path: Path, name: str, mode: int):
    path = tmp_path / name
    path.write_bytes(b"old")
    path.chmod(mode)
    if path.suffix:
        write_table(TABLE, path)
    else:
        write_bytes(path, b"new")
    assert mode_of(path) == mode
    assert path.read_bytes() != b"old"


@posix
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_replaced_file_keeps_its_owner(tmp_path: Path):
    path = tmp_path / "t"
    path.write_bytes(b"old")
    os.chown(path, 1234, 4321)
    write_bytes(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)


@posix
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_new_file_has_the_mode_of_new_files(tmp_path: Path, mask: int):
    before = os.umask(mask)
    try:
        write_bytes(tmp_path / "t", b"new")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "t") == 0o666 & ~mask


@posix
def test_draft_is_its_owners_alone(tmp_path: Path):
    with draft_of(tmp_path / "t") as draft:
        assert mode_of(draft) == 0o600
        draft.write_bytes(b"secret")


def test_draft_never_follows_what_lies_there(tmp_path: Path, monkeypatch):
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / f"{files._DRAFT}{'0' * 16}").symlink_to(tmp_path / "other")
    monkeypatch.setattr(files.secrets, "token_hex", lambda n: "0" * 2 * n)
    with pytest.raises(FileExistsError), draft_of(tmp_path / "t"):
        pass
    assert (tmp_path / "other").read_bytes() == b"other"


def test_link_stays_a_link(tmp_path: Path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "t").write_bytes(b"old")
    (tmp_path / "link").symlink_to("b/t")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "b" / "t").read_bytes() == b"new"


@posix
def test_folder_is_synced_after_the_file_took_its_place(tmp_path: Path, monkeypatch):
    synced = []

    def sync(handle: int) -> None:
        found = os.fstat(handle)
        is_folder = stat.S_ISDIR(found.st_mode)
        synced.append(("folder" if is_folder else "file", (tmp_path / "t").exists()))

    monkeypatch.setattr(os, "fsync", sync)
    write_bytes(tmp_path / "t", b"new")
    assert synced == [("file", False), ("folder", True)]


KILLED = """
import sys, time
from pathlib import Path
from tabr.tables.files import draft_of
with draft_of(Path(sys.argv[1])) as draft:
    draft.write_bytes(b"half")
    print("there", flush=True)
    time.sleep(60)
"""


@posix
def test_draft_of_a_killed_process_is_removed_and_one_alive_stays(tmp_path: Path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "t")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (alive,) = drafts(tmp_path)
        write_bytes(tmp_path / "u", b"new")
        assert drafts(tmp_path) == [alive]
        process.send_signal(signal.SIGKILL)
    assert drafts(tmp_path) == [alive]
    write_bytes(tmp_path / "u", b"new")
    assert drafts(tmp_path) == []
    assert not (tmp_path / "t").exists()


@posix
def test_draft_without_a_lock_is_removed_when_it_is_old(tmp_path: Path):
    for name, age in ((".tabr-0123", 10), (".tabr-4567", 10**6)):
        (tmp_path / name).write_bytes(b"half")
        then = time.time() - age
        os.utime(tmp_path / name, (then, then))
    (tmp_path / ".tabr-folder").mkdir()
    write_bytes(tmp_path / "t", b"new")
    assert sorted(drafts(tmp_path)) == [".tabr-0123", ".tabr-folder"]

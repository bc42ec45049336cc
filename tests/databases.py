"""Database servers for tests: real ones, made for a run and gone afterwards."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


NEEDED = "needs PostgreSQL: apt-get install -y postgresql"


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL server of its own on loopback; its address."""
    if not PROGRAMS:
        pytest.skip(NEEDED)
    with server() as address:
        yield address


@contextmanager
def server() -> Iterator[str]:
    """Start a PostgreSQL server on loopback; yield its address, and remove it."""
    if not PROGRAMS:
        raise RuntimeError(NEEDED)
    programs = PROGRAMS[-1].parent
    folder = Path(tempfile.mkdtemp(prefix="tabr-pg-"))
    is_root = os.geteuid() == 0  # who may not run a server
    user = "postgres" if is_root else None
    if user is not None:
        shutil.chown(folder, user, user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = folder / "data"

    def run(*arguments: object) -> None:
        subprocess.run(
            [str(argument) for argument in arguments],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )

    run(programs / "initdb", "-D", data, "-U", "tabr", "-A", "trust", "--no-sync")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    log = folder / "log"
    run(programs / "pg_ctl", "-D", data, "-o", options, "-l", log, "-w", "start")
    try:
        yield f"postgresql+psycopg://tabr@127.0.0.1:{port}/postgres"
    finally:
        run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder)

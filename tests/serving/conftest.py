"""Stores of each kind."""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tabr.serving.store import Store, open_store

Open = Callable[[str | Path, str], Store]
Begin = Callable[[], tuple[str, str]]  # the address and identity of a new store


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def begin(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Begin:
    """Return what thinks of a new store, for each kind of database."""
    address: Any = None
    if request.param == "postgres":
        pytest.importorskip("psycopg", reason="pip install 'tabr[serve]'")
        address = request.getfixturevalue("postgres")

    def new() -> tuple[str, str]:
        place = address or str(tmp_path_factory.mktemp("store") / "memory.db")
        return place, secrets.token_hex(32)

    return new


@pytest.fixture
def opened() -> Iterator[Open]:
    """Return what opens stores that are closed in the end."""
    with contextlib.ExitStack() as stack:

        def open_one(address: str | Path, identity: str) -> Store:
            return stack.enter_context(
                contextlib.closing(open_store(address, identity))
            )

        yield open_one


@pytest.fixture
def store(begin: Begin, opened: Open) -> Store:
    """A new store."""
    return opened(*begin())

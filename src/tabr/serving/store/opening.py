"""The store at an address: a file, a folder or a PostgreSQL database."""

from __future__ import annotations

from pathlib import Path

from tabr.errors import DataError
from tabr.serving.store.contract import Store
from tabr.serving.store.postgres import open_postgres
from tabr.serving.store.sqlite import open_sqlite


def open_store(address: str | Path, identity: str, *, begin: bool = True) -> Store:
    """Open the store of a model, or begin one.

    Args:
        address: A file or folder on a local disk, for SQLite, or a postgresql://
            address. A name without a dot that is not there yet becomes a folder.
        identity: The SHA-256 of the model file. A file serves one model; in PostgreSQL
            each model has its own changes.
        begin: Whether a missing store is begun; otherwise nothing is written.

    Raises:
        NoStore: There is no store of this model, and none may be begun.
        OtherModel: The file belongs to another model.
        DataError: The address is of another kind.
        StoreError: The database cannot be opened.
    """
    if isinstance(address, Path) or "://" not in address:
        return open_sqlite(Path(address), identity, begin)
    scheme, _, rest = address.partition("://")
    if scheme not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise DataError(  # which may hold a password, so it is not shown
            "a store is a file, a folder or a postgresql:// address, however another"
            " address came: give one of them"
        )
    return open_postgres(f"postgresql://{rest}", identity, begin)

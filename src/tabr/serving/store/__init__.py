"""The durable record of changes: SQLite in a file, or PostgreSQL by address.

In: changes of a model's candidates, with the client's keys. Out: the same changes, in
order and for good.
"""

from tabr.serving.store.contract import (
    Behind,
    Change,
    ChangeKind,
    KeyReused,
    Made,
    Make,
    NoStore,
    OtherModel,
    Store,
    StoreError,
    Unsure,
)
from tabr.serving.store.opening import open_store

__all__ = [
    "Behind",
    "Change",
    "ChangeKind",
    "KeyReused",
    "Made",
    "Make",
    "NoStore",
    "OtherModel",
    "Store",
    "StoreError",
    "Unsure",
    "open_store",
]

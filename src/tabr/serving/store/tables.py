"""The tables of a store, and how those of earlier versions become these."""

from __future__ import annotations

import hashlib
import json

from tabr.serving.store.chain import digest, first_link, link
from tabr.serving.store.connection import Connection

VERSION = 2  # of the tables; 1 had no checksums

# Text is ASCII throughout, so that any database gives it back as it was.
TABLES = (
    "CREATE TABLE tabr_store (identity text PRIMARY KEY, version integer NOT NULL,"
    " settled text, successor text)",
    "CREATE TABLE tabr_changes (identity text NOT NULL, seq bigint NOT NULL,"
    " kind text NOT NULL, payload text NOT NULL, response text NOT NULL,"
    " key_hash text, fingerprint text NOT NULL, token text NOT NULL, who text,"
    " at double precision NOT NULL, link text NOT NULL, PRIMARY KEY (identity, seq),"
    " UNIQUE (identity, key_hash))",
    "CREATE TABLE tabr_keys (identity text NOT NULL, key_hash text NOT NULL,"
    " fingerprint text NOT NULL, seq bigint NOT NULL, kind text NOT NULL,"
    " response text NOT NULL, at double precision NOT NULL, digest text NOT NULL,"
    " PRIMARY KEY (identity, key_hash))",
    "CREATE TABLE tabr_checkpoints (identity text NOT NULL, part integer NOT NULL,"
    " seq bigint NOT NULL, content {bytes} NOT NULL, link text NOT NULL,"
    " digest text NOT NULL, PRIMARY KEY (identity, part))",
    "CREATE TABLE tabr_log (identity text NOT NULL, seq bigint NOT NULL,"
    " kind text NOT NULL, ids text NOT NULL, n bigint NOT NULL, who text,"
    " at double precision NOT NULL, digest text NOT NULL,"
    " PRIMARY KEY (identity, seq))",
)
# A model file that has a successor held rows that were forgotten since.
# What the checksum of a row covers, beside the link before.
LINKED = "seq, kind, payload, response, key_hash, fingerprint, token, who, at"
KEPT = "key_hash, fingerprint, seq, kind, response, at"
LOGGED = "seq, kind, ids, n, who, at"


def insert(table: str, columns: str) -> str:
    """Return the statement that adds a row of these columns."""
    places = ", ".join(["%s"] * len(columns.split(",")))
    return f"INSERT INTO {table} ({columns}) VALUES ({places})"


def create(database: Connection) -> None:
    """Make the tables."""
    for sql in TABLES:
        database.execute(sql.format(bytes=database.bytes_type))


def upgrade(database: Connection) -> None:
    """Bring the tables of version 1 to this one, all models at once.

    A service of an earlier version that still runs cannot write to them.
    """
    execute, old = database.execute, ("store", "changes", "keys", "checkpoints")
    for name in old:
        execute(f"ALTER TABLE tabr_{name} RENAME TO tabr_{name}_1")
    create(database)
    execute(
        "INSERT INTO tabr_store (identity, version, settled)"
        f" SELECT identity, {VERSION}, settled FROM tabr_store_1"
    )
    for (identity,) in execute("SELECT identity FROM tabr_store_1"):
        _upgrade_model(database, identity)
    for name in old:
        execute(f"DROP TABLE tabr_{name}_1")


def _upgrade_model(database: Connection, identity: str) -> None:
    execute, before = database.execute, first_link(identity)
    parts = execute(
        "SELECT part, seq, content FROM tabr_checkpoints_1 WHERE identity = %s"
        " ORDER BY part",
        identity,
    )
    if parts:  # what is behind it is gone: the chain begins here
        before = digest("tabr", identity, parts[0][1])
    whole = content_digest(b"".join(bytes(content) for *_, content in parts))
    for part, seq, content in parts:
        columns = "identity, part, seq, content, link, digest"
        sql = insert("tabr_checkpoints", columns)
        execute(sql, identity, part, seq, content, before, whole)
    columns = LINKED.replace("who", "NULL")
    changes = execute(
        f"SELECT {columns} FROM tabr_changes_1 WHERE identity = %s ORDER BY seq",
        identity,
    )
    for values in changes:
        before = link(before, *values)
        sql = insert("tabr_changes", f"identity, {LINKED}, link")
        execute(sql, identity, *values, before)
    keys = execute(f"SELECT {KEPT} FROM tabr_keys_1 WHERE identity = %s", identity)
    for values in keys:
        sql = insert("tabr_keys", f"identity, {KEPT}, digest")
        execute(sql, identity, *values, digest(*values))


def content_digest(content: bytes) -> str:
    """Return the checksum of a model file."""

    return hashlib.sha256(content).hexdigest()


def response_ids(response: str) -> list[int]:
    """Return the ids that a response names."""
    ids: list[int] = json.loads(response).get("ids", [])
    return ids

"""Bodies that a service must refuse or answer: damaged ones, bombs, and noise.

Each is made from a seed and its number alone, so it can be sent again.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

JSON, CSV = "application/json", "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
TABLES = ("/v1/predict/table", "/v1/candidates/table?target=price")
UNKNOWN_ID = 10**6  # of no candidate

MIB = 1 << 20
_LARGEST = 16 * MIB - 1000  # bytes of a body that is read at all


@dataclass(frozen=True)
class Body:
    """A body, where it goes, and what was done to it."""

    kind: str
    method: str
    path: str
    media: str
    content: bytes


def homes(n: int, seed: int = 0) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Return rows with columns of all kinds, some with gaps, and their prices."""
    rng = np.random.default_rng(seed)
    days = pd.to_timedelta(rng.integers(0, 9000, n), unit="D")
    frame = pd.DataFrame(
        {
            "size": rng.uniform(30, 200, n).round(1),
            "rooms": rng.integers(1, 8, n),
            "town": rng.choice(["Ulm", "Bonn", "Köln", "01234"], n),
            "garden": rng.random(n) < 0.5,
            "built": pd.Timestamp("1990-01-01") + days,
        }
    )
    frame.loc[::7, "size"] = np.nan
    return frame, (1000.0 * frame["rooms"] + 10).rename("price")


def craft(seed: int, number: int) -> Body:
    """Return a body by its number."""
    rng = random.Random(f"{seed}/{number}")
    makers = (_json, _csv, _arrow, _bomb, _noise)
    return rng.choices(makers, (35, 20, 25, 5, 15))[0](rng)


# --- damaged --------------------------------------------------------------------

_ODD: tuple[Any, ...] = (
    None, True, 0, -1, -0.0, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, 1e308, 5e-324,
    float("nan"), float("inf"), "", " ", "NaN", "\x00", "\ud800", "\u202e", "a" * 20000,
    "=cmd|' /C calc'!A0", "9999-12-31", "0001-01-01", "2024-02-30", [], {}, [[]], [1],
    {"a": {"b": []}}, "<img src=x onerror=alert(1)>",
)  # fmt: skip
_PIECES: tuple[bytes, ...] = (
    b"", b"[" * 500, b"{", b"}", b"]", b'"', b"'", b"\\", b"\\u", b"\\ud800", b",",
    b";", b"\t", b"\n", b"\r", b"\r\n\r\n", b"\x00", b"\xff", b"\xef\xbb\xbf",
    b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b",,,,,,,,", b'""', b'"rows":[],',
    b"\x00" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\xff\xfe",
)  # fmt: skip


def _damaged(rng: random.Random, content: bytes) -> bytes:
    """Return bytes with a few places changed, doubled or cut out."""
    damaged = bytearray(content)
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 4])):
        begin = rng.randrange(len(damaged) + 1)
        end = min(len(damaged), begin + rng.choice([0, 1, 2, 4, 8, 64]))
        how = rng.randrange(5)
        if how == 0:
            damaged[begin:end] = rng.choice(_PIECES)
        elif how == 1:
            damaged[begin:end] = rng.randbytes(end - begin)
        elif how == 2:
            damaged[begin:begin] = damaged[begin:end] * rng.choice([1, 2, 50])
        elif how == 3:
            del damaged[begin:end]
        elif damaged[begin : begin + 1]:
            damaged[begin] ^= 1 << rng.randrange(8)
    if rng.random() < 0.03:
        del damaged[rng.randrange(len(damaged) + 1) :]
    return bytes(damaged)


def _json(rng: random.Random) -> Body:
    frame, price = homes(rng.randint(1, 3), rng.randrange(1000))
    rows = json.loads(frame.to_json(orient="records", date_format="iso"))
    ids = [UNKNOWN_ID + rng.randrange(100) for _ in rows]
    labels = price.tolist()
    method, path, fields = rng.choice(
        [
            ("POST", "/v1/predict", {"rows": rows, "coverage": 0.8}),
            ("POST", "/v1/explain", {"rows": rows, "top": 3}),
            ("POST", "/v1/candidates", {"rows": rows, "labels": labels}),
            ("PATCH", "/v1/candidates", {"ids": ids, "labels": labels}),
            ("DELETE", "/v1/candidates", {"ids": ids}),
        ]
    )
    for _ in range(rng.choice([0, 1, 1, 2])):
        if fields:
            _change(rng, fields)
    text = json.dumps(fields, ensure_ascii=rng.random() < 0.7)
    content = text.encode("utf-8", "surrogatepass")
    return Body("JSON", method, path, JSON, _damaged(rng, content))


def _change(rng: random.Random, tree: Any) -> None:
    """Put something odd into a tree of lists and dicts, or take something away."""
    while True:
        keys: Sequence[Any] = list(tree) if isinstance(tree, dict) else range(len(tree))
        key = rng.choice(keys)
        inner = tree[key]
        if not isinstance(inner, list | dict) or not inner or rng.random() < 0.2:
            break
        tree = inner
    how = rng.randrange(4)
    if how == 0:
        del tree[key]
    elif how == 1 and isinstance(tree, dict):
        tree[rng.choice([f"{key} ", "\ud800", "", "x" * 5000])] = inner
    elif how == 2 and isinstance(tree, list):
        tree += [inner] * rng.choice([1, 10, 1100])
    else:
        tree[key] = rng.choice(_ODD)


def _table(rng: random.Random) -> pd.DataFrame:
    frame, price = homes(rng.choice([1, 2, 3]), rng.randrange(1000))
    frame["price"] = price
    for name in rng.sample(list(frame), rng.choice([0, 0, 1, 2])):
        how = rng.randrange(4)
        if how == 0:
            del frame[name]
        elif how == 1:
            frame = frame.rename(columns={name: f"{name} "})
        else:
            odd = [c for c in _ODD if isinstance(c, str | float) and c != "\ud800"]
            frame[name] = rng.choice(odd)
    return frame


def _csv(rng: random.Random) -> Body:
    separator = rng.choice([",", ",", ",", ";", "\t"])
    text = _table(rng).to_csv(index=rng.random() < 0.1, sep=separator)
    coding = rng.choice(["utf-8", "utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16"])
    content = text.encode(coding, "replace")
    return Body("CSV", "POST", rng.choice(TABLES), CSV, _damaged(rng, content))


def _arrow(rng: random.Random) -> Body:
    frame = _table(rng)
    if "town" in frame and rng.random() < 0.5:
        frame["town"] = frame["town"].astype("category")
    table = pa.Table.from_pandas(frame, preserve_index=rng.random() < 0.1)
    if rng.random() < 0.2 and table.num_columns:
        place = rng.randrange(table.num_columns)
        odd = rng.choice(_ODD_ARRAYS)(table.num_rows)
        table = table.set_column(place, table.column_names[place], odd)
    compression = rng.choice([None, None, "zstd", "lz4"])
    content = to_stream(table, rng.choice([1, 1, 3]), compression=compression)
    return Body("Arrow", "POST", rng.choice(TABLES), ARROW, _damaged(rng, content))


_ODD_ARRAYS: tuple[Callable[[int], pa.Array], ...] = (
    pa.nulls,
    lambda n: pa.array([[1]] * n),
    lambda n: pa.array([{"a": 1}] * n),
    lambda n: pa.array([b"a"] * n),
    lambda n: pa.array(["a" * 20] * n, pa.string_view()),
    lambda n: pa.array([[("a", 1)]] * n, pa.map_(pa.string(), pa.int64())),
    lambda n: pa.RunEndEncodedArray.from_arrays([n], pa.array([1])),
    lambda n: pa.array([2**62] * n, pa.timestamp("ns", "Nowhere/At All")),
    lambda n: pa.array([2**31 - 1] * n, pa.int32()).cast(pa.date32()),
    lambda n: pa.array([1] * n, pa.time64("ns")),
    lambda n: pa.array([1] * n, pa.decimal256(70, 60)),
    lambda n: pa.array([2**62] * n, pa.duration("s")),
    lambda n: pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int8()), [2**60]),
)


def to_stream(table: pa.Table, n_times: int = 1, **options: Any) -> bytes:
    """Return a table as an Arrow stream that repeats its batches."""
    sink = io.BytesIO()
    written = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, table.schema, options=written) as writer:
        for _ in range(n_times):
            writer.write_table(table)
    return sink.getvalue()


# --- bombs ----------------------------------------------------------------------


@cache
def bombs() -> tuple[Body, ...]:
    """Return bodies that are small or permitted, and would take all memory or time."""
    keys = b",".join(b'"k%d":1' % k for k in range(1_150_000))
    wide = b'{"rows":[{%s}]}' % keys
    asked = {
        "keys": wide,
        "lists": b'{"rows":[' + b"[]," * (_LARGEST // 3 - 10) + b"[]]}",
        "rows": b'{"rows":[' + b"{}," * (_LARGEST // 3 - 10) + b"{}]}",
        "depth": b"[" * _LARGEST,
        "depth of rows": b'{"rows":' + b'[{"a":' * (_LARGEST // 7),
        "one text": b'{"rows":["' + b"a" * _LARGEST + b'"]}',
        "escapes": b'{"rows":["' + b"\\\\" * (_LARGEST // 2 - 20) + b'"]}',
        "digits": b'{"rows":[' + b"9" * _LARGEST + b"]}",
        "open text": b'{"rows":["' + b"," * _LARGEST,
        "spaces": b" " * _LARGEST,
    }
    made = [
        Body(f"bomb: JSON {name}", "POST", path, JSON, content)
        for name, content in asked.items()
        for path in ("/v1/predict", "/v1/explain", "/v1/candidates")
    ]
    ids = b'{"ids":[' + b"1," * (_LARGEST // 2 - 20) + b"1]}"
    made.append(Body("bomb: JSON ids", "DELETE", "/v1/candidates", JSON, ids))
    tables = [(CSV, _csv_bombs()), (ARROW, _arrow_bombs())]
    made += [
        Body(f"bomb: {media.split('.')[-1]} {name}", "POST", path, media, content)
        for media, contents in tables
        for name, content in contents.items()
        for path in TABLES
    ]
    return (*made, *_long_bodies())


def _long_bodies() -> list[Body]:
    """Return bodies that are as long as is permitted, and right."""
    frame, price = homes(20_000)
    rows = json.loads(frame[:1000].to_json(orient="records", date_format="iso"))
    content = json.dumps({"rows": rows}).encode()
    table = frame.assign(price=price)
    packed = to_stream(pa.Table.from_pandas(table, preserve_index=False))
    text = table.to_csv(index=False).encode()
    return [
        Body("long: JSON", "POST", "/v1/predict", JSON, content),
        Body("long: CSV", "POST", TABLES[0], CSV, text),
        Body("long: Arrow", "POST", TABLES[0], ARROW, packed),
        Body("long: CSV", "POST", TABLES[1], CSV, text),
    ]


def _csv_bombs() -> dict[str, bytes]:
    header = b"size,rooms,town,garden,built,price\n"
    return {
        "commas": b"," * _LARGEST,
        "semicolons": b";" * _LARGEST,
        "lines": b"\n" * _LARGEST,
        "cells": header + b"1\n" * (_LARGEST // 2 - 20),
        "wide line": header + b"," * (_LARGEST - 50),
        "quotes": header + b'"' * (_LARGEST - 50),
        "open quote": header + b'"' + b"1,2,3\n" * (_LARGEST // 6 - 10),
        "hidden header": b'"\n"' + b"," * (_LARGEST - 50),
        "long cell": header + b"1,2," + b"a" * (_LARGEST - 100) + b",1,2020-01-01,3\n",
        "names": b",".join(b"%d" % k for k in range(1_500_000)),
    }


def _arrow_bombs() -> dict[str, bytes]:
    text = pa.array(["a" * 200 * MIB], pa.large_string())
    zeros = pa.array(np.zeros(20_000_000))
    levels = pa.array([0] * 200_000, pa.int8())
    level = pa.DictionaryArray.from_arrays(levels, ["a" * 9000])
    packed = {
        "packed text": pa.table({"town": text}),
        "packed zeros": pa.table({"size": zeros}),
        "packed level": pa.table(
            {"town": pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), text)}
        ),
    }
    wide = {f"c{k}": pa.nulls(1) for k in range(20_000)}
    return {
        "nulls": to_stream(pa.table({"size": pa.nulls(300_000_000)})),
        "batches": to_stream(pa.table({"size": pa.nulls(200_000)}), 2000),
        "small batches": to_stream(pa.table({"size": [1.0]}), 60_000),
        "wide": to_stream(pa.table(wide)),
        "levels": to_stream(pa.table({"town": level, "built": level})),
        **{name: to_stream(t, compression="zstd") for name, t in packed.items()},
        **{f"{name}, lz4": _small(t) for name, t in packed.items()},
    }


def _small(table: pa.Table) -> bytes:
    return to_stream(table, compression="lz4")[:_LARGEST]


def _bomb(rng: random.Random) -> Body:
    return rng.choice(bombs())


# --- noise ----------------------------------------------------------------------


def _noise(rng: random.Random) -> Body:
    path = rng.choice(
        ["/v1/predict", "/v1/explain", "/v1/candidates", "/v1/model", *TABLES]
    )
    method = rng.choice(["POST", "POST", "POST", "PATCH", "DELETE", "PUT"])
    media = rng.choice([JSON, CSV, ARROW, "", "text/plain", "application/x+json"])
    content = rng.choice(
        [
            rng.randbytes(rng.choice([1, 10, 1000])),
            b"\xff\xff\xff\xff" + rng.randbytes(rng.choice([4, 100, 1000])),
            bytes(rng.choices(b'[]{},:"\\ \n0123.eE-+tfn', k=rng.choice([5, 50, 500]))),
        ]
    )
    return Body("noise", method, path, media, content)

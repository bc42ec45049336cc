import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tabr.errors import ModelFileError
from tabr.tables.stored.parquet import read_apart

PLAIN = {"compression": "none", "use_dictionary": False}


def parquet(table: pa.Table, **options) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **{**PLAIN, **options})
    return buffer.getvalue()


def named(table: pa.Table) -> list[dict]:
    return [{"name": name, "type": "values"} for name in table.column_names]


def numbers(n: int = 40) -> pa.Table:
    frame = pd.DataFrame({"a": np.arange(n), "b": [f"t{k % 7}" for k in range(n)]})
    return pa.Table.from_pandas(frame)


def test_what_was_written_comes_back():
    frame = numbers().to_pandas()
    found = read_apart(parquet(numbers()), named(numbers()), 40)
    pd.testing.assert_frame_equal(found, frame)


def bombs() -> dict[str, tuple[bytes, list[dict], int]]:
    """Small files that unfold to gigabytes."""
    n = 10**6
    lists = pa.table({f"c{k}": pa.nulls(n, pa.list_(pa.int64())) for k in range(40)})
    texts = pa.table({"t": pa.repeat(pa.scalar("x" * 4000), 2 * 10**4)})
    front = io.BytesIO()  # a text is told as what it shares with the one before it
    told = {**PLAIN, "column_encoding": {"t": "DELTA_BYTE_ARRAY"}}
    with pq.ParquetWriter(front, texts.schema, **told) as writer:
        for _ in range(10):
            writer.write_table(texts)
    nothing = pa.table({f"c{k}": pa.nulls(n) for k in range(400)})
    return {
        "null lists": (parquet(lists), named(lists), n),
        "texts by their differences": (front.getvalue(), named(texts), 2 * 10**5),
        "nothing": (parquet(nothing), named(nothing), n),
        "dictionary": (parquet(texts, use_dictionary=True), named(texts), 2 * 10**4),
    }


def test_bombs_are_refused_in_words():
    for name, (content, columns, n) in bombs().items():
        assert len(content) < 5e6, name
        with pytest.raises(ModelFileError, match="its candidates"):
            read_apart(content, columns, n)


def test_bits_of_the_footer_take_no_process_along():
    content = parquet(numbers())
    footer = int.from_bytes(content[-8:-4], "little") + 8
    rng = np.random.default_rng(3)
    n_refused = 0
    for _ in range(6):
        changed = bytearray(content)
        place = len(content) - footer + int(rng.integers(footer - 8))
        changed[place] ^= 1 << int(rng.integers(8))
        try:
            found = read_apart(bytes(changed), named(numbers()), 40)
        except ModelFileError:
            n_refused += 1
        else:
            assert found.shape == (40, 2)
    assert n_refused


def test_a_table_of_another_shape_is_refused():
    with pytest.raises(ModelFileError, match=r"have the shape \(40, 2\); save"):
        read_apart(parquet(numbers()), named(numbers()), 41)

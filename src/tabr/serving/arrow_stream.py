"""An Arrow stream as a table, refused before it unfolds to more than it may.

A few bytes can declare any number of rows, and a compressed stream any number of bytes.
Both are written in the header of each message, which is read here before the columns
are: a flatbuffer, of which two tables are of interest [1].

[1] https://github.com/apache/arrow/blob/main/format/Message.fbs
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tabr.errors import DataError
from tabr.serving.bounds import Bounds

_CELLS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_duration,
)


def read(content: bytes, bounds: Bounds) -> pd.DataFrame:
    """Return the table of a stream.

    What pyarrow refuses raises its errors; what is too large, a DataError.
    """
    with pa.ipc.open_stream(pa.BufferReader(content)) as stream:
        _check_types(stream.schema)
        bounds.check_columns(len(stream.schema))
        _measure(content, len(stream.schema), bounds)
        table = stream.read_all()
    table.validate(full=True)  # offsets that lie outside would be followed
    bounds.check_rows(table.num_rows)
    for column in table.columns:
        bounds.check_bytes(_n_bytes_of_levels(column))
    # What pandas wrote about the columns is left out: it is of the client's making.
    frame: pd.DataFrame = table.replace_schema_metadata(None).to_pandas()
    return frame


def _check_types(schema: pa.Schema) -> None:
    """Refuse columns whose cells hold more than one value, or none that we know."""
    for field in schema:
        kind = field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if not any(is_kind(kind) for is_kind in _CELLS):
            raise DataError(
                f"a cell must be a number, a flag, a date or text, however column"
                f" {field.name!r:.80} holds {str(field.type)!r:.80}: leave it out"
            )


def _n_bytes_of_levels(column: pa.ChunkedArray) -> int:
    """Return the bytes of a column's text, where each row has its own."""
    if not pa.types.is_dictionary(column.type):
        return 0
    n_bytes = 0
    for chunk in column.chunks:
        if _is_text(chunk.dictionary.type):
            lengths = pc.binary_length(chunk.dictionary)
            n_bytes += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    return n_bytes


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


# --- headers --------------------------------------------------------------------


def _measure(content: bytes, n_columns: int, bounds: Bounds) -> None:
    """Add up rows and bytes of all messages, and refuse too many of them."""
    n_rows = n_bytes = 0
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(content)):
        if message.type not in ("record batch", "dictionary"):
            continue
        header = _Header(message)
        n_bytes += header.n_bytes()
        n_rows += header.n_rows if message.type == "record batch" else 0
        bounds.check_rows(max(n_rows, header.longest))
        bounds.check_cells(n_rows * n_columns)
        bounds.check_bytes(n_bytes)


class _Table:
    """A table of a flatbuffer, whose fields are known by their numbers."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        (back,) = struct.unpack_from("<i", data, place)
        (n_bytes,) = struct.unpack_from("<H", data, place - back)
        n_fields = n_bytes // 2 - 2
        self._offsets = struct.unpack_from(f"<{n_fields}H", data, place - back + 4)

    def _target(self, field: int) -> int | None:
        """Return where a field of variable length lies; None if it is absent."""
        offset = self._offsets[field] if field < len(self._offsets) else 0
        if not offset:
            return None
        place = self._place + offset
        return place + int(struct.unpack_from("<I", self._data, place)[0])

    def integer(self, field: int) -> int:
        """Return an integer of 64 bits."""
        offset = self._offsets[field] if field < len(self._offsets) else 0
        if not offset:
            return 0
        return int(struct.unpack_from("<q", self._data, self._place + offset)[0])

    def table(self, field: int) -> _Table | None:
        """Return a table inside."""
        target = self._target(field)
        return None if target is None else _Table(self._data, target)

    def pairs(self, field: int) -> NDArray[np.int64]:
        """Return a list of pairs of integers, (n, 2)."""
        target = self._target(field)
        if target is None:
            return np.empty((0, 2), np.int64)
        (n,) = struct.unpack_from("<I", self._data, target)
        flat = np.frombuffer(self._data, "<i8", 2 * n, target + 4)
        return flat.astype(np.int64).reshape(n, 2)


class _Header:
    """What a message says of its columns: their lengths, and where their bytes lie."""

    def __init__(self, message: pa.Message) -> None:
        if message.metadata_version != pa.ipc.MetadataVersion.V5:
            raise ValueError("it is of a version before 1.0")  # packed in other ways
        data = message.metadata.to_pybytes()
        (root,) = struct.unpack_from("<I", data)
        batch = _Table(data, root).table(2)
        if batch is not None and message.type == "dictionary":
            batch = batch.table(1)
        if batch is None:
            raise ValueError("a message has no header")
        self.n_rows = batch.integer(0)
        self.longest = max(self.n_rows, *batch.pairs(1)[:, 0].tolist())
        self._buffers = batch.pairs(2).tolist()
        self._is_packed = batch.table(3) is not None
        self._body = message.body

    def n_bytes(self) -> int:
        """Return how many bytes the columns take unpacked, each on its own."""
        if not self._is_packed:
            return sum(max(length, 0) for _, length in self._buffers)
        return sum(self._unpacked(*pair) for pair in self._buffers)

    def _unpacked(self, place: int, length: int) -> int:
        """Return the bytes of a buffer, of which the first eight tell how many."""
        if length <= 0:
            return 0
        (n_bytes,) = struct.unpack_from("<q", self._body, place)
        if n_bytes == -1:  # this one is not packed
            return length
        if n_bytes < 0:
            raise ValueError("a buffer has a negative length")
        return int(n_bytes)

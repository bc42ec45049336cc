"""Columns of candidates as formats 1 and 2 of model files have them: as Parquet.

Its parsers may crash or unfold a small file to a huge table, so they run in a process
of their own, with little memory and time. It answers with the arrays of `packed`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import numpy as safetensors

from tabr.config.checks import check_file
from tabr.errors import ModelFileError, TabrError
from tabr.tables.stored.packed import pack_frame, unpack_frame

_MOST_BYTES = 1 << 28  # beside a multiple of the file's own
_MULTIPLE = 12  # short texts as objects
_SECONDS = 60.0  # beside some for each byte
_BYTES_A_SECOND = 4e6
_CODE = "from tabr.tables.stored.parquet import answer; answer()"
# One thread: each would reserve memory of its own. The usual pool gives none back.
_ALONE = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
}


def read_apart(content: bytes, columns: Any, n: int) -> pd.DataFrame:
    """Return the frame of n rows that a file of an earlier version holds."""
    question = json.dumps({"columns": columns, "n": n}).encode()
    root = str(Path(__file__).parents[3])  # where tabr was imported from
    path = os.pathsep.join([root, *filter(None, sys.path)])
    try:
        run = subprocess.run(
            [sys.executable, "-P", "-c", _CODE],
            input=_framed(question) + content,
            capture_output=True,
            env={**os.environ, **_ALONE, "PYTHONPATH": path},
            timeout=_SECONDS + len(content) / _BYTES_A_SECOND,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelFileError(
            "its candidates take longer to read than any table of their size; save the"
            " model again"
        ) from None
    except OSError as error:
        raise ModelFileError(
            "files of its format are read in a process of their own, which cannot be"
            f" started ({error}); load it where that is allowed, and save it again"
        ) from error
    refusal = run.stderr.decode(errors="replace").strip().split("\n")[-1]
    check_file(run.returncode != 2, refusal.rpartition(";")[0])
    what = "its candidates unfold to more than a table of their size, or are damaged"
    check_file(run.returncode == 0 and len(run.stdout) > 8, what)
    about, arrays = _unframed(run.stdout)
    return unpack_frame(safetensors.load(arrays), json.loads(about), n)


def _framed(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


def _unframed(content: bytes) -> tuple[bytes, bytes]:
    n = int.from_bytes(content[:8], "little")
    return content[8 : 8 + n], content[8 + n :]


# --- in the process of its own ----------------------------------------------------


def answer() -> None:
    """Read a question and a Parquet file from stdin, and write arrays to stdout."""
    question, content = _unframed(sys.stdin.buffer.read())
    _limit(_MOST_BYTES + _MULTIPLE * len(content))
    try:
        frame = _from_parquet(content, **json.loads(question))
        arrays, about = pack_frame(frame)
    except TabrError as error:
        print(f"{error}".replace("\n", " "), file=sys.stderr)
        sys.exit(2)
    except Exception as error:  # its parsers may raise anything
        print(f"its candidates are damaged ({error!r:.150});", file=sys.stderr)
        sys.exit(2)
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    sys.stdout.buffer.write(_framed(json.dumps(about).encode()))
    sys.stdout.buffer.write(safetensors.save(whole))


def _limit(n_bytes: int) -> None:
    """Take no more memory than now and so much, where the system can hold us to it."""
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = Path("/proc/self/statm")
    if pages.exists():
        n_bytes += int(pages.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))


def _from_parquet(content: bytes, columns: list[Any], n: int) -> pd.DataFrame:
    """Return the frame of n rows that such a file and its columns hold."""
    file = pq.ParquetFile(pa.BufferReader(content))
    metadata = file.metadata
    shape = (metadata.num_rows, metadata.num_columns)
    check_file(shape == (n, len(columns)), f"its candidates have the shape {shape}")
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for part in map(group.column, range(group.num_columns)):
            plain = {"PLAIN", "RLE", "BIT_PACKED"}.issuperset(part.encodings)
            plain &= part.compression == "UNCOMPRESSED" and not part.has_dictionary_page
            check_file(plain, "its candidates are compressed")
    table = file.read(use_threads=False)
    frame = table.to_pandas(use_threads=False)
    restored = {
        str(about["name"]): _column(table.column(k), frame.iloc[:, k], about)
        for k, about in enumerate(columns)
    }
    check_file(len(restored) == len(columns), "two of its columns have one name")
    return pd.DataFrame(restored)


def _column(column: Any, values: pd.Series[Any], about: Any) -> pd.Series[Any]:
    if about["type"] == "values":
        return values
    if about["type"] == "objects":
        return pd.Series(column.to_pylist(), dtype=object)
    dtype = about["dtype"] and pd.api.types.pandas_dtype(about["dtype"])
    check_file(dtype is None or dtype.kind in "iufO", f"its categories are of {dtype}")
    kinds = pd.CategoricalDtype(
        pd.Index(about["levels"], dtype=dtype), about["ordered"]
    )
    return pd.Series(pd.Categorical.from_codes(values, dtype=kinds))

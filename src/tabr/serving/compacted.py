"""Model files that compaction has written beside the one that is served."""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tabr.storage import save


def path_after(path: Path, seq: int) -> Path:
    """Return the name of the model file with the changes up to this one."""
    return path.with_name(f"{path.stem}-{seq}.tabr")


def written_beside(path: Path) -> list[Path]:
    """Return the model files that were made from this one, those of old changes first.

    Others that are named alike, such as a second model of the user's, are left out.
    """
    name = re.compile(rf"{re.escape(path.stem)}-(\d{{1,18}})\.tabr")
    files = {
        int(match[1]): file
        for file in path.parent.iterdir()
        if (match := name.fullmatch(file.name))
    }
    if not files:
        return []
    fit = _fit_of(path)
    return [files[n] for n in sorted(files) if _fit_of(files[n]) == fit]


def write(model: Any, path: Path) -> bytes:
    """Write a model file that only its owner may read; return its content."""
    save(model, path, is_private=True)
    return path.read_bytes()


@contextmanager
def unnamed(content: bytes) -> Iterator[str]:
    """A path to read a content at, of which a kill leaves no file where it can."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        path = Path(f"/proc/self/fd/{file.fileno()}")
        if path.exists():
            yield str(path)
            return
    with tempfile.NamedTemporaryFile(suffix=".tabr") as file:  # elsewhere
        file.write(content)
        file.flush()
        yield file.name


def remove_old(path: Path, keep: int) -> list[Path]:
    """Remove all but the last few model files that were made from this one."""
    files = written_beside(path)
    old = files[: max(0, len(files) - keep)]
    for file in old:
        file.unlink(missing_ok=True)
    return old


def _fit_of(path: Path) -> Any:
    """Return what tells fits apart: when each network learnt what; None if unknown."""
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read("model.json"))
        return header["members"], header["preprocessor"]
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
        return path  # like no other

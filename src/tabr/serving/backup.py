"""A model with its store in one file, written while services go on, and back.

The file is a ZIP archive: `backup.json` names the parts and their checksums, then come
the model file, the checkpoint and the rows of the store, a line of JSON each.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

from tabr import __version__
from tabr.errors import DataError
from tabr.serving.store.changes import Snapshot, Store, is_file, open_store
from tabr.serving.store.connection import NoStore
from tabr.serving.store.sqlite import files_of, path_of
from tabr.tables.files import draft_of

_FORMAT = 1
_HEADER, _MODEL, _CHECKPOINT = "backup.json", "model.tabr", "checkpoint.tabr"
_ROWS = ("changes", "keys", "log")


def identity_of(model: Path) -> str:
    """Return the SHA-256 of a model file, by which its store knows it."""
    with model.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def default_store(model: Path) -> Path:
    """Return where the changes of a model are kept unless told otherwise."""
    return model.with_name(f"{model.name}.memory")


def opened(model: Path, store: str | Path | None) -> Store:
    """Open the store of a model file, which must be there."""
    address = default_store(model) if store is None else store
    return open_store(address, identity_of(model), begin=False)


def back_up(model: Path, store: str | Path | None, output: Path) -> dict[str, Any]:
    """Write a model and its store, as they are at one moment, to a new file."""
    if output.exists():
        raise DataError(f"a backup never replaces a file, however {output} is there")
    source = opened(model, store)
    try:
        snapshot = source.snapshot()
    finally:
        source.close()
    parts = {_MODEL: model.read_bytes()}
    if snapshot.checkpoint is not None:
        parts[_CHECKPOINT] = snapshot.checkpoint
    for name in _ROWS:
        lines = (json.dumps(row) + "\n" for row in getattr(snapshot, name))
        parts[f"{name}.jsonl"] = "".join(lines).encode()
    header = {
        "format": _FORMAT,
        "tabr": __version__,
        "identity": snapshot.identity,
        "compacted": snapshot.compacted,
        "link": snapshot.link,
        "changes": snapshot.last,
        "sha256": {k: hashlib.sha256(v).hexdigest() for k, v in parts.items()},
    }
    with (
        draft_of(output, is_private=True) as draft,
        zipfile.ZipFile(draft, "w") as archive,
    ):
        archive.writestr(_HEADER, json.dumps(header))
        for name, content in parts.items():
            archive.writestr(name, content)
    return {
        "file": str(output),
        "changes": snapshot.last,
        "bytes": len(output.read_bytes()),
    }


def restore(file: Path, model: Path, store: str | Path | None) -> dict[str, Any]:
    """Write the model file and the store of a backup, where there are none."""
    content, snapshot = _read(file)
    address = default_store(model) if store is None else store
    if model.exists() and model.read_bytes() != content:
        raise DataError(f"a backup never replaces a file, however {model} is there")
    _check_free(address, snapshot.identity)
    if not model.exists():
        with draft_of(model) as draft:
            draft.write_bytes(content)
    target = open_store(address, snapshot.identity)
    try:
        target.fill(snapshot)
        target.beginning()  # which checks the chain
    finally:
        target.close()
    return {"model": str(model), "changes": snapshot.last}


def _check_free(address: str | Path, identity: str) -> None:
    if is_file(address):
        if left := files_of(path_of(Path(address))):
            raise DataError(
                f"a backup never replaces a store, however {left[0]} is there: move its"
                " files away, or give another --store"
            )
        return
    try:
        open_store(address, identity, begin=False).close()
    except NoStore:
        return
    raise DataError(
        "a backup never replaces a store, however the database has one of this model:"
        " give another database, or a schema of its own"
    )


def _read(file: Path) -> tuple[bytes, Snapshot]:
    try:
        with zipfile.ZipFile(file) as archive:
            header = json.loads(archive.read(_HEADER))
            if header["format"] != _FORMAT:
                raise DataError(
                    f"a backup must have format {_FORMAT}, however {file} has"
                    f" {header['format']!r:.20}: use the version of tabr that wrote it"
                )
            parts = {name: archive.read(name) for name in header["sha256"]}
        _check_sums(parts, header["sha256"])
        rows = {name: _rows(parts[f"{name}.jsonl"]) for name in _ROWS}
        snapshot = Snapshot(
            identity=header["identity"],
            compacted=header["compacted"],
            link=header["link"],
            last=header["changes"],
            checkpoint=parts.get(_CHECKPOINT),
            **rows,
        )
        return parts[_MODEL], snapshot
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, EOFError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{file} must be what `tabr backup` wrote, however it is damaged or"
            f" something else ({' '.join(str(error).split()):.100}): use another backup"
        ) from error


def _check_sums(parts: dict[str, bytes], sums: dict[str, str]) -> None:
    sums_of = {k: hashlib.sha256(part).hexdigest() for k, part in parts.items()}
    wrong = [name for name in parts if sums_of[name] != sums[name]]
    if wrong:
        raise ValueError(f"the checksum of {wrong[0]} is another")


def _rows(content: bytes) -> list[list[Any]]:
    return [json.loads(line) for line in content.splitlines()]

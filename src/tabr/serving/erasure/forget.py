"""Rows are removed from a model file and its store for good, and it is shown.

The order makes it safe to be killed at any moment. One transaction gives the store a
new beginning, the model file without the rows, which it keeps as its checkpoint until
that file has taken the place of the old one. That comes last. So whoever finds an old
file beside a new store can finish: the same command again does.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.candidates.candidate_set import CandidateSet
from tabr.errors import DataError, UnknownIdError
from tabr.estimators import load_model
from tabr.serving import compacted
from tabr.serving.backup import default_store, identity_of, opened
from tabr.serving.erasure.traces import (
    MOST,
    Others,
    Trace,
    Value,
    ids_in,
    in_bytes,
    in_model,
    sample_of,
    values_in,
    values_of,
)
from tabr.serving.store.changes import Snapshot, Store, is_file, open_store
from tabr.serving.store.connection import Forgotten, NoStore
from tabr.serving.store.sqlite import files_of, path_of, put_away
from tabr.serving.store.tables import response_ids
from tabr.storage import save
from tabr.tables.files import draft_of, drafts_in, remove_dead_drafts

Address = str | Path


@dataclass(frozen=True)
class Proof:
    """What was done, what was looked for, and what is left.

    Attributes:
        removed: Ids of rows that were there, in whichever file.
        levels: Levels of categories that no row has any more, by column.
        values: What was looked for; of rows that no file had, only ids can be.
        traces: What was found, file by file.
        deleted: Files that are gone.
        put_away: Files of earlier stores, which nobody reads or deletes.
        notes: What this cannot know.
        has_finished: Whether an earlier run had been interrupted.
    """

    removed: list[int]
    levels: dict[str, list[str]]
    values: list[Value]
    traces: list[Trace]
    deleted: list[str]
    put_away: list[str]
    notes: list[str]
    has_finished: bool

    @property
    def is_gone(self) -> bool:
        """Whether no file has the rows; what fit learned from them may stay."""
        rows = [
            t for t in self.traces if t.ids or not all(f.is_learned for f in t.found)
        ]
        return not rows and not self.put_away


class _Rows(NamedTuple):
    """What is known of the rows before they go."""

    model: Any  # as it is with all changes
    applied: int  # of them
    sources: list[CandidateSet]  # of all files that may have the rows
    requests: list[tuple[dict[str, Any], list[int]]]  # that the store has, and ids


def forget(
    path: Path,
    ids: Collection[int],
    store: Address | None = None,
    who: str | None = None,
) -> Proof:
    """Remove rows from a model file, its store and what compaction wrote.

    Raises:
        UnknownIdError: No row ever had one of these ids.
        StoreError: The store cannot be used, or a service uses it.
    """
    ids, address = _whole(ids), _address(path, store)
    for folder in _folders(path, address):
        remove_dead_drafts(folder)
    deleted: list[Path] = []
    identity, has_finished = identity_of(path), False
    if address is None:
        model = load_model(path, "cpu")
        plan = _Plan(_Rows(model, 0, [model.candidates_], []), ids)
        if plan.is_needed:
            _write(path, plan.content)
    else:
        deleted += _finished(path, address)
        has_finished = identity_of(path) != identity
        with _claimed(path, address) as (kept, rows):
            plan = _Plan(rows, ids)
            if plan.is_needed and plan.identity != identity_of(path):
                kept.forget(ids, plan.content, after=rows.applied, who=who)
            kept.overwrite()
            if plan.is_needed:
                deleted += compacted.remove_old(path, 0)
                _write(path, plan.content)
    values = sample_of(plan.values)
    old = [] if address is None or not is_file(address) else put_away(_file(address))
    return Proof(
        plan.removed,
        plan.levels,
        values,
        list(_traces(path, address, ids, values)),
        [str(file) for file in deleted],
        [str(file) for file in old],
        _notes(path, address, plan, ids),
        has_finished,
    )


class _Plan:
    """What is to be done, and what is to be looked for afterwards.

    Attributes:
        removed: Ids of rows that some file has.
        levels: Levels of categories that only rows had that are gone.
        is_needed: Whether there is anything to do.
        content: The model file without them.
        identity: Its SHA-256.
        values: Values of the rows that can tell.
    """

    def __init__(self, rows: _Rows, ids: list[int]) -> None:
        model, wanted = copy.copy(rows.model), np.asarray(ids, np.int64)
        _check_given(wanted, model.candidates_)
        held = [np.intersect1d(wanted, source.ids) for source in rows.sources]
        asked = [np.intersect1d(wanted, ids_) for _, ids_ in rows.requests]
        gone = np.unique(np.concatenate([*held, *asked]))
        self.removed = [int(id_) for id_ in gone]
        left = model.candidates_.removed(np.intersect1d(wanted, model.candidates_.ids))
        model.candidates_, n_unused = _without_unused(left.packed())
        preprocessor, self.levels = model.preprocessor_.with_levels_of(
            model.candidates_.frame
        )
        model.preprocessor_ = preprocessor
        self.is_needed = bool(self.removed or self.levels or n_unused)
        buffer = io.BytesIO()
        save(model, buffer)
        self.content = buffer.getvalue()
        self.identity = hashlib.sha256(self.content).hexdigest()
        others = Others(model.candidates_, model.candidates_.columns)
        self.values: list[Value] = []
        for source, found in zip(rows.sources, held, strict=True):
            if len(found):
                self.values += values_of(source, found.tolist(), others)
        for payload, ids_ in rows.requests:
            if {*ids_}.intersection(ids):
                told = values_in(payload, ids_, others)
                self.values += [value for value in told if value.id in ids]


def _whole(ids: Collection[int]) -> list[int]:
    """Return distinct ids, in order."""
    array = np.asarray(ids)
    if array.size and array.dtype.kind not in "iu":
        raise DataError(f"ids are whole numbers, however {array.dtype} came")
    return [int(id_) for id_ in np.unique(array)]


def _check_given(ids: NDArray[np.int64], candidates: CandidateSet) -> None:
    never = ids[(ids < 0) | (ids >= candidates.next_id)]
    if len(never):
        raise UnknownIdError(
            f"no candidate ever had these ids: {never[:5].tolist()}; nothing was"
            " forgotten"
        )


def _without_unused(candidates: CandidateSet) -> tuple[CandidateSet, int]:
    """Return packed candidates without categories that none has, and their number."""
    frame, n = candidates.frame.copy(), 0
    for name in frame:
        dtype = frame[name].dtype
        if isinstance(dtype, pd.CategoricalDtype):
            used = frame[name].cat.remove_unused_categories()
            n += len(dtype.categories) - len(used.cat.categories)
            frame[name] = used
    parts = candidates.ids, frame, candidates.y, candidates.rows, candidates.labels
    return CandidateSet(*parts, candidates.rule, candidates.next_id), n


def _address(path: Path, store: Address | None) -> Address | None:
    """Return where the store of a model is; None if it has none."""
    if store is not None:
        if is_file(store) and not files_of(path_of(Path(store))):
            raise NoStore(f"a store must have been begun, however {store} is missing")
        return store
    default = default_store(path)
    if files_of(path_of(default)):
        return default
    if left := compacted.written_beside(path):
        raise DataError(
            f"rows are forgotten in a model and its store, however {default} is not"
            f" there, and {left[-1].name} tells that there is one: name it by --store"
        )
    return None


def _file(address: Address) -> Path:
    """Return the file of a store that is one."""
    return path_of(Path(address))


def _folders(path: Path, address: Address | None) -> list[Path]:
    folders = [Path(os.path.realpath(path)).parent]
    if address is not None and is_file(address):
        folders.append(_file(address).parent)
    return list(dict.fromkeys(folders))


def _write(path: Path, content: bytes) -> None:
    with draft_of(path) as draft:
        draft.write_bytes(content)


def _finished(path: Path, address: Address) -> list[Path]:
    """Finish what was interrupted; return the files that are gone by it."""
    try:
        opened(path, address).close()
        return []
    except Forgotten as error:
        successor = error.successor
    with closing(open_store(address, successor, begin=False)) as store:
        checkpoint = store.checkpoint()
        content = b"" if checkpoint is None else checkpoint[1]
        if hashlib.sha256(content).hexdigest() != successor:
            raise DataError(
                f"{path} is from before rows of it were forgotten, however the store"
                " has gone on with the file that took its place: delete this one"
            )
        store.claim()
        store.overwrite()
        deleted = compacted.remove_old(path, 0)
        _write(path, content)
    return deleted


@contextmanager
def _claimed(path: Path, address: Address) -> Iterator[tuple[Store, _Rows]]:
    """A store that nobody else has open, and what is known of its rows."""
    from tabr.serving.served_model import ServedModel  # which needs more libraries

    with closing(ServedModel(path, address, "cpu")) as served:
        snapshot = served.store.snapshot()
        files = [path, *compacted.written_beside(path)]
        models = [served.model, *(load_model(file, "cpu") for file in files)]
        if snapshot.checkpoint is not None:
            with compacted.unnamed(snapshot.checkpoint) as name:
                models.append(load_model(name, "cpu"))
        sources = [model.candidates_ for model in models]
        requests = [
            (json.loads(payload), response_ids(response))
            for _, _, payload, response, *_ in snapshot.changes
        ]
        served.store.claim()
        yield served.store, _Rows(served.model, served.applied, sources, requests)


# --- the proof --------------------------------------------------------------------


def _traces(
    path: Path, address: Address | None, ids: list[int], values: list[Value]
) -> Iterator[Trace]:
    """Yield what is left in each file, read anew."""
    content = path.read_bytes()
    yield Trace(str(path), ids_in(content, ids), in_model(content, values))
    if address is None:
        others = []
    else:
        with closing(opened(path, address)) as store:
            snapshot, place = store.snapshot(), store.place
        yield _trace_of(snapshot, place, ids, values)
        others = compacted.written_beside(path)
    for file in others:
        content = file.read_bytes()
        yield Trace(str(file), ids_in(content, ids), in_model(content, values))
    raw = [file for folder in _folders(path, address) for file in drafts_in(folder)]
    if address is not None and is_file(address):
        raw += [*files_of(_file(address)), *put_away(_file(address))]
    for file in raw:
        found = in_bytes(file.read_bytes(), values)
        yield Trace(str(file), [], found)


def _trace_of(
    snapshot: Snapshot, place: str, ids: list[int], values: list[Value]
) -> Trace:
    """Return what is left in a store, as a client of the database sees it."""
    left, found = [], []
    if snapshot.checkpoint is not None:
        left += ids_in(snapshot.checkpoint, ids)
        found += in_model(snapshot.checkpoint, values)
    for _, _, payload, response, *_ in snapshot.changes:
        left += {*ids}.intersection(response_ids(response))
        found += in_bytes(payload.encode(), values, "changes")
    rows = json.dumps([snapshot.keys, snapshot.log]).encode()
    found += in_bytes(rows, values, "history")
    return Trace(f"{place} (its contents)", sorted({*left}), found)


def _notes(
    path: Path, address: Address | None, plan: _Plan, ids: list[int]
) -> list[str]:
    """Return what the proof cannot know, a sentence each."""
    notes = [
        "the networks, the scales of columns and the calibration learned from the rows"
        " that were there in fit, and stay: who must forget that too fits again",
        "backups, copies of these files, and what the disk keeps of replaced ones are"
        " not known here",
    ]
    if unknown := sorted({*ids} - {*plan.removed}):
        shown = ", ".join(map(str, unknown[:5])) + ", ..." * (len(unknown) > 5)
        notes.append(f"no file had rows {shown}: of these only the ids were looked for")
    if (n := len({v[:3] for v in plan.values})) > MOST:
        notes.append(f"{MOST} of {n} values were looked for")
    if address is None:
        notes.append("there is no store beside it: name one elsewhere by --store")
    elif is_file(address):
        notes.append("the history keeps ids, times and names of clients")
    else:
        notes.append(
            "services on the database still have the rows in memory: stop them, and"
            " start them with the new model file, wherever they have it"
        )
        notes.append(
            "PostgreSQL keeps deleted rows in its own files: its owner runs VACUUM FULL"
            " on the tables tabr_*, and knows of its log, replicas and backups"
        )
    if Path(f"{path}.sig").exists() and plan.is_needed:
        notes.append(f"{path}.sig is of the file before: sign it again")
    return notes

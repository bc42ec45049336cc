"""Crafted model files: what a loader makes of files that somebody has tampered with.

Models are made, their files parted, changed by the rules below with all checksums made
to match, and loaded in processes of little memory. A file depends on the seed and its
number alone, so each can be made again.
"""

from __future__ import annotations

import copy
import io
import json
import multiprocessing
import os
import resource
import struct
import tempfile
import threading
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import numpy as safetensors

from reliability.trials import ROOT, Trial
from tabr import NotSameGroup, PastOnly, TabRClassifier, TabRRegressor
from tabr.errors import ModelFileError, TabrError
from tabr.estimators import load_model

HEADER, TENSORS = "model.json", "tensors.safetensors"
OLD_MODELS = ROOT / "tests" / "data" / "models-0.1.0"
MOST_BESIDE = 1 << 29  # bytes of memory beside four times a file's size
_HARD_LIMIT = 3 << 30  # where a process is stopped
_SECONDS = 60.0
_SHARE_OLD = 0.02  # they start a process each

Rng = np.random.Generator
Members = dict[str, bytes]


# --- models that are whole --------------------------------------------------------


def rows(n: int = 60, seed: int = 0) -> pd.DataFrame:
    """Return a table with columns of every kind."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "town": rng.choice(["Rome", "Oslo", "Köln"], n),
            "size": pd.Categorical(rng.choice(["S", "M", "L"], n)),
            "count": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "flag": rng.random(n) < 0.5,
            "note": rng.choice(np.array(["a", None, "c"], dtype=object), n),
            "day": pd.Timestamp("2024-01-01", tz="Europe/Berlin")
            + pd.to_timedelta(rng.integers(0, 5000, n), unit="h"),
        }
    )


def write_models(folder: Path, names: Collection[str] = ()) -> None:
    """Write a small model of each make, or of some, as NAME.tabr."""
    X = rows()
    y = X["age"].fillna(0) * 3 + X["flag"] + 10
    small: dict[str, Any] = {
        "width": 8,
        "context_size": 4,
        "max_epochs": 1,
        "n_members": 1,
        "random_state": 0,
        "device": "cpu",
    }
    rule = PastOnly("day", gap="1D") & NotSameGroup("town")
    labels = np.digitize(y, [9, 11])
    texts = np.array(["a", "b", "c"])[labels]
    models: dict[str, tuple[Any, Any]] = {
        "numbers": (TabRRegressor(**small), y),
        "classes": (TabRClassifier(**small), texts),
        "rules": (TabRRegressor(**small, candidates=rule), y),
        "members": (TabRClassifier(**{**small, "n_members": 3}), labels == 1),
        "embedded": (TabRRegressor(**small, embedding="plr-lite"), y),
        "pack": (TabRRegressor(**small, preset="best"), y),
    }
    for name in names or models:
        model, target = models[name]
        model.fit(X, target).save(folder / f"{name}.tabr")


# --- changes ----------------------------------------------------------------------


def parted(content: bytes) -> Members:
    """Return the members of an archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def joined(members: Members, header: Any = None) -> bytes:
    """Return an archive whose checksums are right, as far as there is a header."""
    members = dict(members)
    if header is not None:
        if isinstance(header, dict) and isinstance(header.get("sha256"), dict):
            sums = {k: sha256(v).hexdigest() for k, v in members.items()}
            header = {**header, "sha256": {**header["sha256"], **sums}}
        members[HEADER] = text_of(header)
    return zipped(list(members.items()))


def text_of(header: Any) -> bytes:
    """Return JSON, in which a number may be longer than Python writes."""
    return json.dumps(header).replace('"@digits"', "7" * 10**6).encode()


def zipped(members: list[tuple[str, bytes]], compression: int = 0) -> bytes:
    """Return an archive of these members, which may have one name."""
    buffer = io.BytesIO()
    with (
        warnings.catch_warnings(),
        zipfile.ZipFile(buffer, "w", compression) as archive,
    ):
        warnings.simplefilter("ignore")  # of names that come twice
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return buffer.getvalue()


def wild(rng: Rng) -> Any:
    """Return a value that hardly fits where it is put."""
    simple: list[Any] = [
        *(None, True, False, -1, 0, 1, 2, 7, 2**31, 2**53, 2**63, -(2**63), 10**30),
        *(0.5, -0.0, 1e-320, 1e308, -1e308, float("inf"), float("nan"), "@digits"),
        *(
            "",
            "a",
            "NaN",
            "age",
            "x" * 10**5,
            "\ud800",
            "../../x",
            "float64",
            "<M8[ns]",
        ),
        *([], {}, [[]], [None], [0] * 1000, ["a"] * 1000, {"a": 1}, [1e9] * 3),
        *({"rule": "Inverted", "part": {}}, {"type": "rule", "values": {}}, 10**6),
    ]
    value: Any = simple[int(rng.integers(len(simple)))]
    while rng.random() < 0.15:
        value = [value] if rng.random() < 0.5 else {"type": value, "values": value}
    return value


def places_of(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the places of all values in a tree."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in items:
        yield (*place, key)
        if isinstance(part, dict | list):
            yield from places_of(part, (*place, key))


def _at(tree: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        tree = tree[key]
    return tree


def change_fields(rng: Rng, members: Members, _: list[Members]) -> bytes:
    """Change, drop, double or swap fields of the header."""
    header = json.loads(members[HEADER])
    for _n in range(int(rng.integers(1, 4))):
        places = list(places_of(header))
        place = places[int(rng.integers(len(places)))]
        parent, key = _at(header, place[:-1]), place[-1]
        action = rng.random()
        if action < 0.7:
            parent[key] = wild(rng)
        elif action < 0.8:
            del parent[key]
        elif action < 0.9 and isinstance(parent, list):
            parent += [copy.deepcopy(parent[key])] * int(rng.choice([1, 1000]))
        else:
            other = places[int(rng.integers(len(places)))]
            parent[key] = copy.deepcopy(_at(header, other))
    return joined(members, header)


def flip_bits(rng: Rng, members: Members, _: list[Members]) -> bytes:
    """Turn bits of a member; half of them lie where it begins or ends."""
    name = str(rng.choice(list(members)))
    content = bytearray(members[name])
    for _n in range(int(rng.integers(1, 4))):
        near = min(len(content), 600)
        place = int(rng.integers(len(content)))
        if rng.random() < 0.5:
            place = int(rng.integers(near)) * (1 if rng.random() < 0.5 else -1)
        content[place] ^= 1 << int(rng.integers(8))
    changed = {**members, name: bytes(content)}
    header = None if name == HEADER else json.loads(members[HEADER])
    return joined(changed, header)


def change_tensors(rng: Rng, members: Members, _: list[Members]) -> bytes:
    """Give arrays other types, shapes, values or names, or drop some."""
    name = str(rng.choice([n for n in members if n.endswith("safetensors")]))
    arrays = dict(sorted(safetensors.load(members[name]).items()))
    for _n in range(int(rng.integers(1, 4))):
        key = str(rng.choice(list(arrays)))
        array = arrays[key].copy()
        other = str(rng.choice(list(arrays)))
        dtype = str(rng.choice(["f4", "f8", "i4", "i8", "u1", "i1", "f2", "u8"]))
        flat = array.reshape(-1)
        values = [np.nan, np.inf, -np.inf, -1, 2**40, 1e308, 0, 255]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            match int(rng.integers(9)):
                case 0:
                    array = array.astype(dtype)
                case 1:
                    array = flat[: max(0, flat.size - 1)]
                case 2:
                    array = array[None]
                case 3 if flat.size:
                    value = np.array(values[int(rng.integers(len(values)))])
                    flat[int(rng.integers(flat.size))] = value.astype(array.dtype)
                case 4:
                    array = np.zeros((0, *array.shape[1:]), array.dtype)
                case 5:
                    array = np.concatenate([array, array]) if array.ndim else array
                case 6:
                    array = arrays[other]
                case 7:
                    array = rng.permutation(flat).reshape(array.shape)
                case _:
                    raw = rng.bytes(array.nbytes)
                    array = np.frombuffer(raw, array.dtype).reshape(array.shape)
        arrays[key] = np.ascontiguousarray(array)
        if rng.random() < 0.1 and len(arrays) > 1:
            arrays[key + "x" if rng.random() < 0.5 else other] = arrays.pop(key)
    changed = {**members, name: safetensors.save(arrays)}
    return joined(changed, json.loads(members[HEADER]))


def change_shapes(rng: Rng, members: Members, _: list[Members]) -> bytes:
    """Change what a safetensors file says of its tensors, not what it holds."""
    name = str(rng.choice([n for n in members if n.endswith("safetensors")]))
    content = members[name]
    length = int.from_bytes(content[:8], "little")
    about = json.loads(content[8 : 8 + length])
    places = [p for p in places_of(about) if len(p) > 1]
    place = places[int(rng.integers(len(places)))]
    claims = [10**12, 2**62, -1, 0, [2**62, 4], [10**9, 0], "F64", "BF16", [], None]
    _at(about, place[:-1])[place[-1]] = claims[int(rng.integers(len(claims)))]
    text = json.dumps(about).encode()
    if rng.random() < 0.2:  # the same name twice
        text = text[:-1] + b"," + text[1:]
    size = len(text) if rng.random() < 0.9 else int(rng.choice([0, 2**40, 2**63]))
    changed = size.to_bytes(8, "little") + text + content[8 + length :]
    return joined({**members, name: changed}, json.loads(members[HEADER]))


def swap_members(rng: Rng, members: Members, others: list[Members]) -> bytes:
    """Take a member of another model."""
    other = others[int(rng.integers(len(others)))]
    name = str(rng.choice(list(members)))
    content = other.get(name, other[TENSORS])
    if rng.random() < 0.2:
        content = b"" if rng.random() < 0.5 else rng.bytes(1000)
    header = None if name == HEADER else json.loads(members[HEADER])
    return joined({**members, name: content}, header)


def cut(rng: Rng, members: Members, _: list[Members]) -> bytes:
    """Cut the file, or a part out of it."""
    content = joined(members)
    first, last = sorted(int(p) for p in rng.integers(len(content), size=2))
    return content[:first] if rng.random() < 0.5 else content[:first] + content[last:]


def trick_archives(rng: Rng, members: Members, _: list[Members]) -> bytes:
    """Build archives that say one thing and hold another."""
    items = list(members.items())
    content = bytearray(zipped(items))
    match int(rng.integers(8)):
        case 0:
            return zipped([*items, items[int(rng.integers(len(items)))]])
        case 1:
            return zipped(items[:: int(rng.choice([-1, 2]))])
        case 2:
            return zipped(items, zipfile.ZIP_DEFLATED)
        case 3:
            return rng.bytes(int(rng.integers(1, 100))) + content
        case 4:
            return bytes(content) + rng.bytes(int(rng.integers(1, 100)))
        case 5:  # what local headers, the directory or its end say
            marks = [b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"]
            place = content.rindex(marks[int(rng.integers(3))])
            at = min(place + 4 + int(rng.integers(18)), len(content) - 4)
            struct.pack_into("<I", content, at, int(rng.integers(2**32)))
            return bytes(content)
        case 6:
            return _crowded(members)
        case _:
            place = len(content) - 1 - int(rng.integers(min(len(content), 300)))
            content[place] ^= 1 << int(rng.integers(8))
            return bytes(content)


def _crowded(members: Members) -> bytes:
    """Return an archive whose directory has 1,000 entries."""
    more = [(f"{k}", b"") for k in range(1000)]
    return zipped([*members.items(), *more])


def bomb(rng: Rng, members: Members, _: list[Members]) -> bytes:
    """Write little that asks for much."""
    header = json.loads(members[HEADER])
    n = int(10 ** rng.uniform(4, 6.3))
    huge = int(10 ** rng.uniform(6, 18))
    columns = header["preprocessor"]["columns"]
    column = columns[int(rng.integers(len(columns)))]
    network = header["members"][0]["network"]
    deep = '{"rule": "Inverted", "part": ' * (n // 100) + "1" + "}" * (n // 100)
    pairs: Any = {"rule": "SameGroup", "column": "town"}
    for k in range(int(rng.integers(5, 60))):
        other = {"rule": "PastOnly", "column": "day", "gap": float(k)}
        both = {"rule": "Joined", "by": "&", "parts": [other, other]}
        pairs = {"rule": "Joined", "by": "|", "parts": [pairs, both]}
    rule = {"type": "rule", "values": pairs}
    embedding = {"kind": "bins", "width": huge, "n_frequencies": huge}
    embedding |= {"frequency_scale": 1.0}

    def says(changes: Callable[[], Any]) -> bytes:
        changes()
        return joined(members, header)

    makes: list[Callable[[], bytes]] = [
        lambda: joined({**members, HEADER: b"[" * n}),
        lambda: joined({**members, HEADER: b"[" + b"{}," * (n * 4) + b"1]"}),
        lambda: joined({**members, HEADER: b'{"format": ' + b"9" * n + b"}"}),
        lambda: joined({**members, HEADER: deep.encode()}),
        lambda: says(lambda: column.update(fill=[0.5] * n)),
        lambda: says(lambda: column.update(fill=[[0.5] * 1000] * 100)),
        lambda: says(lambda: column.update(indicator=huge)),
        lambda: says(lambda: column.update(n_levels=huge, missing=huge - 1)),
        lambda: says(lambda: column.update(n_means=huge, means=[0.5] * 100)),
        lambda: says(lambda: column.update(parts=["days"] * n, fills=[0.5] * n)),
        lambda: says(lambda: column.update(cycles=["day"] * n)),
        lambda: says(lambda: columns.extend([column] * (n // 10))),
        lambda: says(lambda: header["columns"].extend([{"name": "a"}] * (n // 10))),
        lambda: says(lambda: header["members"].extend(header["members"] * 1000)),
        lambda: says(lambda: header["params"].update(candidates=rule)),
        lambda: says(lambda: network.update(width=huge)),
        lambda: says(lambda: network.update(hidden_factor=float(huge))),
        lambda: says(lambda: network.update(encoder_blocks=huge)),
        lambda: says(lambda: network.update(n_heads=huge)),
        lambda: says(lambda: network.update(embedding=embedding)),
        lambda: says(lambda: network.update(row_embedding=embedding)),
        lambda: says(lambda: network.update(row_embedding={**embedding, "kind": "lr"})),
        lambda: says(lambda: header.update(context_size=huge)),
        lambda: says(lambda: header.update(next_id=huge)),
        lambda: says(lambda: header["target"].update(dtype=f"<U{huge}")),
        lambda: says(
            lambda: header["target"].update(dtype=f"<U{n}", classes=["a"] * 9)
        ),
        lambda: says(lambda: header["members"][0]["history"].update(loss=[0.5] * n)),
        lambda: _many_tensors(members, header, n),
        lambda: _many_quantiles(members, header, n),
        lambda: _long_shape(members, header, n),
    ]
    return makes[int(rng.integers(len(makes)))]()


def _many_tensors(members: Members, header: Any, n: int) -> bytes:
    content = members[TENSORS]
    length = int.from_bytes(content[:8], "little")
    rest = content[8 + length :]
    empty = f'{{"dtype":"F32","shape":[0],"data_offsets":[{len(rest)},{len(rest)}]}}'
    more = "".join(f',"members.0.{k}":{empty}' for k in range(n // 4)).encode()
    text = content[8 : 8 + length].rstrip()[:-1] + more + b"}"
    changed = len(text).to_bytes(8, "little") + text + rest
    return joined({**members, TENSORS: changed}, header)


def _many_quantiles(members: Members, header: Any, n: int) -> bytes:
    arrays = safetensors.load(members[TENSORS])
    for name in [name for name in arrays if name.endswith("quantiles")]:
        arrays[name] = np.zeros((n, arrays[name].shape[1]))
    return joined({**members, TENSORS: safetensors.save(arrays)}, header)


def _long_shape(members: Members, header: Any, n: int) -> bytes:
    about = {"a": {"dtype": "F32", "shape": [1] * n, "data_offsets": [0, 4]}}
    text = json.dumps(about).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(4)
    return joined({**members, TENSORS: content}, header)


def change_parquet(rng: Rng, members: Members, _: list[Members]) -> bytes:
    """Turn bits of a file's Parquet, most of them in its footer, or unfold it."""
    header = json.loads(members[HEADER])
    content = bytearray(members["candidates.parquet"])
    if rng.random() < 0.15:
        n, names = 85, [about["name"] for about in header["columns"]]
        tables = [
            pa.table({k: pa.nulls(n, pa.list_(pa.int64())) for k in names}),
            pa.table({k: pa.repeat("x" * 10**5, n) for k in names}),
            pa.table({k: pa.nulls(n) for k in names}),
        ]
        sink = io.BytesIO()
        options: Any = {"compression": str(rng.choice(["none", "zstd"]))}
        table = tables[int(rng.integers(len(tables)))]
        pq.write_table(table, sink, use_dictionary=bool(rng.random() < 0.5), **options)
        content = bytearray(sink.getvalue())
    else:
        footer = int.from_bytes(content[-8:-4], "little") + 8
        for _n in range(int(rng.integers(1, 3))):
            reach = footer if rng.random() < 0.8 else len(content)
            place = len(content) - 1 - int(rng.integers(reach))
            content[place] ^= 1 << int(rng.integers(8))
    return joined({**members, "candidates.parquet": bytes(content)}, header)


Change = Callable[[Rng, Members, list[Members]], bytes]
CHANGES: dict[str, tuple[Change, float]] = {
    "fields": (change_fields, 0.34),
    "bits": (flip_bits, 0.18),
    "tensors": (change_tensors, 0.18),
    "shapes": (change_shapes, 0.07),
    "members": (swap_members, 0.05),
    "cuts": (cut, 0.05),
    "archives": (trick_archives, 0.05),
    "bombs": (bomb, 0.08),
}


@dataclass
class Models:
    """Whole models by name, those of format 1 apart."""

    new: dict[str, Members]
    old: dict[str, Members]

    @classmethod
    def read(cls, folder: Path) -> Models:
        """Return the models of a folder, and those that earlier versions wrote."""

        def parts(folder: Path) -> dict[str, Members]:
            paths = sorted(folder.glob("*.tabr"))
            return {path.stem: parted(path.read_bytes()) for path in paths}

        return cls(parts(folder), parts(OLD_MODELS))

    def crafted(self, seed: int, number: int, with_old: bool = True) -> Crafted:
        """Return one crafted file; the same for the same seed and number."""
        rng = np.random.default_rng([seed, number])
        if rng.random() < _SHARE_OLD and with_old:
            name = str(rng.choice(list(self.old)))
            content = change_parquet(rng, self.old[name], [])
            return Crafted("parquet", name, content)
        names = list(CHANGES)
        shares = np.array([share for _, share in CHANGES.values()])
        kind = str(rng.choice(names, p=shares / shares.sum()))
        name = str(rng.choice(list(self.new)))
        others = list(self.new.values())
        return Crafted(kind, name, CHANGES[kind][0](rng, self.new[name], others))


@dataclass(frozen=True)
class Crafted:
    """A file, the kind of its change and the name of the model that it was."""

    kind: str
    name: str
    content: bytes


# --- what comes of them -----------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What came of a file, in a word and in full; the memory it took, in bytes."""

    number: int
    kind: str
    word: str
    detail: str = ""
    taken: int = 0
    n_bytes: int = 0


def try_file(path: Path, X: pd.DataFrame) -> tuple[str, str]:
    """Load a file and predict; return what came of it, in a word and in full."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = load_model(path, device="cpu")
    except ModelFileError as error:
        message = str(error)
        in_words = "; " in message and "\n" not in message and len(message) < 2000
        return ("refused" if in_words else "refused, not in words"), message
    except Exception as error:
        return "other exceptions", f"{error!r:.300}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = model.predict(X)
    except TabrError as error:
        return "loaded", f"refused the rows: {error!s:.300}"
    except Exception as error:
        return "other exceptions", f"in predict: {error!r:.300}"
    if values.shape != (len(X),):
        return "other exceptions", f"in predict: {values.shape}"
    return "loaded", ""


def _peak() -> int:
    """Return the most memory since `_forget_peak`, in bytes."""
    for line in Path("/proc/self/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", "utf-8")


def work(folder: str, seed: int, questions: Connection) -> None:
    """Craft and try the files of numbers that are asked for."""
    import torch

    torch.set_num_threads(1)
    models = Models.read(Path(folder))
    tables = {"new": rows(4, seed=1)}
    tables["old"] = pd.read_json(OLD_MODELS / "rows.json", orient="table")
    path = Path(folder) / f"crafted-{os.getpid()}.file"
    for name in models.new:  # what only the first load takes
        try_file(Path(folder) / f"{name}.tabr", tables["new"])
    size = int(Path("/proc/self/statm").read_text("utf-8").split()[0])
    limit = size * resource.getpagesize() + _HARD_LIMIT
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    questions.send(None)
    while (number := questions.recv()) is not None:
        crafted = models.crafted(seed, number)
        path.write_bytes(crafted.content)
        questions.send(crafted.kind)
        X = tables["old" if crafted.kind == "parquet" else "new"]
        n_bytes = len(crafted.content)
        del crafted.__dict__["content"]
        _forget_peak()
        before = _peak()
        word, detail = try_file(path, X)
        taken = _peak() - before
        if taken > 4 * n_bytes + MOST_BESIDE:
            word = "over memory"
        questions.send(Outcome(number, crafted.kind, word, detail, taken, n_bytes))
    path.unlink(missing_ok=True)


class Worker:
    """A process that tries files; it is started again where one ends it."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Start it."""
        self.folder, self.seed = folder, seed
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, other = context.Pipe()
        arguments = (str(self.folder), self.seed, other)
        self.process = context.Process(target=work, args=arguments, daemon=False)
        self.process.start()
        other.close()
        self.line.recv()

    def outcome(self, number: int) -> Outcome:
        """Return what came of the file of this number."""
        kind = "unknown"
        try:
            self.line.send(number)
            kind = self.line.recv()
            if self.line.poll(_SECONDS):
                outcome: Outcome = self.line.recv()
                return outcome
            word = "timed out"
        except (EOFError, OSError):
            word = "crashed"
        self.process.kill()
        self.process.join()
        code = self.process.exitcode
        self._start()
        return Outcome(number, kind, word, f"exit code {code}")

    def close(self) -> None:
        """End it."""
        self.line.send(None)
        self.process.join()


@dataclass
class Tally:
    """All outcomes of a run."""

    words: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    odd: list[Outcome] = field(default_factory=list)
    taken: int = 0

    def add(self, outcome: Outcome) -> None:
        """Count one."""
        self.words[outcome.word] += 1
        self.kinds[outcome.kind] += 1
        self.taken = max(self.taken, outcome.taken)
        if outcome.word not in ("refused", "loaded"):
            self.odd.append(outcome)

    def trial(self) -> Trial:
        """Return the counts as a trial."""
        words = {
            "refused in words": "refused",
            "loaded, as the change was harmless": "loaded",
            "crashed": "crashed",
            "timed out": "timed out",
            "over memory": "over memory",
            "other exceptions": "other exceptions",
            "refused, not in words": "refused, not in words",
        }
        counts: dict[str, int | float | str] = {"files": self.words.total()}
        counts |= {title: self.words[word] for title, word in words.items()}
        counts["most memory of a file, MiB"] = round(self.taken / 2**20)
        counts |= {f"of them {kind}": n for kind, n in sorted(self.kinds.items())}
        return Trial(
            "Crafted model files",
            "Files of models of every make were changed, with checksums made to match:"
            " fields of the header, bits of each member, tensors, whole members, the"
            " archive, Parquet of earlier formats, and bombs. Each was loaded in a"
            " process of its own memory limit, and asked to predict. None may abort,"
            " raise anything but a refusal in words, or take more memory than four"
            f" times its size and {MOST_BESIDE >> 20} MiB. Parquet is read in a process"
            " of its own, which is held to 256 MiB and twelve times the file.",
            counts,
            held=not self.odd,
        )


def run(count: int, seed: int, n_workers: int, say: Callable[[str], None]) -> Trial:
    """Craft so many files, try them, and return what came of them."""
    tally, numbers, lock = Tally(), iter(range(count)), threading.Lock()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_models(folder)

        def ask() -> None:
            worker = Worker(folder, seed)
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    break
                outcome = worker.outcome(number)
                with lock:
                    tally.add(outcome)
                    if outcome in tally.odd:
                        kind, word, detail = outcome.kind, outcome.word, outcome.detail
                        say(f"{outcome.number} ({kind}): {word}: {detail}")
            worker.close()

        threads = [threading.Thread(target=ask) for _ in range(n_workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return tally.trial()

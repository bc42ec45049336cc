"""A fitted model becomes one file and comes back; reading a file runs no code.

The file is a ZIP archive, named *.tabr by custom. `model.json` holds the format number,
parameters, configs, histories and fitted states, `tensors.safetensors` the weights and
the prepared candidates, `candidates.safetensors` the candidates in the user's columns,
as `tables.packed` lays them out.

Nothing is compressed or counted rather than written, so no small file unfolds to a huge
one: sizes are compared with what the file holds before memory is taken. Formats 1 and 2
had `candidates.parquet` instead, which is read in a process of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import json
import math
import os
import struct
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors import numpy as safetensors
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted
from torch.overrides import TorchFunctionMode

from tabr import __version__
from tabr.candidates.candidate_set import CandidateSet
from tabr.candidates.rules import (
    BoundRule,
    Rule,
    Where,
    in_nanoseconds,
    pack_rule,
    unpack_rule,
)
from tabr.config import PRESETS, EmbeddingConfig, RetrievalConfig, network_config
from tabr.config.checks import check_file as _check
from tabr.device.devices import choose_device
from tabr.errors import DataError, ModelFileError, ParameterError
from tabr.network.embeddings import embedding_width, input_width
from tabr.network.rows import Rows
from tabr.network.tabr import TabR
from tabr.optional import require
from tabr.prediction.uncertainty import Calibration
from tabr.tables.files import draft_of, write_bytes
from tabr.tables.preprocessor import Preprocessor
from tabr.tables.shape import DataShape
from tabr.tables.stored.packed import pack_frame, unpack_frame
from tabr.tables.stored.parquet import read_apart
from tabr.tables.targets import ClassTarget, NumberTarget, Target
from tabr.training.fit import Member
from tabr.training.loop import History, Stop

AnyPath = str | os.PathLike[str]
Arrays = dict[str, NDArray[Any]]
Model = TypeVar("Model")

_FORMAT = 3
_PARQUET_FORMAT = 2  # the last that held columns as Parquet
_FIRST_FORMAT = 1  # whose members all count alike
_FORGOTTEN = {"recall_target"}  # parameters that older files may hold
_HEADER, _TENSORS = "model.json", "tensors.safetensors"
_COLUMNS, _PARQUET = "candidates.safetensors", "candidates.parquet"
_MOST_BYTES_OF_CLASSES = 1 << 28
_WIDEST_CLASS = 1000  # characters that all are given room for, if none needs more
_TRIED_ROWS = 1000  # candidates that a preprocessor is tried with
_MOST_NUMBER = 1 << 53  # of ids and counts
_MOST_TENSORS = 1 << 16  # a module takes more memory than the words that call for it
_BYTES_OF_A_NAME = 512  # and its shape
_DIRECTORY_BYTES = 1024  # of an archive of three
_UNFOLDED, _UNFOLDED_BESIDE = 3, 1 << 28  # bytes that JSON may take for each of a file


def save(model: Any, path: AnyPath | io.BytesIO, *, is_private: bool = False) -> None:
    """Write a fitted model to one file, whole or not at all, or to memory.

    The device is no part of it; a parameter that is a function is stored as None. A
    private file can be read by its owner alone, whatever was there before.
    """
    check_is_fitted(model, "members_")
    candidates: CandidateSet = model.candidates_.packed()
    frame, columns = pack_frame(candidates.frame)
    groups: dict[str, Mapping[str, Any]] = {
        f"members.{number}": member.network.state_dict()
        for number, member in enumerate(model.members_)
    }
    of_rows = {"ids": candidates.ids, "labels": candidates.labels}
    if model.target_.classes is None:  # classes follow from labels
        of_rows["y"] = candidates.y
    groups["candidates"] = candidates.rows._asdict() | of_rows
    preprocessor, groups["preprocessor"] = model.preprocessor_.state()
    target, groups["target"] = model.target_.state()
    calibration = asdict(model.calibration_)
    groups["calibration"] = {k: np.atleast_1d(v) for k, v in calibration.items()}
    contents = {
        _TENSORS: _to_safetensors(_named(groups)),
        _COLUMNS: _to_safetensors(frame),
    }
    params = {}
    for name, value in model.get_params(deep=False).items():
        params[name] = pack_param(name, value)
    del params["device"]
    header = {
        "format": _FORMAT,
        "tabr": __version__,
        "estimator": type(model).__name__,
        "params": params,
        "context_size": model.context_size_,
        "named": hasattr(model, "feature_names_in_"),
        "target_name": model.target_name_,
        "columns": columns,
        "next_id": candidates.next_id,
        "preprocessor": preprocessor,
        "target": target,
        "members": [
            {
                "network": asdict(m.network.config),
                "history": asdict(m.history),
                "recipe": m.recipe,
                "fold": m.fold,
                "weight": m.weight,
            }
            for m in model.members_
        ],
        "temperature": model.temperature_,
        "sha256": {k: hashlib.sha256(v).hexdigest() for k, v in contents.items()},
    }
    _write(path, {_HEADER: json.dumps(header), **contents}, is_private)


def load(
    path: AnyPath,
    cls: type[Model],
    device: str | None = None,
    key: AnyPath | bytes | None = None,
) -> Model:
    """Read a model of this class and put it on the device."""
    model: Model = load_any(path, {cls.__name__: cls}, device, key)
    return model


def load_any(
    path: AnyPath,
    classes: Mapping[str, type],
    device: str | None = None,
    key: AnyPath | bytes | None = None,
) -> Any:
    """Read a model of whichever of these classes the file names.

    With a public key its signature is checked first, of the bytes that are then read.
    """
    place = choose_device(device)
    start = f"{os.fspath(path)} cannot be read as a model"
    if os.path.isdir(path):
        raise ModelFileError(f"{start}: it is a folder; give a file that save wrote")
    public = None if key is None else _public_key(key)
    with open(path, "rb") as file:
        try:
            content: BinaryIO = file
            if public is not None:
                content = io.BytesIO(file.read())
                _check_signature(content.getbuffer(), path, public)
            model = _read(content, classes, device)
        except MemoryError:
            raise
        except ModelFileError as error:
            raise ModelFileError(f"{start}: {error}") from error
        except Exception as error:  # its parsers may raise anything
            message = f"{start}: it is damaged ({error!r:.200}); save the model again"
            raise ModelFileError(message) from error
    model.candidates_ = model.candidates_.to(place)
    for member in model.members_:
        member.network.to(place)
    return model


# --- signatures -----------------------------------------------------------------

_SIGNED = b"tabr model file, signature 1\0"  # says what the signature is for
_BYTES_OF_SIGNATURE = 64


def make_keys(path: AnyPath) -> Path:
    """Write a new private key, for its owner alone; return the file of its public one.

    That is beside it, as PATH.pub: `load` takes it.
    """
    kinds = require("cryptography.hazmat.primitives.serialization", extra="sign")
    key = _ed25519().Ed25519PrivateKey.generate()
    pem, raw = kinds.Encoding.PEM, kinds.NoEncryption()
    private = key.private_bytes(pem, kinds.PrivateFormat.PKCS8, raw)
    public = key.public_key().public_bytes(pem, kinds.PublicFormat.SubjectPublicKeyInfo)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "wb") as file:
        file.write(private)
    write_bytes(Path(f"{os.fspath(path)}.pub"), public)
    return Path(f"{os.fspath(path)}.pub")


def sign(path: AnyPath, key: AnyPath) -> Path:
    """Write the signature of a model file by a private key; return its file."""
    kinds = require("cryptography.hazmat.primitives.serialization", extra="sign")
    start = f"a model is signed with a private key of Ed25519, however {key}"
    try:
        private = kinds.load_pem_private_key(Path(key).read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise ParameterError(f"{start} is none; make one with tabr keygen") from error
    if not isinstance(private, _ed25519().Ed25519PrivateKey):
        raise ParameterError(f"{start} is another; make one with tabr keygen")
    digest = hashlib.sha512(Path(path).read_bytes()).digest()
    signature = Path(f"{os.fspath(path)}.sig")
    write_bytes(signature, private.sign(_SIGNED + digest))
    return signature


def check_signature(path: AnyPath, key: AnyPath | bytes) -> None:
    """Refuse a model file that nobody has signed with this public key."""
    public = _public_key(key)
    with memoryview(Path(path).read_bytes()) as content:
        try:
            _check_signature(content, path, public)
        except ModelFileError as error:
            start = f"{os.fspath(path)} cannot be read as a model"
            raise ModelFileError(f"{start}: {error}") from error


def _ed25519() -> Any:
    return require("cryptography.hazmat.primitives.asymmetric.ed25519", extra="sign")


def _public_key(key: AnyPath | bytes) -> Any:
    """Return the public key of a file or of its bytes."""
    kinds = require("cryptography.hazmat.primitives.serialization", extra="sign")
    content = key if isinstance(key, bytes) else Path(key).read_bytes()
    try:
        public = kinds.load_pem_public_key(content)
    except ValueError:
        public = None
    if not isinstance(public, _ed25519().Ed25519PublicKey):
        raise ParameterError(
            "key must be a public key of Ed25519, as tabr keygen writes it, however"
            f" {'other bytes' if isinstance(key, bytes) else key} came"
        )
    return public


def _check_signature(content: memoryview, path: AnyPath, public: Any) -> None:
    """Refuse a file that nobody has signed with this key."""
    name = Path(f"{os.fspath(path)}.sig")
    wrong = require("cryptography.exceptions", extra="sign").InvalidSignature
    _check(name.exists(), f"its signature {name} is missing", "sign it with tabr sign")
    with open(name, "rb") as file:
        signature = file.read(_BYTES_OF_SIGNATURE + 1)
    try:
        public.verify(signature, _SIGNED + hashlib.sha512(content).digest())
    except wrong:
        what = "its signature is not of this file by this key"
        raise ModelFileError(f"{what}; get both from who made them") from None


# --- the container ------------------------------------------------------------


def _write(
    path: AnyPath | io.BytesIO, contents: Mapping[str, str | bytes], is_private: bool
) -> None:
    """Write the archive; until it is whole the old file stays."""
    with contextlib.ExitStack() as stack:
        place: Path | io.BytesIO
        if isinstance(path, io.BytesIO):
            place = path
        else:
            place = stack.enter_context(draft_of(Path(path), is_private=is_private))
        archive = stack.enter_context(zipfile.ZipFile(place, "w"))
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name), content)


def _unzip(file: BinaryIO, classes: Mapping[str, type]) -> tuple[dict[str, Any], Any]:
    """Return the header and the bytes of the other members, all checked."""
    give, again = "give a file that save wrote", "copy or save it again"
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(4)
    _check(size > 0, "it is empty", give)
    _check(start[:1] != b"\x80", "it looks like a pickle, which may hold code", give)
    _check(start == b"PK\x03\x04", "it is no ZIP archive", give)
    _check(_is_whole(file, size), "it is cut off or damaged", again)
    archive = zipfile.ZipFile(file)
    names = [info.filename for info in archive.infolist()]
    known = names in ([_HEADER, _TENSORS, _COLUMNS], [_HEADER, _TENSORS, _PARQUET])
    _check(known, "it holds something else", give)
    for info in archive.infolist():
        stored = info.compress_type == zipfile.ZIP_STORED
        fits = stored and info.file_size == info.compress_size < size
        _check(fits, f"its {info.filename} claims {info.file_size} bytes of {size}")
    apart = sum(info.file_size for info in archive.infolist()) < size
    _check(apart, "its members overlap")
    header = _from_json(archive.read(_HEADER), size)
    number, name, here = header["format"], header["estimator"], f"tabr {__version__}"
    _check(type(number) is int and number > 0, f"its format is {number!r:.20}", give)
    update = f"install tabr {header['tabr']:.20} or later"
    _check(number <= _FORMAT, f"its format is {number}, beyond {here}", update)
    columns = _COLUMNS if number > _PARQUET_FORMAT else _PARQUET
    _check(names[2] == columns, f"its format is {number}, without {columns}", give)
    other = f"it holds a {name:.50}, however {' or '.join(classes)} came"
    _check(name in classes, other, f"load it as {name:.50}")
    parameters = inspect.signature(classes[name]).parameters
    unknown = sorted(header["params"].keys() - parameters - _FORGOTTEN)
    _check(not unknown, f"it has parameters beyond {here}: {unknown[:3]}", update)
    contents = {name: archive.read(name) for name in names[1:]}
    for name, content in contents.items():
        same = hashlib.sha256(content).hexdigest() == header["sha256"][name]
        _check(same, f"the checksum of its {name} is another", again)
    return header, contents


def _is_whole(file: BinaryIO, size: int) -> bool:
    """Whether an archive ends in a directory of few members, and nothing more."""
    file.seek(max(0, size - _DIRECTORY_BYTES))
    tail = file.read()
    end = tail[-22:]
    if end[:4] != b"PK\x05\x06" or end[20:] != b"\0\0":
        return False
    length, place, last = *struct.unpack("<II", end[12:20]), size - 22
    if tail[-42:-38] == b"PK\x06\x07":  # of a large file
        record, last = tail[-98:-42], size - 98
        if record[:4] != b"PK\x06\x06" or struct.unpack("<Q", tail[-34:-26])[0] != last:
            return False
        length, place = struct.unpack("<QQ", record[40:56])
    return bool(length < len(tail) and place + length == last)


def _from_json(text: bytes, size: int) -> Any:
    """Return what JSON holds, unless it took much more memory than the file."""
    n_containers = text.count(b"[") + text.count(b"{")
    n_values = n_containers + text.count(b",") + text.count(b":")
    wide = 4 if b"\\u" in text or not text.isascii() else 1  # bytes of a character
    unfolded = 64 * n_values + 96 * n_containers + 168 * text.count(b"{")
    fits = unfolded + wide * len(text) <= _UNFOLDED * size + _UNFOLDED_BESIDE
    _check(fits, f"its {_HEADER} unfolds to {unfolded} bytes")
    return json.loads(text, object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, none of whose names comes twice."""
    values = dict(pairs)
    _check(len(values) == len(pairs), f"its {_HEADER} has a name twice")
    return values


# --- parameters of estimators, as JSON holds them --------------------------------

_CONFIGS = {cls.__name__: cls for cls in (EmbeddingConfig, RetrievalConfig)}


def pack_param(name: str, value: Any) -> Any:
    """Return a parameter as JSON holds it, or None."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, EmbeddingConfig | RetrievalConfig):
        return {"type": type(value).__name__, "values": asdict(value)}
    if isinstance(value, Rule):
        if any(isinstance(leaf, Where) for leaf in value.leaves):
            warnings.warn(
                f"{name} has a rule Where, whose function cannot be stored: call "
                "restrict_candidates after loading",
                stacklevel=4,
            )
        return {"type": "rule", "values": pack_rule(value)}
    if isinstance(value, list | tuple):
        parts = [pack_param(name, part) for part in value]
        return {"type": type(value).__name__, "values": parts}
    if isinstance(value, Mapping):
        items = [[pack_param(name, part) for part in item] for item in value.items()]
        return {"type": "dict", "values": items}
    if not isinstance(value, np.random.RandomState | np.random.Generator):
        message = f"{name} cannot be stored, however {value!r:.60} came: set it again"
        warnings.warn(f"{message} after loading", stacklevel=4)
    return None


def unpack_param(value: Any) -> Any:
    """Return the parameter that `pack_param` packed."""
    if not isinstance(value, dict):
        return value
    if value["type"] == "rule":
        return unpack_rule(value["values"])
    if value["type"] in ("list", "tuple"):
        parts = [unpack_param(part) for part in value["values"]]
        return parts if value["type"] == "list" else tuple(parts)
    if value["type"] == "dict":
        return {key: unpack_param(part) for key, part in value["values"]}
    return _CONFIGS[value["type"]](**value["values"])


# --- the parts ----------------------------------------------------------------


def _named(groups: Mapping[str, Mapping[str, Any]]) -> Arrays:
    """Return the parts of all groups as arrays."""
    arrays = {}
    for group, parts in groups.items():
        for name, part in parts.items():
            array = part.detach().cpu().numpy() if torch.is_tensor(part) else part
            arrays[f"{group}.{name}"] = array
    return arrays


def _to_safetensors(arrays: Arrays) -> bytes:
    # safetensors writes memory as it lies
    return safetensors.save({k: np.ascontiguousarray(v) for k, v in arrays.items()})


def _from_safetensors(content: bytes, most: int) -> Arrays:
    """Return at most so many arrays."""
    n_bytes = int.from_bytes(content[:8], "little")
    text = content[8 : 8 + n_bytes]
    n = text.count(b"{")
    _check(n <= most + 2, f"it has {n} tensors, beyond {most}")
    _check(n_bytes <= _BYTES_OF_A_NAME * (n + 1), "its tensors are oddly named")
    tensors: Arrays = safetensors.load(content)
    return tensors


def _read(file: BinaryIO, classes: Mapping[str, type], device: str | None) -> Any:
    """Return the model on the CPU."""
    header, contents = _unzip(file, classes)
    params = {name: unpack_param(value) for name, value in header["params"].items()}
    for name in _FORGOTTEN & params.keys():
        if params.pop(name) is not None:
            warnings.warn(
                f"{name} was set when the model was saved, and is no longer known: all"
                " searches are exact",
                stacklevel=5,
            )
    preset = params.setdefault("preset", "paper")  # of before there were presets
    known = isinstance(preset, str) and preset in PRESETS
    _check(known, f"its preset is {preset!r:.20}, beyond tabr {__version__}")
    model: Any = classes[header["estimator"]](**params, device=device)
    size = header.get("context_size", model.context_size)
    fits = type(size) is int and 0 < size < _MOST_NUMBER
    _check(fits, f"its context_size is {size!r:.20}")
    model.context_size_ = size
    tensors = _from_safetensors(contents[_TENSORS], _MOST_TENSORS)
    for name, tensor in tensors.items():
        # A row that no rule lets have a neighbour is infinitely far from all.
        known = tensor == np.inf if name == "calibration.distances" else False
        finite = tensor.dtype.kind != "f" or (np.isfinite(tensor) | known).all()
        _check(bool(finite), f"its {name:.60} is not finite")

    def group(name: str) -> Arrays:
        start = f"{name}."
        return {k[len(start) :]: v for k, v in tensors.items() if k.startswith(start)}

    state, arrays = header["preprocessor"], group("preprocessor")
    preprocessor = Preprocessor.from_state(state, arrays)
    state, arrays = header["target"], group("target")
    make = _class_target if is_classifier(model) else _number_target
    target = make(state, arrays)
    shape = preprocessor.shape(target)
    n = tensors["candidates.ids"].size
    _check(n > 0, "it has no candidates")
    frame = _frame(header, contents, n)
    next_id = header["next_id"]
    fits = type(next_id) is int and 0 <= next_id < _MOST_NUMBER
    _check(fits, "its next id is no number")
    bound = _bound(model, frame, header["format"])
    arrays = group("candidates")
    parts = _candidates(arrays, frame, preprocessor, target)
    if target.classes is None:
        _mend_constant(target, parts[2])
    model.candidates_ = CandidateSet(*parts, bound, next_id)
    model.members_ = []
    for number, about in enumerate(header["members"]):
        weights = {k: torch.tensor(v) for k, v in group(f"members.{number}").items()}
        network = _network(about["network"], weights, shape)
        history = _history(about["history"])
        model.members_.append(Member(network, history, *_place(about)))
    _check(len(model.members_) > 0, "it has no network")
    model.temperature_ = 1.0
    if header["format"] > _FIRST_FORMAT:
        model.temperature_ = _positive(header["temperature"], "temperature")
    model.preprocessor_, model.target_ = preprocessor, target
    model.calibration_ = _calibration(group("calibration"))
    model.n_features_in_ = frame.shape[1]
    name = header["target_name"]
    _check(name is None or isinstance(name, str), "the name of its target is no text")
    model.target_name_ = name
    if header["named"]:
        model.feature_names_in_ = np.asarray(list(frame.columns), dtype=object)
    return model


def _bound(model: Any, frame: pd.DataFrame, number: int) -> BoundRule | None:
    """Return the model's rule with the candidates of a file of this format.

    Its own refusals are no damage. A span without a unit between dates, which earlier
    versions took, keeps its meaning.
    """
    if model.candidates is None:
        return None
    try:
        bound: BoundRule = model.candidates.bind(frame)
    except DataError as error:
        if number >= _FORMAT:
            raise ModelFileError(f"{error}; fit again") from error
        rule = unpack_rule(in_nanoseconds(pack_rule(model.candidates)))
        bound = rule.bind(frame)
        warnings.warn(
            f"{error}, and fit again; until then it counts nanoseconds, as it did",
            stacklevel=6,
        )
        model.candidates = rule
    return bound


def _frame(
    header: Mapping[str, Any], contents: Mapping[str, bytes], n: int
) -> pd.DataFrame:
    """Return the candidates in the user's columns."""
    columns = header["columns"]
    _check(isinstance(columns, list) and columns != [], "it has no columns")
    if _PARQUET in contents:
        return read_apart(contents[_PARQUET], columns, n)
    arrays = _from_safetensors(contents[_COLUMNS], 4 * len(columns))
    return unpack_frame(arrays, columns, n)


def _calibration(arrays: Arrays) -> Calibration:
    n, f64 = arrays["scores"].shape, np.dtype(np.float64)
    expected = {"scores": (n, f64), "distances": (n, f64), "spread": ((1,), f64)}
    _compare(arrays, expected)
    scores, distances = arrays["scores"].copy(), arrays["distances"].copy()
    _check(len(n) == 1 and n[0] > 0, "its calibration is empty")
    rises = all((array[1:] >= array[:-1]).all() for array in (scores, distances))
    above = min(scores[0], distances[0], arrays["spread"][0]) >= 0
    _check(rises and bool(above), "its calibration is not in order")
    return Calibration(scores, distances, float(arrays["spread"][0]))


def _number_target(state: Mapping[str, Any], arrays: Arrays) -> Target:
    target = NumberTarget.from_state(state, arrays)
    numbers = target.mean, target.low, target.high
    plain = all(type(value) is float for value in numbers)
    fits = plain and math.isfinite(target.mean) and target.low <= target.high
    _check(fits, f"its mean and range are {numbers!s:.60}")
    if target.scale != 0:
        _positive(target.scale, "deviation")
    _check(not arrays, "its target has tensors")
    return target


def _mend_constant(target: Target, y: NDArray[Any]) -> None:
    """Give a target without any spread the scale 0; older files have a 1 there."""
    assert isinstance(target, NumberTarget)
    if target.scale == 1.0 and bool((y == target.mean).all()):
        target.scale = 0.0


def _class_target(state: Mapping[str, Any], arrays: Arrays) -> Target:
    dtype = np.dtype(state["dtype"])
    classes = state["classes"] if "classes" in state else arrays["classes"]
    n = len(classes)
    fits = n > 1 and n * dtype.itemsize <= _MOST_BYTES_OF_CLASSES
    _check(fits and dtype.kind in "OUbiufmM", f"its classes are {n} of {dtype}")
    if dtype.kind == "U":
        texts = isinstance(classes, list) and all(type(v) is str for v in classes)
        _check(texts, "its classes are no texts")
        longest = max(map(len, classes))  # an answer for each row is as wide
        if dtype.itemsize // 4 > max(longest, _WIDEST_CLASS):
            state = {**state, "dtype": f"<U{longest}"}
    target = ClassTarget.from_state(state, arrays)
    _check(target.classes.shape == (n,), "its classes are no list")
    known = {(type(value), value) for value in target.classes.tolist()}
    _check(len(known) == n, "two of its classes are the same")
    return target


def _compare(given: Mapping[str, Any], expected: Mapping[str, tuple[Any, Any]]) -> None:
    """Check names, shapes and dtypes of tensors or arrays."""
    actual = {name: (tuple(t.shape), t.dtype) for name, t in given.items()}
    wrong = [k for k in {**expected, **actual} if actual.get(k) != expected.get(k)]
    what = [f"{k} is {actual.get(k)}, not {expected.get(k)}" for k in wrong[:1]]
    _check(not wrong, f"its tensors do not fit its model.json: {' '.join(what)}")


def _candidates(
    arrays: Arrays, frame: pd.DataFrame, preprocessor: Preprocessor, target: Target
) -> tuple[NDArray[np.int64], pd.DataFrame, NDArray[Any], Rows, torch.Tensor]:
    n, f32, i64 = len(frame), np.dtype(np.float32), np.dtype(np.int64)
    expected: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
        "num": ((n, preprocessor.n_num), f32),
        "bin": ((n, preprocessor.n_bin), f32),
        "cat": ((n, len(preprocessor.cardinalities)), i64),
        "ids": ((n,), i64),
        "labels": ((n,), np.dtype(target.label_dtype)),
    }
    if target.classes is None:
        expected["y"] = ((n,), np.dtype(np.float64))
    _compare(arrays, expected)
    again = preprocessor.transform(frame.head(_TRIED_ROWS))  # raises if it cannot
    start = {name: arrays[name][:_TRIED_ROWS] for name in Rows._fields}
    _compare(vars(again), {k: (v.shape, v.dtype) for k, v in start.items()})
    ids, labels = arrays["ids"].copy(), arrays["labels"]
    _check(bool((ids[1:] > ids[:-1]).all()), "two of its candidates have one id")
    fits = ids[0] >= 0 and ids[-1] < _MOST_NUMBER
    _check(bool(fits), "the ids of its candidates are beyond any count")
    codes, levels = arrays["cat"], np.array(preprocessor.cardinalities, dtype=np.int64)
    in_range = ((codes >= -1) & (codes < levels)).all()
    _check(bool(in_range), "some of its categories have no level")
    if target.classes is None:
        y = arrays["y"].copy()
    else:
        in_range = ((labels >= 0) & (labels < target.n_classes)).all()
        _check(bool(in_range), "some of its labels are no classes")
        y = target.as_fitted(labels, labels)
    rows = Rows(*(torch.tensor(arrays[name]) for name in Rows._fields))
    return ids, frame, y, rows, torch.tensor(labels)


class _WithoutMemory(TorchFunctionMode):
    """Modules made under it have parameters that have a shape but no memory."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.empty and kwargs.get("dtype") is None:
            kwargs["device"] = "meta"
        return function(*args, **kwargs)


def _network(
    values: Mapping[str, Any], weights: dict[str, torch.Tensor], shape: DataShape
) -> TabR:
    """Return a network around its weights; a false config costs no memory."""
    config, levels = network_config(values), shape.cardinalities
    n_blocks = config.encoder_blocks + config.predictor_blocks
    _check(n_blocks <= len(weights), f"its {n_blocks} blocks are not there")
    width = weights["linear.weight"].shape[1]
    fits = all(type(n) is int and n > 0 for n in levels) and sum(levels) <= width
    _check(fits, f"its categories need more than {width} inputs")
    wanted = input_width(shape, config.embedding)
    _check(wanted == width, f"its columns make {wanted} inputs, not {width}")
    if config.row_embedding is not None and shape.n_num:
        width = weights["row_embedding.1.weight"].shape[1]
        wanted = shape.n_num * embedding_width(config.row_embedding)
        _check(wanted == width, f"its numbers make {wanted} inputs, not {width}")
    with _WithoutMemory():
        network = TabR(config, shape)
    expected = network.state_dict().items()
    _compare(weights, {k: (tuple(t.shape), torch.float32) for k, t in expected})
    network.load_state_dict(weights, assign=True)
    return network.eval()


def _place(about: Mapping[str, Any]) -> tuple[str, int, float]:
    """Return a member's recipe, fold and weight; older files have none."""
    recipe, fold = about.get("recipe", "paper"), about.get("fold", 0)
    fits = type(recipe) is str and type(fold) is int and fold >= 0
    _check(fits, "its members have no recipe")
    return recipe, fold, _positive(about.get("weight", 1.0), "weight of a member")


def _positive(value: Any, name: str) -> float:
    """Return a finite number above zero."""
    fits = type(value) is float and 0 < value < float("inf")
    _check(fits, f"its {name} is {value!r:.20}")
    return float(value)


def _history(values: Mapping[str, Any]) -> History:
    history = History(**values)
    best, curves = history.best_epoch, [history.loss, history.score, history.seconds]
    change = history.context_change
    numbers = [*curves, change]
    fits = all(type(c) is list and all(type(v) is float for v in c) for c in numbers)
    fits &= len(change) in (0, len(history.score) - 1)
    fits &= len({*map(len, curves)}) == 1 and history.stopped in get_args(Stop)
    fits &= type(best) is int and -1 <= best < len(history.score)
    _check(fits, "its history is none")
    return history

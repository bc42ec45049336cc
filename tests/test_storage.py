import copy
import datetime
import errno
import io
import json
import os
import pickle
import struct
import zipfile
from contextlib import nullcontext
from decimal import Decimal
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import numpy as safetensors
from sklearn.exceptions import NotFittedError

from tabr import (
    EmbeddingConfig,
    NotSameGroup,
    PastOnly,
    RetrievalConfig,
    TabRClassifier,
    TabRRegressor,
)
from tabr.errors import ModelFileError, ParameterError, TabrError
from tabr.estimators import load_model
from tabr.storage import load, load_any, make_keys, save, sign
from tabr.text import plain_rows

SMALL = {
    "width": 8,
    "context_size": 4,
    "max_epochs": 2,
    "random_state": 0,
    "device": "cpu",
}
CLASSES = {"TabRRegressor": TabRRegressor, "TabRClassifier": TabRClassifier}
HEADER, TENSORS = "model.json", "tensors.safetensors"
COLUMNS, PARQUET = "candidates.safetensors", "candidates.parquet"


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    days = pd.Timestamp("2024-01-01", tz="Europe/Berlin") + pd.to_timedelta(
        rng.integers(0, 5000, n), unit="h"
    )
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "town": rng.choice(["Rome", "Oslo", None], n),
            "size": pd.Categorical(
                rng.choice(["S", "M", "L"], n), ["S", "M", "L", "XL"]
            ),
            "count": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "flag": rng.random(n) < 0.5,
            "day": days,
        }
    )


def numbers(X):
    return X["age"].fillna(0) * 3 + X["flag"] + 10


def fit(cls, y, X=None, **params):
    return cls(**{**SMALL, **params}).fit(table() if X is None else X, y)


@pytest.fixture(scope="module")
def regressor():
    return fit(TabRRegressor, numbers(table()))


@pytest.fixture(scope="module")
def models(regressor):
    y = numbers(table()).to_numpy()
    labels = np.digitize(y, [9, 11])
    return {
        "regressor": regressor,
        "two classes": fit(TabRClassifier, np.where(y > 10, "yes", "no")),
        "three classes": fit(TabRClassifier, labels.astype(np.int16), n_members=2),
        "embedding": fit(
            TabRRegressor, y, embedding="plr-lite", encoder_blocks=1, n_members=2
        ),
        "first step": fit(TabRClassifier, labels == 1, retrieval="step-1"),
        "mixed labels": fit(
            TabRClassifier, np.array([3, "b", True], dtype=object)[labels]
        ),
        "dates": fit(TabRClassifier, np.array(["2020", "2021"], "M8[s]")[labels % 2]),
        "numpy": fit(TabRRegressor, y, X=np.random.default_rng(0).normal(size=(60, 2))),
    }


NAMES = ["regressor", "two classes", "three classes", "embedding", "first step"]
NAMES += ["mixed labels", "dates", "numpy"]
each_model = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def valid(regressor, tmp_path_factory):
    """The bytes of a small valid file."""
    path = tmp_path_factory.mktemp("valid") / "model.tabr"
    save(regressor, path)
    return path.read_bytes()


def round_trip(model, tmp_path):
    path = tmp_path / "model.tabr"
    model.save(path)
    return type(model).load(path, device="cpu")


def outputs(model, X):
    predict = getattr(model, "predict_proba", model.predict)
    return predict(X)


def parts(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rebuilt(data, header=None, tensors=None, columns=None):
    """The file with changed members, all checksums right."""
    members = parts(data)
    about = json.loads(members[HEADER])
    arrays = safetensors.load(members[TENSORS])
    if tensors is not None:
        tensors(arrays)
    members[TENSORS] = safetensors.save(arrays)
    if columns is not None:
        members[COLUMNS] = columns(members[COLUMNS])
    about["sha256"] = {k: sha256(members[k]).hexdigest() for k in (TENSORS, COLUMNS)}
    if header is not None:
        about = header(about) or about
    members[HEADER] = json.dumps(about).encode()
    return zipped(members)


def zipped(members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def load_bytes(data, tmp_path, cls=TabRRegressor):
    path = tmp_path / "changed.tabr"
    path.write_bytes(data)
    return load(path, cls, "cpu")


def refused(data, tmp_path, match="cannot be read"):
    with pytest.raises(ModelFileError, match=match) as caught:
        load_bytes(data, tmp_path)
    message = str(caught.value)
    assert "changed.tabr cannot be read as a model: " in message
    assert "; " in message and "\n" not in message
    return message


# --- what comes back ----------------------------------------------------------


@each_model
def test_a_loaded_model_predicts_the_same_bits(models, name, tmp_path):
    model = models[name]
    loaded = round_trip(model, tmp_path)
    X = table(40, seed=1)
    X.loc[0, ["age", "town"]] = np.nan
    X.loc[1, "town"] = "unseen"
    X = np.random.default_rng(1).normal(size=(40, 2)) if name == "numpy" else X
    np.testing.assert_array_equal(outputs(loaded, X), outputs(model, X))
    for ours, theirs in zip(loaded.neighbors(X), model.neighbors(X), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@each_model
def test_a_loaded_model_knows_what_the_fitted_one_knew(models, name, tmp_path):
    model = models[name]
    loaded = round_trip(model, tmp_path)
    assert loaded.get_params() == model.get_params()
    pd.testing.assert_frame_equal(loaded.history_, model.history_)
    assert loaded.best_epoch_ == model.best_epoch_
    assert [m.history for m in loaded.members_] == [m.history for m in model.members_]
    assert loaded.n_features_in_ == model.n_features_in_
    assert hasattr(loaded, "feature_names_in_") == (name != "numpy")
    if name != "numpy":
        assert loaded.feature_names_in_.dtype == object
        assert list(loaded.feature_names_in_) == list(model.feature_names_in_)
    if isinstance(model, TabRClassifier):
        assert loaded.classes_.dtype == model.classes_.dtype
        assert loaded.classes_.tolist() == model.classes_.tolist()
        kinds = [list(map(type, m.classes_)) for m in (loaded, model)]
        assert kinds[0] == kinds[1]
    ours, theirs = loaded.candidates_, model.candidates_
    np.testing.assert_array_equal(ours.ids, theirs.ids)
    assert ours.y.dtype == theirs.y.dtype
    np.testing.assert_array_equal(ours.y, theirs.y)
    pd.testing.assert_frame_equal(ours.frame, theirs.frame)
    ids = ours.ids[[3, 1]]
    pd.testing.assert_frame_equal(ours.look_up(ids), theirs.look_up(ids))


def test_a_loaded_model_can_be_saved_and_fitted_again(regressor, tmp_path, valid):
    loaded = load_bytes(valid, tmp_path)
    loaded.save(tmp_path / "again.tabr")
    assert (tmp_path / "again.tabr").read_bytes() == valid
    X = table()
    loaded.fit(X, numbers(X))
    np.testing.assert_array_equal(loaded.predict(X), regressor.predict(X))


def test_loading_leaves_the_random_state_alone(valid, tmp_path):
    before = torch.random.get_rng_state()
    load_bytes(valid, tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_loading_does_not_depend_on_the_default_dtype(valid, tmp_path, regressor):
    torch.set_default_dtype(torch.float64)
    try:
        loaded = load_bytes(valid, tmp_path)
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_array_equal(loaded.predict(table()), regressor.predict(table()))


def test_the_device_is_the_one_given_to_load(regressor, tmp_path):
    path = tmp_path / "model.tabr"
    save(regressor, path)
    assert "device" not in json.loads(parts(path.read_bytes())[HEADER])["params"]
    assert load(path, TabRRegressor, "cpu").device == "cpu"
    assert load(path, TabRRegressor).device is None
    with pytest.raises(ValueError, match="device must be one") as caught:
        load(path, TabRRegressor, "abacus")
    assert not isinstance(caught.value, ModelFileError)


def test_the_command_line_loads_whichever_model_the_file_holds(models, tmp_path):
    for name in ("regressor", "two classes"):
        models[name].save(tmp_path / "model.tabr")
        loaded = load_any(str(tmp_path / "model.tabr"), CLASSES, "cpu")
        assert type(loaded) is type(models[name])


def test_parameters_of_every_type_come_back(regressor, tmp_path):
    model = copy.copy(regressor)
    params = {
        "embedding": EmbeddingConfig("plr", frequency_scale=0.1),
        "retrieval": RetrievalConfig("dot", value=("row",)),
        "column_kinds": {"type": "numeric", 3: "date"},
        "dropout": np.float64(0.25),
        "patience": np.int64(3),
        "scoring": "r2",
        "time_limit": 1e9,
        "verbose": True,
    }
    model.set_params(**params)
    loaded = round_trip(model, tmp_path)
    assert {name: getattr(loaded, name) for name in params} == params
    assert loaded.retrieval.value == ("row",)
    assert loaded.normalization is None


def test_what_json_cannot_hold_is_stored_as_none_with_a_word(regressor, tmp_path):
    model = copy.copy(regressor)
    model.set_params(scoring=lambda model, X, y: 0.0)
    with pytest.warns(UserWarning, match="^scoring cannot be stored.*after loading$"):
        model.save(tmp_path / "model.tabr")
    assert TabRRegressor.load(tmp_path / "model.tabr").scoring is None


def test_a_random_state_object_is_not_stored(regressor, tmp_path, recwarn):
    model = copy.copy(regressor)
    model.set_params(random_state=np.random.RandomState(0))
    assert round_trip(model, tmp_path).random_state is None
    assert not recwarn.list


def odd_columns():
    utc, zone = datetime.UTC, datetime.timezone(datetime.timedelta(hours=2))
    noon = datetime.datetime(2024, 5, 1, 12)
    return {
        "text": pd.Series(["b", None, "a", "ä"]),
        "text object": pd.Series(["b", None, "a", "ä"], dtype=object),
        "string": pd.Series(["b", None, "a", ""], dtype="string"),
        "category": pd.Series(pd.Categorical(["b", "a", None, "b"], ["b", "z", "a"])),
        "ordered": pd.Series(pd.Categorical([3, 1, None, 3], [3, 2, 1], ordered=True)),
        "flags as category": pd.Series(pd.Categorical([True, False, None, True])),
        "nullable integers": pd.Series([2**62 + 1, None, 3, 4], dtype="Int64"),
        "nullable flags": pd.Series([True, None, False, True], dtype="boolean"),
        "arrow": pd.Series([1, None, 3, 4], dtype="int64[pyarrow]"),
        "flags": pd.Series([True, False, False, True]),
        "float32": pd.Series([1.5, np.nan, 0.1, 4], dtype="float32"),
        "uint64": pd.Series([1, 2, 3, 2**64 - 1], dtype="uint64"),
        "times": pd.Series(pd.to_datetime([1, None, 3, 4], unit="ns")),
        "zone": pd.Series(
            pd.to_datetime([1, None, 3, 4], unit="D", utc=True)
        ).dt.tz_convert("Asia/Tokyo"),
        "timedeltas": pd.Series(pd.to_timedelta([1, None, 3, 4], unit="s")),
        "integers": pd.Series([1, None, 2**60 + 1, 4], dtype=object),
        "dates": pd.Series([noon.date(), None] * 2, dtype=object),
        "aware": pd.Series([noon.replace(tzinfo=utc), None] * 2, dtype=object),
        "bytes": pd.Series([b"b", None, b"a", b""], dtype=object),
        "nothing": pd.Series([None] * 4, dtype=object),
        # These are stored as the model reads them.
        "mixed": pd.Series([1, "a", None, 2.0], dtype=object),
        "mixed category": pd.Series(pd.Categorical([1, "a", None, 2.0])),
        "intervals": pd.cut(pd.Series([1, 2, None, 4]), [0, 2, 5]),
        "periods": pd.Series(pd.period_range("2024-01", periods=4, freq="M")),
        "sparse": pd.Series(pd.arrays.SparseArray([0.0, 1.0, 0.0, 2.0])),
        "huge": pd.Series([2**100, 1, None, True], dtype=object),
        "zones": pd.Series(
            [noon, None, noon.replace(tzinfo=zone), noon.date()], dtype=object
        ),
        # Nobody reads these.
        "broken text": pd.Series(["\ud800", "a", "a", "a"], dtype=object),
        "lists": pd.Series([[1], [2, 3], None, "a"], dtype=object),
    }


FIVEFOLD = np.repeat(np.arange(4), 5)
AS_READ = {
    "mixed": pd.Series(["1", "a", None, "2"]),
    "mixed category": pd.Series(pd.Categorical(["1", "a", None, "2"])),
    "intervals": pd.Series(
        pd.Categorical(["(0, 2]", "(0, 2]", None, "(2, 5]"], ordered=True)
    ),
    "periods": pd.Series(
        np.array(["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"], "M8[us]")
    ),
    "sparse": pd.Series([0.0, 1.0, 0.0, 2.0]),
    "huge": pd.Series([2.0**100, 1, None, 1]),
    "zones": pd.Series(
        np.array(
            ["2024-05-01T12", "NaT", "2024-05-01T10", "2024-05-01"], dtype="M8[us]"
        )
    ),
    "broken text": pd.Series(["?", "a", "a", "a"]),
    "lists": pd.Series(["[1]", "[2, 3]", None, "a"]),
}


def test_columns_of_every_type_come_back(tmp_path):
    columns = {name: column.take(FIVEFOLD) for name, column in odd_columns().items()}
    columns["ä 0.a`\n"] = columns["text"]
    X = pd.DataFrame(columns).reset_index(drop=True)
    y = np.arange(len(X), dtype=float)
    model = fit(TabRRegressor, y, X=X, max_epochs=1, ignore=["broken text", "lists"])
    loaded = round_trip(model, tmp_path)
    assert list(loaded.candidates_.frame) == list(X)
    odd_name = "ä 0.a`\n"
    for name in X:
        expected = model.candidates_.frame[name]
        if name in AS_READ:
            everything = AS_READ[name].take(FIVEFOLD).reset_index(drop=True)
            expected = everything[model.candidates_.ids].reset_index(drop=True)
            expected = expected.rename(name)
        found = loaded.candidates_.frame[name]
        loose = {"check_dtype": name not in AS_READ, "check_categorical": False}
        pd.testing.assert_series_equal(found, expected, **loose)
        if name in ("category", "ordered", "flags as category"):
            assert found.dtype == expected.dtype
    assert odd_name in loaded.feature_names_in_
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    again = loaded.candidates_.frame
    np.testing.assert_array_equal(loaded.predict(again), model.predict(again))


# --- writing ------------------------------------------------------------------


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        TabRRegressor().save(tmp_path / "model.tabr")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("where", ["writestr", "fsync", "replace"])
def test_a_failed_save_leaves_the_old_file_alone(
    regressor, tmp_path, monkeypatch, where
):
    path = tmp_path / "model.tabr"
    path.write_bytes(b"old")

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile if where == "writestr" else os, where, full)
    with pytest.raises(OSError, match="No space left"):
        regressor.save(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_said_to_be_missing(regressor, tmp_path):
    with pytest.raises(FileNotFoundError):
        regressor.save(tmp_path / "nowhere" / "model.tabr")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_stays_as_it_is(regressor, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        regressor.save(tmp_path / "model.tabr")
    tmp_path.chmod(0o700)
    assert not list(tmp_path.iterdir())


def test_saving_replaces_the_file_behind_a_link(regressor, tmp_path, valid):
    (tmp_path / "target.tabr").write_bytes(b"old")
    (tmp_path / "link.tabr").symlink_to("target.tabr")
    regressor.save(tmp_path / "link.tabr")
    assert (tmp_path / "link.tabr").is_symlink()
    assert (tmp_path / "target.tabr").read_bytes() == valid


def test_the_file_has_the_usual_permissions(regressor, tmp_path):
    regressor.save(tmp_path / "model.tabr")
    (tmp_path / "other").touch()
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_the_file_is_a_plain_archive_without_pickles(valid):
    with zipfile.ZipFile(io.BytesIO(valid)) as archive:
        assert archive.namelist() == [HEADER, TENSORS, COLUMNS]
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_STORED}
    arrays = safetensors.load(parts(valid)[COLUMNS])
    np.testing.assert_array_equal(np.sort(arrays["0.values"]), np.sort(table()["age"]))


# --- files that are no models -------------------------------------------------


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.tabr", TabRRegressor)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="it is a folder"):
        load(tmp_path, TabRRegressor)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "it is empty"),
        (np.random.default_rng(0).bytes(5000), "no ZIP archive"),
        (b"PK\x03\x04" + np.random.default_rng(0).bytes(5000), "cut off"),
        (b"{}", "no ZIP archive"),
        (pickle.dumps({"a": 1}), "pickle"),
        (zipped({"a.txt": b"a"}), "something else"),
        (zipped({}), "no ZIP archive"),
        (
            zipped({"../../model.json": b"", TENSORS: b"", COLUMNS: b""}),
            "something else",
        ),
        (zipped({HEADER: b"", TENSORS: b"", COLUMNS: b""}), "damaged"),
        (zipped({HEADER: b"[]", TENSORS: b"", COLUMNS: b""}), "damaged"),
        (zipped({HEADER: b"[" * 10**5, TENSORS: b"", COLUMNS: b""}), "damaged"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path, data, match):
    refused(data, tmp_path, match)


def test_a_pickle_is_not_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    refused(pickle.dumps(Trap()), tmp_path, "pickle")
    members = {HEADER: pickle.dumps(Trap()), TENSORS: pickle.dumps(Trap())}
    refused(zipped({**members, COLUMNS: pickle.dumps(Trap())}), tmp_path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.9999])
def test_a_cut_file_is_refused(valid, tmp_path, share):
    refused(valid[: int(len(valid) * share) + 1], tmp_path)


def test_a_newer_format_asks_for_a_newer_library(valid, tmp_path):
    def newer(about):
        about |= {"format": 4, "tabr": "9.1.0", "params": None}

    message = refused(rebuilt(valid, newer), tmp_path, "its format is 4")
    assert message.endswith("install tabr 9.1.0 or later")


def test_a_new_parameter_asks_for_a_newer_library(valid, tmp_path):
    data = rebuilt(valid, lambda about: about["params"].update(novelty=1))
    message = refused(data, tmp_path, r"parameters beyond tabr .*: \['novelty'\]")
    assert message.endswith("or later")


def test_an_old_parameter_may_be_missing(valid, tmp_path):
    data = rebuilt(valid, lambda about: about["params"].pop("patience") and None)
    assert load_bytes(data, tmp_path).patience is None  # what the preset has


def test_the_class_must_be_the_file_s_own(valid, tmp_path):
    match = "holds a TabRRegressor, however TabRClassifier came; load it as TabRReg"
    with pytest.raises(ModelFileError, match=match):
        load_bytes(valid, tmp_path, TabRClassifier)


def test_a_file_that_lies_about_its_class_is_refused(valid, tmp_path):
    data = rebuilt(valid, lambda about: about.update(estimator="TabRClassifier"))
    with pytest.raises(ModelFileError):
        load_bytes(data, tmp_path, TabRClassifier)


def test_a_checksum_must_be_right(valid, tmp_path):
    def wrong(about):
        about["sha256"][COLUMNS] = "0" * 64

    refused(rebuilt(valid, wrong), tmp_path, "checksum of its candidates.safetensors")


WRONG_VALUES = [None, True, -1, 10**30, 0.5, "a", [], {}, [None], {"a": 1}, [[]]]


def paths_of(value, path=()):
    """All places in the header, one for each kind of list."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:1])
    for key, part in items:
        if isinstance(part, dict | list):
            yield from paths_of(part, (*path, key))
        else:
            yield (*path, key)


def test_a_header_with_wrong_types_is_refused_or_harmless(valid, tmp_path, regressor):
    about = json.loads(parts(valid)[HEADER])
    X = table(5, seed=1)
    rng = np.random.default_rng(0)
    n_refused = 0
    for path in list(paths_of(about))[1:]:
        for value in rng.permutation(np.array([*WRONG_VALUES, 0], object))[:3]:
            changed = copy.deepcopy(about)
            place = changed
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            try:
                loaded = load_bytes(rebuilt(valid, lambda _, c=changed: c), tmp_path)
            except ModelFileError:
                n_refused += 1
            else:
                assert loaded.predict(X).shape == (5,), (path, value)
    assert n_refused > 100


def test_a_header_without_one_of_its_fields_is_refused(valid, tmp_path):
    for name in json.loads(parts(valid)[HEADER]).keys() - {"context_size"}:
        refused(
            rebuilt(valid, lambda about, name=name: about.pop(name) and None), tmp_path
        )


def change(name, function):
    def apply(arrays):
        arrays[name] = function(arrays[name])

    return apply


@pytest.mark.parametrize(
    "tensors",
    [
        change("members.0.linear.weight", lambda a: a[:, :-1].copy()),
        change("members.0.linear.weight", lambda a: a.T.copy()),
        change("members.0.linear.bias", lambda a: a.astype(np.float64)),
        change("members.0.linear.bias", lambda a: a.astype(np.int8)),
        change("candidates.num", lambda a: a[:-1].copy()),
        change("candidates.num", lambda a: a.astype(np.float16)),
        change("candidates.cat", lambda a: a.astype(np.int32)),
        change("candidates.labels", lambda a: a.astype(np.int64)),
        change("candidates.ids", lambda a: np.zeros_like(a)),
        change("candidates.ids", lambda a: np.array(a[0])),
        change("candidates.y", lambda a: a[:, None].copy()),
        change("preprocessor.quantiles", lambda a: a[:, :1].copy()),
        lambda arrays: arrays.pop("members.0.linear.bias"),
        lambda arrays: arrays.pop("candidates.y"),
        lambda arrays: arrays.pop("preprocessor.location"),
        lambda arrays: arrays.update({"members.0.more": np.zeros(1)}),
        lambda arrays: arrays.clear(),
    ],
)
def test_tensors_must_fit_the_header(valid, tmp_path, tensors):
    refused(rebuilt(valid, tensors=tensors), tmp_path)


def test_labels_must_be_classes(models, tmp_path):
    models["three classes"].save(tmp_path / "model.tabr")
    data = (tmp_path / "model.tabr").read_bytes()
    for number in (-1, 3):
        changed = rebuilt(
            data, tensors=change("candidates.labels", lambda a, n=number: a * 0 + n)
        )
        with pytest.raises(ModelFileError, match="labels are no classes"):
            load_bytes(changed, tmp_path, TabRClassifier)


def arrays_of(function):
    """A change of the columns' arrays."""

    def apply(data):
        arrays = safetensors.load(data)
        function(arrays)
        return safetensors.save(arrays)

    return apply


@pytest.mark.parametrize(
    "columns",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: safetensors.save({}),
        arrays_of(lambda arrays: arrays.pop("0.values")),
        arrays_of(lambda arrays: arrays.update(more=np.zeros(1))),
        arrays_of(change("0.values", lambda a: a[:-1].copy())),
        arrays_of(change("0.values", lambda a: a.astype(np.float32))),
        arrays_of(change("0.values", lambda a: a[:, None].copy())),
        arrays_of(change("1.codes", lambda a: a + 100)),
        arrays_of(change("1.codes", lambda a: a - 2)),
        arrays_of(change("1.codes", lambda a: a.astype(np.float32))),
        arrays_of(change("1.levels.offsets", lambda a: a[::-1].copy())),
        arrays_of(change("1.levels.offsets", lambda a: a + 2**40)),
        arrays_of(change("1.levels.offsets", lambda a: a[:0].copy())),
        arrays_of(change("1.levels.bytes", lambda a: a * 0 + 0xFF)),  # no UTF-8
        arrays_of(change("2.codes", lambda a: a + 100)),
        arrays_of(change("3.values", lambda a: a[:-1].copy())),
    ],
)
def test_columns_must_fit_the_header(valid, tmp_path, columns):
    refused(rebuilt(valid, columns=columns), tmp_path)


# --- sizes that are not there -------------------------------------------------


def test_a_member_cannot_claim_more_than_the_file_has(valid, tmp_path):
    place = valid.rindex(b"PK\x01\x02")  # the last entry of the directory
    huge = bytearray(valid)
    struct.pack_into("<II", huge, place + 20, 2**31, 2**31)
    refused(bytes(huge), tmp_path, "claims 2147483648 bytes")


def test_compressed_members_are_refused(valid, tmp_path):
    members = {HEADER: b" " * 10**7, TENSORS: b"", COLUMNS: b""}
    refused(zipped(members, zipfile.ZIP_DEFLATED), tmp_path, "claims 10000000 bytes")


@pytest.mark.parametrize("shape", [[10**12], [2**62, 4], [10**12, 0], [-1]])
def test_tensors_cannot_claim_more_than_the_file_has(valid, tmp_path, shape):
    members = parts(valid)
    length = int.from_bytes(members[TENSORS][:8], "little")
    about = json.loads(members[TENSORS][8 : 8 + length])
    about["members.0.linear.bias"]["shape"] = shape
    text = json.dumps(about).encode()
    tensors = len(text).to_bytes(8, "little") + text + members[TENSORS][8 + length :]
    header = json.loads(members[HEADER])
    header["sha256"][TENSORS] = sha256(tensors).hexdigest()
    members |= {TENSORS: tensors, HEADER: json.dumps(header).encode()}
    refused(zipped(members), tmp_path)


@pytest.mark.parametrize(
    "network",
    [
        {"width": 10**9},
        {"width": 10**18},
        {"hidden_factor": 1e9},
        {"encoder_blocks": 10**9},
        {"predictor_blocks": 10**9},
        {"embedding": {"width": 10**9}},
        {"embedding": {"kind": "plr", "n_frequencies": 10**9}},
        {"embedding": {"kind": "pbld", "width": 10**9}},
        {"embedding": {"kind": "pbld-fixed", "n_frequencies": 10**9}},
        {"embedding": {"kind": "bins", "width": 10**9}},
        {"n_heads": 10**9},
        {"width": "8"},
        {"width": 8.0},
        {"unknown": 1},
        {"retrieval": {"value": ["row", "label"]}},
    ],
)
def test_a_network_is_no_larger_than_its_weights(valid, tmp_path, network):
    def lie(about):
        about["members"][0]["network"] |= network

    refused(rebuilt(valid, lie), tmp_path)


@pytest.mark.parametrize("count", [10**12, 10**30, -5, 0, "3", 2.0])
def test_a_column_has_no_more_levels_than_its_weights(valid, tmp_path, count):
    def lie(about):
        for column in about["preprocessor"]["columns"]:
            if column["type"] == "Categorical":
                column["n_levels"] = count

    refused(rebuilt(valid, lie), tmp_path)


@pytest.mark.parametrize(
    "dtype", ["<U1000000000", "V1000000000", "f8,f8", "S9", 3, None]
)
def test_classes_take_no_more_memory_than_classes_may(models, tmp_path, dtype):
    models["two classes"].save(tmp_path / "model.tabr")
    data = (tmp_path / "model.tabr").read_bytes()
    with pytest.raises(ModelFileError):
        load_bytes(
            rebuilt(data, lambda about: about["target"].update(dtype=dtype)),
            tmp_path,
            TabRClassifier,
        )


def in_columns(about, **values):
    """Give every column of the preprocessor that has such fields other ones."""
    for column in about["preprocessor"]["columns"]:
        column |= {k: v for k, v in values.items() if k in column}


def rule_of_pairs(n):
    """A short rule of n pairs, which normal form makes 2 ** n groups of."""
    leaf = {"rule": "SameGroup", "column": "town"}
    rule = leaf
    for _ in range(n):
        pair = {"rule": "Joined", "by": "&", "parts": [leaf, leaf]}
        rule = {"rule": "Joined", "by": "|", "parts": [rule, pair]}
    return {"type": "rule", "values": rule}


WIDE = {"width": 10**9, "n_frequencies": 10**9, "frequency_scale": 1.0}


@pytest.mark.parametrize(
    "header",
    [
        lambda about: in_columns(about, fill=[0.5] * 1000),
        lambda about: in_columns(about, fill=float("nan")),
        lambda about: in_columns(about, indicator=10**6),
        lambda about: in_columns(about, codes=[10**9] * 3),
        lambda about: in_columns(about, missing=7),
        lambda about: in_columns(about, cycles=["day"] * 1000),
        lambda about: in_columns(about, low=1.0, high=1.0),
        lambda about: about["preprocessor"].update(n_num=10**9),
        lambda about: about["preprocessor"]["columns"].extend(
            about["preprocessor"]["columns"][:1] * 1000
        ),
        lambda about: about["members"][0]["network"].update(
            row_embedding={"kind": "bins", **WIDE}
        ),
        lambda about: about["members"][0]["network"].update(
            row_embedding={"kind": "pbld-fixed", **WIDE}
        ),
        lambda about: about["params"].update(candidates=rule_of_pairs(40)),
        lambda about: about.update(next_id=2**63),
        lambda about: about.update(context_size=10**30),
        lambda about: about.update(columns=[]),
        lambda about: about["target"].update(mean=float("inf")),
        lambda about: about["target"].update(std=-1.0),
    ],
)
def test_header_cannot_ask_for_more_than_it_holds(valid, tmp_path, header):
    refused(rebuilt(valid, lambda about: header(about) and None), tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name",
    [
        "members.0.linear.weight",
        "candidates.num",
        "candidates.bin",
        "candidates.labels",
        "candidates.y",
        "calibration.scores",
        "calibration.spread",
        "preprocessor.quantiles",
        "preprocessor.scale",
    ],
)
def test_numbers_must_be_finite(valid, tmp_path, name, value):
    def spoil(array):
        array = array.copy()
        array.reshape(-1)[-1] = value
        return array

    refused(rebuilt(valid, tensors=change(name, spoil)), tmp_path, "is not finite")


def test_a_distance_may_be_infinite_but_no_other_way(valid, tmp_path):
    """Rows that no rule lets have a neighbour are infinitely far."""
    name = "calibration.distances"
    far = change(name, lambda a: np.append(a[:-1], np.inf))
    load_bytes(rebuilt(valid, tensors=far), tmp_path)
    spoiled = change(name, lambda a: np.append(a[:-1], np.nan))
    refused(rebuilt(valid, tensors=spoiled), tmp_path, "distances is not finite")


def test_a_quantile_map_is_no_larger_than_one_that_fit_makes(valid, tmp_path):
    wide = change("preprocessor.quantiles", lambda a: np.zeros((5000, a.shape[1])))
    refused(rebuilt(valid, tensors=wide), tmp_path, "5000 quantiles")


def test_codes_must_be_levels(valid, tmp_path):
    for code in (-2, 100):
        other = change("candidates.cat", lambda a, c=code: a * 0 + c)
        refused(rebuilt(valid, tensors=other), tmp_path, "have no level")


def test_json_cannot_unfold(valid, tmp_path):
    members = parts(valid)
    empty = b'{"a": [' + b"{}," * 2 * 10**6 + b"1]}"
    refused(zipped({**members, HEADER: empty}), tmp_path, "unfolds to")
    digits = b'{"format": ' + b"9" * 10**6 + b"}"
    refused(zipped({**members, HEADER: digits}), tmp_path, "damaged")
    twice = members[HEADER][:-1] + b', "format": 3}'
    refused(zipped({**members, HEADER: twice}), tmp_path, "has a name twice")


def test_a_directory_has_three_members(valid, tmp_path):
    items = list(parts(valid).items())
    more = {**dict(items), **{f"{k}": b"" for k in range(5000)}}
    refused(zipped(more), tmp_path, "cut off or damaged")
    refused(zipped({**dict(items), "more": b""}), tmp_path, "something else")
    # A directory in the midst of a tensor, of which the end of the file speaks.
    place = valid.rindex(b"PK\x05\x06")
    moved = bytearray(valid)
    struct.pack_into("<I", moved, place + 12, place - 100)
    struct.pack_into("<I", moved, place + 16, 100)
    refused(bytes(moved), tmp_path, "cut off or damaged")


def test_a_tensor_file_has_few_and_short_names(valid, tmp_path):
    about = {f"members.0.{k}": np.zeros(0, "f4") for k in range(1 << 16)}
    many = rebuilt(valid, tensors=lambda arrays: arrays.update(about))
    refused(many, tmp_path, "tensors, beyond")
    shape = {"a": {"dtype": "F32", "shape": [1] * 10**5, "data_offsets": [0, 4]}}
    text = json.dumps(shape).encode()
    long = rebuilt(valid, columns=lambda _: len(text).to_bytes(8, "little") + text)
    refused(long, tmp_path, "oddly named")


# --- damage at random ---------------------------------------------------------

damage = st.one_of(
    st.tuples(st.just("flip"), st.floats(0, 1, exclude_max=True), st.integers(1, 255)),
    st.tuples(st.just("cut"), st.floats(0, 1, exclude_max=True), st.integers(1, 3000)),
    st.tuples(st.just("end"), st.floats(0, 1, exclude_max=True), st.integers(1, 255)),
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(damage, min_size=1, max_size=3))
def test_a_damaged_file_is_refused_or_predicts_the_same(
    valid, regressor, tmp_path, damages
):
    data = bytearray(valid)
    for kind, share, number in damages:
        place = int(share * len(data))
        if kind == "cut":
            del data[place : place + number]
        else:
            if kind == "end":  # the directory of the archive is small and matters
                place = len(data) - 1 - int(share * min(len(data), 300))
            data[place] ^= number
        if not data:
            break
    try:
        loaded = load_bytes(bytes(data), tmp_path)
    except ModelFileError:
        return
    X = table(5, seed=1)
    np.testing.assert_array_equal(loaded.predict(X), regressor.predict(X))


def test_means_of_levels_and_waves_of_dates_come_back(tmp_path):
    rng = np.random.default_rng(0)
    hours = pd.date_range("2024-01-01", periods=600, freq="19h")
    shops = [f"s{k}" for k in rng.integers(0, 400, 600)]
    X = pd.DataFrame({"shop": shops, "at": hours})
    model = fit(TabRClassifier, rng.integers(0, 3, 600), X)
    assert model.preprocessor_.n_num == 2 * (3 + 1)
    model.save(tmp_path / "m.tabr")
    loaded = TabRClassifier.load(tmp_path / "m.tabr", device="cpu")
    later = pd.DataFrame({"shop": ["s1", "new", None], "at": hours[:3]})
    for again in (model, loaded):
        again.add_candidates(later, [0, 1, 2])
    expected = model.predict_proba(later)
    np.testing.assert_array_equal(loaded.predict_proba(later), expected)
    for row in range(3):
        one = loaded.predict_proba(later.iloc[[row]])
        np.testing.assert_allclose(one, expected[[row]], atol=1e-9)


# --- signatures -----------------------------------------------------------------


@pytest.fixture
def signed(regressor, tmp_path):
    """A signed model, and the files of its keys."""
    pytest.importorskip("cryptography")
    path, key = tmp_path / "signed.tabr", tmp_path / "mine.key"
    regressor.save(path)
    public = make_keys(key)
    assert sign(path, key) == tmp_path / "signed.tabr.sig"
    return path, key, public


def test_a_signed_model_loads_with_its_key(signed, regressor):
    path, _, public = signed
    for key in (public, str(public), public.read_bytes()):
        for read in (TabRRegressor.load, load_model):
            loaded = read(path, device="cpu", key=key)
            np.testing.assert_array_equal(
                loaded.predict(table(5)), regressor.predict(table(5))
            )


def test_a_private_key_is_its_owners_alone_and_never_replaced(signed):
    _, key, public = signed
    assert key.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" in key.read_bytes() and b"PRIVATE" not in public.read_bytes()
    before = key.read_bytes()
    with pytest.raises(FileExistsError):
        make_keys(key)
    assert key.read_bytes() == before


@pytest.mark.parametrize("place", [0, 100, -1])
def test_nothing_of_a_changed_file_is_read(signed, monkeypatch, place):
    path, _, public = signed
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    monkeypatch.setattr("tabr.storage._read", lambda *args: pytest.fail("it was read"))
    with pytest.raises(ModelFileError, match="not of this file by this key; get both"):
        load_model(path, key=public)


def test_a_missing_or_foreign_signature_is_refused(signed, tmp_path):
    path, key, public = signed
    signature = tmp_path / "signed.tabr.sig"
    other = tmp_path / "other.key"
    others = make_keys(other)
    with pytest.raises(ModelFileError, match="not of this file by this key"):
        load_model(path, key=others)
    for content in (b"", signature.read_bytes()[:-1], signature.read_bytes() + b"0"):
        signature.write_bytes(content)
        with pytest.raises(ModelFileError, match="not of this file by this key"):
            load_model(path, key=public)
    signature.unlink()
    with pytest.raises(ModelFileError, match=r"signed.tabr.sig is missing; sign it"):
        load_model(path, key=public)
    sign(path, key)
    load_model(path, key=public, device="cpu")


def test_what_is_no_key_is_refused_in_words(signed):
    path, key, public = signed
    for wrong in (key, path, b"", public.read_bytes()[:40]):
        with pytest.raises(ParameterError, match="key must be a public key"):
            load_model(path, key=wrong)
    with pytest.raises(ParameterError, match="signed with a private key"):
        sign(path, public)


# --- files that 0.1.0 wrote -----------------------------------------------------

OLD = Path(__file__).parent / "data" / "models-0.1.0"
SAID = json.loads((OLD / "expected.json").read_text("utf-8"))


def rows_of(model, ids) -> list[int]:
    """Return the distinct rows that neighbours are, as sorted numbers.

    The first version chose among copies by how their scores were rounded.
    """
    frame = model.candidates_.frame
    rows = frame.groupby(list(frame.columns), dropna=False, sort=False).ngroup()
    somebody = np.asarray(ids)[np.asarray(ids) >= 0]
    return np.sort(rows.to_numpy()[model.candidates_.positions(somebody)]).tolist()


@pytest.mark.parametrize("name", SAID)
def test_a_file_of_the_first_version_predicts_what_it_predicted(name: str):
    rows = pd.read_json(OLD / "rows.json", orient="table")
    said, says = SAID[name], nullcontext()
    if name == "numbers-embedded":  # was saved with recall_target=0.9
        says = pytest.warns(UserWarning, match="recall_target was set .* are exact")
    with says:
        model = load_model(OLD / f"{name}.tabr", device="cpu")
    assert len(model.candidates_) == said["n_candidates"]
    assert model.target_name_ == said["target_name"]
    table = model.neighbors(rows)
    for ids, then in zip(table.ids, said["ids"], strict=True):
        assert rows_of(model, ids) == rows_of(model, then)
    np.testing.assert_allclose(table.weights, said["weights"], rtol=1e-5, atol=1e-7)
    if isinstance(model, TabRClassifier):
        assert model.predict(rows).tolist() == said["predictions"]
        proba = model.predict_proba(rows)
        np.testing.assert_allclose(proba, said["probabilities"], rtol=1e-5)
        assert model.predict_set(rows, 0.5).tolist() == said["sets"]
    else:
        np.testing.assert_allclose(model.predict(rows), said["predictions"], rtol=1e-5)
        ends = model.predict_interval(rows, 0.5)
        np.testing.assert_allclose(ends, said["intervals"], rtol=1e-5)


def test_an_old_span_without_a_unit_counts_nanoseconds_as_it_did(tmp_path):
    data = (OLD / "classes-rules-members.tabr").read_bytes()
    rows = pd.read_json(OLD / "rows.json", orient="table")
    tables = []
    for number, (window, gap) in enumerate([(300.0, 1.0), ("300ns", "1ns")]):

        def change(header, window=window, gap=gap):
            first, _ = header["params"]["candidates"]["values"]["parts"]
            first |= {"window": window, "gap": gap}

        path = tmp_path / f"{number}.tabr"
        path.write_bytes(rebuilt_old(data, change))
        says = nullcontext()
        if number == 0:
            says = pytest.warns(UserWarning, match="'300D' .* it counts nanoseconds")
        with says:
            tables.append(load_model(path, device="cpu").neighbors(rows))
    for first, second in zip(*tables, strict=True):
        np.testing.assert_array_equal(first, second)


def rebuilt_old(data: bytes, change) -> bytes:
    """Return a file of an earlier version with a changed header."""
    members = parts(data)
    header = json.loads(members[HEADER])
    change(header)
    return zipped({**members, HEADER: json.dumps(header)})


# --- candidates that are added: all that is accepted can be kept ---------------

DAY = pd.Timestamp("2024-05-31")
ODD_CELLS = [
    *(None, np.nan, pd.NaT, pd.NA, "", "a\0b", "a\0", "\ud800", "x" * 50_000, "3"),
    *(10**400, 2**64, -(2**70), 2**53 + 1, np.inf, -0.0, 5e-324, 1.7e308, True),
    *(Decimal("1.5"), Decimal("NaN"), Decimal("Infinity"), Decimal("1e400"), 1j),
    *(b"a\xff", [1, 2], (1, [2]), {"a": 1}, {1}, object(), np.float32(0.1)),
    *(DAY, DAY.tz_localize("Asia/Tokyo"), DAY.date(), "2024-05-31", "9999-12-31"),
    *(pd.Timestamp("9999-12-31"), datetime.date(1, 1, 1), pd.Period("2024-05-31")),
    *(np.datetime64("20000-01-01"), pd.Interval(0, 1), datetime.time(3)),
    datetime.datetime.fromisoformat("9999-12-31T23:59-05:00"),
    *(datetime.timedelta(1), datetime.timedelta(days=999_999_999)),
]


def plain_table(n):
    rng = np.random.default_rng(0)
    days = DAY - pd.to_timedelta(rng.integers(1, 90, n), unit="D")
    frame = pd.DataFrame({"number": rng.normal(size=n), "flag": rng.random(n) < 0.5})
    frame["town"] = rng.choice(["Rome", "Oslo", "Bonn"], n)
    frame["size"] = pd.Categorical(rng.choice(["S", "M"], n))
    frame["day"] = days.astype("datetime64[ns]")
    frame["zone"] = days.tz_localize("Europe/Berlin")
    frame["iso"], frame["date"] = days.strftime("%Y-%m-%d"), days.date
    frame["span"] = pd.to_timedelta(rng.integers(0, 90, n), unit="h")
    frame["price"] = [Decimal(int(k)) for k in rng.integers(0, 90, n)]
    return frame.assign(note="a", who=rng.choice(["p", "q"], n))


@pytest.fixture(scope="module")
def keeper():
    X = plain_table(40)
    rule = PastOnly("day") & NotSameGroup("who")
    how = {**SMALL, "max_epochs": 1, "n_members": 1, "ignore": ["note", "who"]}
    model = TabRRegressor(**how, candidates=rule)
    return model.fit(X, np.random.default_rng(0).normal(size=40))


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(plain_table(1).columns.tolist()),
    st.sampled_from(ODD_CELLS),
    st.booleans(),
    st.booleans(),
)
def test_a_row_that_is_accepted_can_be_kept(
    keeper, tmp_path_factory, column, value, beside_others, inferred
):
    rows, asked = plain_table(2), plain_table(9).tail(6)
    cells = rows[column].astype(object)
    cells.iat[1] = value
    rows = rows.assign(**{column: cells})
    if not beside_others:
        rows = rows.tail(1).reset_index(drop=True)
    if inferred:
        try:
            rows = rows.infer_objects()
        except (ValueError, OverflowError):  # by pandas
            return
    model, before = copy.copy(keeper), keeper.predict(asked)
    try:
        model.predict(rows)
        ids = model.add_candidates(rows, np.zeros(len(rows)))
    except TabrError as error:
        assert repr(column) in str(error)
        assert model.candidates_ is keeper.candidates_
        return
    assert np.array_equal(keeper.predict(asked), before)
    json.dumps(plain_rows(model.candidates_.look_up(ids)), ensure_ascii=False).encode()
    assert len(model.candidates_.frame) == len(model.candidates_)
    model.explain(rows).to_frame()
    loaded = round_trip(model, tmp_path_factory.mktemp("kept"))
    for table in (asked, rows):
        expected = model.predict(table)
        np.testing.assert_allclose(loaded.predict(table), expected, atol=1e-4)
    model.remove_candidates(ids)
    np.testing.assert_allclose(
        round_trip(model, tmp_path_factory.mktemp("kept")).predict(asked),
        before,
        atol=1e-4,
    )

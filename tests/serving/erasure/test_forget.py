"""A row that is forgotten is in no file any more, whenever the process was killed."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from tabr import TabRClassifier, TabRRegressor, cli
from tabr.errors import DataError, UnknownIdError
from tabr.serving.backup import default_store, identity_of
from tabr.serving.erasure.forget import Proof, forget
from tabr.serving.erasure.traces import Value, in_bytes
from tabr.serving.messages import Row
from tabr.serving.served_model import ServedModel
from tabr.serving.store.changes import KeyReused, is_file
from tabr.serving.store.connection import Forgotten, StoreError

from ..conftest import SMALL, Begin, houses
from ..work import finish, forget_and_die, start

IDS = [2, 5, 120]  # one of fit, one that is removed already, one that a client added
STEPS = (
    "claimed",
    "begun",
    "kept",
    "overwriting",
    "overwritten",
    "deleted",
    "drafted",
    "written",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a model with owners, and of its store: rows are in every file."""
    folder = tmp_path_factory.mktemp("owners")
    path = folder / "houses.tabr"
    X, y = houses()
    owners = [f"Owner of house {k:03}" for k in range(len(X))]
    X["owner"], X["agent"] = pd.Categorical(owners), owners
    TabRRegressor(**SMALL, device="cpu").fit(X, y).save(path)
    served = ServedModel(path, default_store(path), "cpu")
    _use(served)
    served.close()
    assert path.with_name("houses-1.tabr").exists()
    return folder


@pytest.fixture
def owned(folder: Path, tmp_path: Path) -> Path:
    """A model file beside its store, in a folder of its own."""
    shutil.copytree(folder, tmp_path / "own")
    return tmp_path / "own" / "houses.tabr"


def _people(served: ServedModel) -> list[Row]:
    rows = served.schema.to_rows(houses(4, seed=9)[0])
    for k, row in enumerate(rows):
        row["owner"] = row["agent"] = f'Straße "{k}" of somebody'
    return rows


def _use(served: ServedModel) -> None:
    rows = _people(served)
    served.add(rows[:2], [3210.125, 4000.0], key="added")
    served.compact()
    served.relabel([2], [8765.4321], key="relabelled", who="bob")
    served.remove([5])
    served.add(rows[2:], [5000.0, 6000.0])


def _left(path: Path, values: list[Value]) -> list[str]:
    """Return where in the folder of a model values are, by plain search."""
    files = [file for file in path.parent.rglob("*") if file.is_file()]
    return [file.name for file in files if in_bytes(file.read_bytes(), values)]


def _state(path: Path) -> tuple[str, list[int], list[tuple[str, str]]]:
    served = ServedModel(path, default_store(path), "cpu")
    log = [(entry.kind, entry.ids) for entry in served.store.history(0, 99)]
    state = served.version, served.model.candidates_.ids.tolist(), log
    served.close()
    return state


def _numbers(proof: Proof) -> set[tuple[int, str]]:
    return {(value.id, value.name) for value in proof.values}


def test_what_is_forgotten_is_in_no_file(owned: Path):
    before = {file.name: file.read_bytes() for file in owned.parent.iterdir()}
    mode = owned.stat().st_mode
    proof = forget(owned, IDS, who="anna")
    assert proof.is_gone and proof.removed == IDS
    looked_for = _numbers(proof)
    assert looked_for >= {(id_, name) for id_ in IDS for name in ("agent", "owner")}
    assert looked_for >= {(2, "its label"), (5, "longitude"), (120, "built")}
    # The search finds what is there: each file had some of it before.
    for name in ("houses.tabr", "houses-1.tabr", "houses.tabr.memory"):
        assert len(in_bytes(before[name], proof.values)) > 5
    assert _left(owned, proof.values) == []
    assert proof.deleted == [str(owned.with_name("houses-1.tabr"))]
    assert {file.name for file in owned.parent.iterdir()} == {
        "houses.tabr",
        "houses.tabr.memory",
        "houses.tabr.memory-witness",
    }
    assert owned.stat().st_mode == mode
    version, ids, log = _state(owned)
    assert version == f"{identity_of(owned)[:12]}-5"
    assert {*ids} == {*range(124)} - {*IDS}
    assert log[-1] == ("forget", "2,5,120") and len(log) == 5
    model = TabRRegressor.load(owned)
    assert model.candidates_.ids.tolist() == ids and model.candidates_.next_id == 124


def test_again_there_is_nothing_left_to_do(owned: Path):
    forget(owned, IDS)
    content, state = owned.read_bytes(), _state(owned)
    proof = forget(owned, IDS)
    assert proof.is_gone and proof.removed == [] and proof.values == []
    assert owned.read_bytes() == content and _state(owned) == state
    assert any("only the ids were looked for" in note for note in proof.notes)


def test_a_service_goes_on_and_ids_are_not_given_again(owned: Path):
    forget(owned, [120, 123])
    served = ServedModel(owned, default_store(owned), "cpu")
    rows = served.schema.to_rows(houses(2, seed=3)[0])
    assert served.add(rows, [1500.0, 1600.0]).ids == [124, 125]
    assert served.relabel([2], [8765.4321], key="relabelled").ids == [2]  # a retry
    assert served.applied == 6
    with pytest.raises(KeyReused):  # so no retry brings the row back
        served.add(_people(served)[:2], [3210.125, 4000.0], key="added")
    served.compact()
    served.close()
    again = forget(owned, [124])
    assert again.is_gone and again.removed == [124]
    assert _state(owned)[1][-1] == 125


def test_levels_that_only_the_row_had_go_and_others_keep_their_codes(owned: Path):
    before = TabRRegressor.load(owned)
    known = before.preprocessor_.known_texts["agent"]
    id_ = next(k for k in range(120) if f"Owner of house {k:03}" in known and k > 5)
    proof = forget(owned, [*IDS, id_])
    assert f"Owner of house {id_:03}" in proof.levels["agent"]
    after = TabRRegressor.load(owned)
    left = after.preprocessor_.known_texts["agent"]
    assert {*known} - {*left} == {*proof.levels["agent"]}
    rows = before.candidates_.frame.iloc[20:60]
    for name in ("num", "bin", "cat"):
        one, other = (
            vars(m.preprocessor_.transform(rows))[name] for m in (before, after)
        )
        np.testing.assert_array_equal(one, other)
    assert proof.is_gone and _left(owned, proof.values) == []


def test_what_stays_in_what_fit_learned_is_named(tmp_path: Path):
    X, y = houses(60)
    y = y.astype(float)
    y[7] = 98765.4321  # the largest, which the file knows as such
    path = tmp_path / "m.tabr"
    TabRRegressor(**SMALL, device="cpu").fit(X, y).save(path)
    proof = forget(path, [7])
    (found,) = [f for f in proof.traces[0].found if f.value.name == "its label"]
    assert found.part == "target.high" and found.is_learned and proof.is_gone
    result = CliRunner().invoke(cli.main, ["forget", str(path), "--ids", "7"])
    assert result.exit_code == 0 and "nothing is left to do" in result.output


def test_a_class_that_only_the_row_had_is_named(tmp_path: Path):
    X, _ = houses(60)
    y = np.array(["cheap", "dear"] * 30, dtype=object)
    y[4] = "the castle of the duke"
    path = tmp_path / "m.tabr"
    TabRClassifier(**SMALL, device="cpu").fit(X, y).save(path)
    proof = forget(path, [4])
    assert [f.part for f in proof.traces[0].found] == ["target.classes"]
    assert proof.is_gone


def test_a_running_service_is_told_from_none(owned: Path):
    served = ServedModel(owned, default_store(owned), "cpu")
    content = owned.read_bytes()
    with pytest.raises(StoreError, match="stop the service"):
        forget(owned, IDS)
    assert owned.read_bytes() == content
    served.remove([7])  # it goes on
    served.close()
    assert forget(owned, IDS).is_gone
    assert 7 not in _state(owned)[1]


@pytest.fixture
def killed(folder: Path, tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Folders in each of which the command was killed at another step."""
    folders = {name: str(tmp_path / name) for name in STEPS}
    for place in folders.values():
        shutil.copytree(folder, place)
    ends = finish(*start(forget_and_die, folders, IDS))
    assert ends == dict.fromkeys(STEPS, -9)
    yield {name: Path(place) / "houses.tabr" for name, place in folders.items()}


def test_killed_at_any_step_it_ends_alike_when_run_again(
    killed: dict[str, Path], owned: Path
):
    values = forget(owned, IDS, who="anna").values
    content, state = owned.read_bytes(), _state(owned)
    refused = set()
    for name, path in killed.items():
        try:
            assert len(_state(path)[1]) in (121, 123), name
        except Forgotten as error:
            assert "run `tabr forget` on it again" in str(error)
            refused.add(name)
        proof = forget(path, IDS, who="anna")
        assert proof.is_gone and proof.has_finished == (name in refused), name
        assert path.read_bytes() == content and _state(path) == state, name
        assert _left(path, values) == [], name
        assert forget(path, IDS).removed == [], name
    assert refused == {"kept", "overwriting", "overwritten", "deleted", "drafted"}


def test_a_store_anywhere_forgets(model_file: Path, begin: Begin):
    address, _ = begin()
    forget(model_file, [100])  # a file that other tests do not use
    served = ServedModel(model_file, address, "cpu")
    rows = served.schema.to_rows(houses(2, seed=8)[0])
    rows[0]["town"] = "Castrop-Rauxel"
    served.add(rows, [3210.125, 4000.0], key="key")
    served.compact()
    served.relabel([120], [4321.987])
    if is_file(address):  # elsewhere it is not known
        served.close()
    old = model_file.with_name("old.tabr")
    shutil.copy(model_file, old)
    proof = forget(model_file, [3, 120], address)
    assert proof.is_gone and proof.removed == [3, 120]
    assert (120, "town") in _numbers(proof) and _left(model_file, []) == []
    stopped = any("stop them" in note for note in proof.notes)
    assert stopped == (not is_file(address))
    if stopped:
        with pytest.raises(Forgotten):
            served.remove([4])
        served.close()
    served = ServedModel(model_file, address, "cpu")
    assert len(served.model.candidates_) == 119 and served.applied == 3
    served.close()
    with pytest.raises(Forgotten, match="the file is still the one from before"):
        ServedModel(old, address, "cpu")


def test_without_a_store_the_file_forgets(model_file: Path):
    proof = forget(model_file, [3, 3, 4])
    assert proof.is_gone and proof.removed == [3, 4] and len(proof.values) > 5
    assert not {3, 4} & {*TabRRegressor.load(model_file).candidates_.ids.tolist()}
    assert sorted(file.name for file in model_file.parent.iterdir()) == ["houses.tabr"]


def test_what_cannot_be_forgotten_is_refused(model_file: Path, owned: Path):
    content = model_file.read_bytes()
    with pytest.raises(UnknownIdError, match="no candidate ever had"):
        forget(model_file, [3, 120])
    with pytest.raises(DataError, match="needs candidates"):
        forget(model_file, range(120))
    with pytest.raises(DataError, match="whole numbers"):
        forget(model_file, np.array([1.5]))
    with pytest.raises(StoreError, match="must have been begun"):
        forget(model_file, [3], model_file.with_name("none.db"))
    assert model_file.read_bytes() == content
    for file in owned.parent.glob("houses.tabr.memory*"):
        file.unlink()
    with pytest.raises(DataError, match=r"houses-1\.tabr tells that there is one"):
        forget(owned, [3])


def test_stores_that_were_set_aside_are_named(owned: Path):
    ServedModel(owned, default_store(owned), "cpu", new_store=True).close()
    result = CliRunner().invoke(cli.main, ["forget", str(owned), "--ids", "2"])
    assert result.exit_code == 1 and "of an earlier store" in result.output
    for file in owned.parent.glob("*.before-*"):
        file.unlink()
    result = CliRunner().invoke(cli.main, ["forget", str(owned), "--ids", "2"])
    assert result.exit_code == 0 and "nothing is left to do" in result.output


def test_the_command_says_what_is_gone(owned: Path):
    ids = owned.with_name("gone.csv")
    ids.write_text("id\n2\n5\n")
    arguments = ["forget", str(owned), "--from", str(ids)]
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 0 and "2 rows are gone from every file" in result.output
    assert f"{owned}: not found" in result.output
    result = CliRunner().invoke(cli.main, [*arguments, "--json"])
    record = json.loads(result.output)
    assert record["gone"] and record["removed"] == [] and len(record["files"]) > 2
    assert CliRunner().invoke(cli.main, arguments[:2]).exit_code == 2

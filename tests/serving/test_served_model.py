"""Changes survive, whatever happens to the process; answers are those of the model."""

from pathlib import Path

import numpy as np
import pytest

from tabr import TabRClassifier, TabRRegressor
from tabr.errors import DataError, ModelFileError, UnknownIdError
from tabr.estimators import load_model
from tabr.serving import compacted, served_model
from tabr.serving.served_model import ServedModel
from tabr.serving.store.connection import StoreDamaged

from .conftest import SMALL, Begin, houses


def reopened(served: ServedModel) -> ServedModel:
    """What a process finds that starts after this one was killed."""
    return ServedModel(served.path, served.path.with_name("store"), "cpu")


def predictions(served: ServedModel, frame) -> np.ndarray:
    _, answers = served.predict(frame, [0.9] * len(frame))
    return np.array([answer["prediction"] for answer in answers])


def test_answers_are_those_of_the_model(served: ServedModel):
    frame, _ = houses(20, seed=5)
    model = TabRRegressor.load(served.path, "cpu")
    _, answers = served.predict(frame, [0.8] * 20)
    np.testing.assert_allclose(predictions(served, frame), model.predict(frame))
    ends = model.predict_interval(frame, 0.8)
    np.testing.assert_allclose([a["interval"] for a in answers], ends)
    _, receipts = served.explain(frame, 0.8, 3)
    explanation = model.explain(frame)
    for k, receipt in enumerate(receipts):
        ids = explanation.table.ids[k]
        assert [n["id"] for n in receipt["neighbors"]] == ids[:3].tolist()
        assert receipt["interval"] == answers[k]["interval"]
        effects = [n["effect"] for n in receipt["neighbors"]]
        np.testing.assert_allclose(effects, explanation.effects[k, :3])
        assert receipt["others"]["count"] == (ids >= 0).sum() - 3
        weights = sum(n["weight"] for n in receipt["neighbors"])
        assert weights + receipt["others"]["weight"] == pytest.approx(1)


def test_members_of_a_pack_are_served_together_and_each_is_heard(tmp_path: Path):
    frame, price = houses()
    how = {**SMALL, "preset": "best", "n_members": 2, "device": "cpu"}
    model = TabRRegressor(**how).fit(frame, price)
    model.save(tmp_path / "pack.tabr")
    served = ServedModel(tmp_path / "pack.tabr", tmp_path / "store", "cpu")
    new, labels = houses(9, seed=5)
    served.add(served.schema.to_rows(new), labels.tolist())
    model.add_candidates(new, labels)
    _, receipts = served.explain(new, 0.9, 3)
    expected = model.predict(new)
    table = model.explain(new).members
    assert len(table.recipes) == len(model.members_) > 2
    for k, receipt in enumerate(receipts):
        assert receipt["members"] == table.of_row(k)
        said = [(m["weight"], m["prediction"]) for m in receipt["members"]]
        mean = sum(weight * prediction for weight, prediction in said)
        assert mean == pytest.approx(expected[k])
    np.testing.assert_allclose(predictions(served, new), expected)
    served.close()


def test_classes_come_with_probabilities_and_sets(
    classifier_file: Path, tmp_path: Path
):
    served = ServedModel(classifier_file, tmp_path / "store", "cpu")
    model = TabRClassifier.load(classifier_file, "cpu")
    frame, _ = houses(10, seed=5)
    _, answers = served.predict(frame, [0.9] * 10)
    shares = [list(a["probabilities"].values()) for a in answers]
    np.testing.assert_allclose(shares, model.predict_proba(frame))
    assert [a["prediction"] for a in answers] == model.predict(frame).tolist()
    inside = model.predict_set(frame, 0.9)
    assert [len(a["set"]) for a in answers] == inside.sum(1).tolist()
    with pytest.raises(DataError, match="free"):
        served.add(served.schema.to_rows(frame.head(1)), ["free"])
    assert served.add(served.schema.to_rows(frame.head(1)), ["dear"]).ids == [120]
    served.close()


def test_each_row_may_have_a_coverage_of_its_own(served: ServedModel):
    frame, _ = houses(4, seed=5)
    _, mixed = served.predict(frame, [0.5, 0.9, 0.5, 0.9])
    for k, coverage in enumerate([0.5, 0.9, 0.5, 0.9]):
        _, (alone,) = served.predict(frame.iloc[[k]], [coverage])
        np.testing.assert_allclose(mixed[k]["interval"], alone["interval"])


def test_changes_are_what_the_model_would_do_and_survive_a_crash(served: ServedModel):
    frame, price = houses(30, seed=7)
    rows = served.schema.to_rows(frame)
    expected = TabRRegressor.load(served.path, "cpu")
    first = served.add(rows[:20], price[:20].tolist())
    second = served.add(rows[20:], price[20:].tolist())
    assert first.ids == list(range(120, 140)) and second.ids == list(range(140, 150))
    served.remove([3, 125])
    done = served.relabel([4, 126], [5.0, 6.0])
    expected.add_candidates(frame, price)
    expected.remove_candidates([3, 125])
    expected.relabel_candidates([4, 126], [5.0, 6.0])
    n = len(expected.candidates_)
    assert (done.n_candidates, done.version) == (n, served.version)
    again = reopened(served)
    asked, _ = houses(15, seed=9)
    for model in (served, again):
        np.testing.assert_allclose(predictions(model, asked), expected.predict(asked))
    assert again.version == served.version and again.version.endswith("-4")
    again.close()


def test_a_key_makes_a_change_happen_once(served: ServedModel):
    frame, price = houses(1, seed=7)
    rows = served.schema.to_rows(frame)
    once = served.add(rows, price.tolist(), key="k1")
    assert served.add(rows, price.tolist(), key="k1").ids == once.ids
    again = reopened(served)
    assert again.add(rows, price.tolist(), key="k1").ids == once.ids
    assert len(again.model.candidates_) == once.n_candidates
    again.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda m, rows: m.add(rows, ["no number"]),
        lambda m, rows: m.add([{**rows[0], "built": "never"}], [1.0]),
        lambda m, rows: m.remove([1, 999]),
        lambda m, rows: m.relabel([1, 1], [1.0, 2.0]),
        lambda m, rows: m.relabel([1], [float("inf")]),
        lambda m, rows: m.remove(list(range(120))),
    ],
)
def test_what_cannot_be_done_changes_nothing(served: ServedModel, change):
    rows = served.schema.to_rows(houses(1)[0])
    before = served.version, len(served.model.candidates_)
    with pytest.raises((DataError, UnknownIdError)):
        change(served, rows)
    assert (served.version, len(served.model.candidates_)) == before
    again = reopened(served)
    assert again.version == before[0]
    again.close()
    assert served.add(rows, [1.0]).ids == [120]


def test_compaction_writes_a_model_file_and_goes_on(served: ServedModel):
    frame, price = houses(10, seed=7)
    rows = served.schema.to_rows(frame)
    served.add(rows[:5], price[:5].tolist(), key="k")
    assert served.n_uncompacted == 1
    name = served.compact().file
    assert name == "houses-1.tabr" and served.n_uncompacted == 0
    compacted = load_model(served.path.with_name(name), "cpu")
    assert len(compacted.candidates_) == len(served.model.candidates_)
    served.add(rows[5:], price[5:].tolist())
    assert served.add(rows[:5], price[:5].tolist(), key="k").ids == [*range(120, 125)]
    again = reopened(served)
    assert again.version == served.version
    asked, _ = houses(6, seed=9)
    np.testing.assert_allclose(predictions(again, asked), predictions(served, asked))
    again.close()


def test_a_checkpoint_is_loaded_instead_of_the_model_file(
    own_file: Path, begin: Begin, monkeypatch: pytest.MonkeyPatch
):
    loaded: list[Path] = []

    def load(path: str | Path, device: str | None = None, key: Path | None = None):
        loaded.append(Path(path))
        return load_model(path, device, key=key)

    monkeypatch.setattr(served_model, "load_model", load)
    address, _ = begin()
    ServedModel(own_file, address, "cpu").close()  # which begins the store
    served = ServedModel(own_file, address, "cpu")
    assert loaded == [own_file, own_file]
    rows = served.schema.to_rows(houses(2, seed=7)[0])
    served.add(rows[:1], [1.0])
    served.compact()
    served.add(rows[1:], [2.0])
    loaded.clear()
    again = ServedModel(own_file, address, "cpu")
    assert len(loaded) == 1 and loaded[0] != own_file
    assert again.version == served.version and again.applied == 2
    asked, _ = houses(6, seed=9)
    np.testing.assert_allclose(predictions(again, asked), predictions(served, asked))
    again.close()
    served.close()


def test_a_damaged_model_file_is_refused_and_begins_no_store(
    model_file: Path, tmp_path: Path
):
    content = bytearray(model_file.read_bytes())
    content[len(content) // 2] ^= 1
    model_file.write_bytes(content)
    with pytest.raises(ModelFileError):
        ServedModel(model_file, tmp_path / "folder" / "store.db", "cpu")
    assert list(tmp_path.iterdir()) == [model_file]


def test_two_services_of_one_store_agree(served: ServedModel):
    other = reopened(served)
    rows = served.schema.to_rows(houses(4, seed=7)[0])
    ids = [
        (served if k % 2 else other).add([row], [float(k)]).ids[0]
        for k, row in enumerate(rows)
    ]
    assert ids == [120, 121, 122, 123]
    served.catch_up()
    other.catch_up()
    assert served.version == other.version
    asked, _ = houses(6, seed=9)
    np.testing.assert_allclose(predictions(served, asked), predictions(other, asked))
    other.close()


def test_who_did_not_see_a_compaction_goes_on(served: ServedModel):
    other, late = reopened(served), reopened(served)
    rows = served.schema.to_rows(houses(3, seed=7)[0])
    served.add(rows[:1], [1.0])
    served.compact()
    assert other.add(rows[1:2], [2.0]).ids == [121]
    assert late.catch_up() == 2 and late.version == other.version
    asked, _ = houses(6, seed=9)
    np.testing.assert_allclose(predictions(late, asked), predictions(other, asked))
    other.close()
    late.close()


def test_who_starts_while_others_compact_goes_on(
    served: ServedModel, monkeypatch: pytest.MonkeyPatch
):
    rows = served.schema.to_rows(houses(9, seed=7)[0])
    left = iter(rows)

    def load(path: str | Path, device: str | None = None, key: Path | None = None):
        for _ in range(2):  # while it loads, others go on
            if row := next(left, None):
                served.add([row], [1.0])
                served.compact()
        return load_model(path, device)

    monkeypatch.setattr(served_model, "load_model", load)
    late = reopened(served)
    assert late.catch_up() > 0 and late.version == served.version
    late.close()


def test_compaction_keeps_the_last_files_and_those_of_others(
    served: ServedModel, classifier_file: Path
):
    folder, rows = served.path.parent, served.schema.to_rows(houses(1, seed=7)[0])
    folder.joinpath("houses-0.tabr").write_bytes(classifier_file.read_bytes())
    for _ in range(4):
        served.add(rows, [1.0])
        served.compact()
    names = {p.name for p in folder.glob("houses*")}
    assert names == {"houses.tabr", "houses-0.tabr", "houses-3.tabr", "houses-4.tabr"}
    assert folder.joinpath("houses-4.tabr").stat().st_mode & 0o777 == 0o600


def test_changes_and_predictions_go_on_while_it_compacts(
    served: ServedModel, monkeypatch: pytest.MonkeyPatch
):
    rows, write = served.schema.to_rows(houses(2, seed=7)[0]), compacted.write
    served.add(rows[:1], [1.0])

    def slow(model: TabRRegressor, path: Path) -> bytes:
        assert served.add(rows[1:], [2.0]).ids == [121]  # by another thread, too
        assert served.predict(houses(2)[0], [0.9, 0.9])[0].endswith("-2")
        return write(model, path)

    monkeypatch.setattr(compacted, "write", slow)
    assert served.compact().file == "houses-1.tabr" and served.n_uncompacted == 1
    again = reopened(served)
    assert again.applied == 2 and len(again.model.candidates_) == 122
    again.close()


@pytest.mark.parametrize("left", ["compacted file", "witness"])
def test_a_store_that_was_there_is_missed(model_file: Path, left: str):
    store = model_file.with_name("houses.tabr.memory")
    served = ServedModel(model_file, store, "cpu")
    assert served.has_begun_store
    served.add(served.schema.to_rows(houses(1, seed=7)[0]), [1.0])
    if left == "compacted file":
        served.compact()
    served.close()
    for file in model_file.parent.glob("houses.tabr.memory*"):
        if left != "witness" or not file.name.endswith("-witness"):
            file.unlink()
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"however .* --new-store"):
            ServedModel(model_file, store, "cpu")
    served = ServedModel(model_file, store, "cpu", new_store=True)
    assert served.applied == 0 and served.has_begun_store
    served.close()
    again = ServedModel(model_file, store, "cpu")
    assert not again.has_begun_store
    again.close()


def test_a_new_store_sets_the_old_one_aside(served: ServedModel):
    served.add(served.schema.to_rows(houses(1, seed=7)[0]), [1.0])
    served.close()
    store = served.path.with_name("store")
    before = {p.name: p.read_bytes() for p in store.iterdir()}
    new = ServedModel(served.path, store, "cpu", new_store=True)
    assert new.applied == 0
    aside = {p.name.partition(".before")[0]: p for p in store.glob("*.before-*")}
    assert {name: p.read_bytes() for name, p in aside.items()} == before
    new.close()


def test_another_model_of_the_user_is_no_sign_of_a_store(
    model_file: Path, classifier_file: Path
):
    model_file.with_name("houses-2.tabr").write_bytes(classifier_file.read_bytes())
    model_file.with_name("houses-3.tabr").write_text("no model")
    ServedModel(model_file, model_file.with_name("store"), "cpu").close()


def test_a_store_of_another_model_is_refused(
    served: ServedModel, classifier_file: Path
):
    with pytest.raises(DataError, match="serve that file, or give another store"):
        ServedModel(classifier_file, served.path.with_name("store"), "cpu")

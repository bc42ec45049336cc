"""Changes survive, whatever happens to the process; answers are those of the model."""

from pathlib import Path

import numpy as np
import pytest

from tabr import TabRClassifier, TabRRegressor
from tabr.errors import DataError
from tabr.estimators import load_model
from tabr.serving.memory import Memory, UnknownIds

from .conftest import houses


def reopened(memory: Memory) -> Memory:
    """What a process finds that starts after this one was killed."""
    return Memory(memory.path, memory.path.with_name("store"), "cpu")


def predictions(memory: Memory, frame) -> np.ndarray:
    _, answers = memory.predict(frame, [0.9] * len(frame))
    return np.array([answer["prediction"] for answer in answers])


def test_answers_are_those_of_the_model(memory: Memory):
    frame, _ = houses(20, seed=5)
    model = TabRRegressor.load(memory.path, "cpu")
    _, answers = memory.predict(frame, [0.8] * 20)
    np.testing.assert_allclose(predictions(memory, frame), model.predict(frame))
    ends = model.predict_interval(frame, 0.8)
    np.testing.assert_allclose([a["interval"] for a in answers], ends)
    _, receipts = memory.explain(frame, 0.8, 3)
    found = model.explain(frame)
    for k, receipt in enumerate(receipts):
        ids = found.table.ids[k]
        assert [n["id"] for n in receipt["neighbors"]] == ids[:3].tolist()
        assert receipt["interval"] == answers[k]["interval"]
        effects = [n["effect"] for n in receipt["neighbors"]]
        np.testing.assert_allclose(effects, found.effects[k, :3])
        assert receipt["others"]["count"] == (ids >= 0).sum() - 3
        weights = sum(n["weight"] for n in receipt["neighbors"])
        assert weights + receipt["others"]["weight"] == pytest.approx(1)


def test_classes_come_with_probabilities_and_sets(
    classifier_file: Path, tmp_path: Path
):
    memory = Memory(classifier_file, tmp_path / "store", "cpu")
    model = TabRClassifier.load(classifier_file, "cpu")
    frame, _ = houses(10, seed=5)
    _, answers = memory.predict(frame, [0.9] * 10)
    shares = [list(a["probabilities"].values()) for a in answers]
    np.testing.assert_allclose(shares, model.predict_proba(frame))
    assert [a["prediction"] for a in answers] == model.predict(frame).tolist()
    inside = model.predict_set(frame, 0.9)
    assert [len(a["set"]) for a in answers] == inside.sum(1).tolist()
    with pytest.raises(DataError, match="free"):
        memory.add(memory.schema.to_rows(frame.head(1)), ["free"])
    assert memory.add(memory.schema.to_rows(frame.head(1)), ["dear"]).ids == [120]
    memory.close()


def test_each_row_may_have_a_coverage_of_its_own(memory: Memory):
    frame, _ = houses(4, seed=5)
    _, mixed = memory.predict(frame, [0.5, 0.9, 0.5, 0.9])
    for k, coverage in enumerate([0.5, 0.9, 0.5, 0.9]):
        _, (alone,) = memory.predict(frame.iloc[[k]], [coverage])
        np.testing.assert_allclose(mixed[k]["interval"], alone["interval"])


def test_changes_are_what_the_model_would_do_and_survive_a_crash(memory: Memory):
    frame, price = houses(30, seed=7)
    rows = memory.schema.to_rows(frame)
    expected = TabRRegressor.load(memory.path, "cpu")
    first = memory.add(rows[:20], price[:20].tolist())
    second = memory.add(rows[20:], price[20:].tolist())
    assert first.ids == list(range(120, 140)) and second.ids == list(range(140, 150))
    memory.remove([3, 125])
    done = memory.relabel([4, 126], [5.0, 6.0])
    expected.add_candidates(frame, price)
    expected.remove_candidates([3, 125])
    expected.relabel_candidates([4, 126], [5.0, 6.0])
    n = len(expected.candidates_)
    assert (done.n_candidates, done.version) == (n, memory.version)
    again = reopened(memory)
    asked, _ = houses(15, seed=9)
    for one in (memory, again):
        np.testing.assert_allclose(predictions(one, asked), expected.predict(asked))
    assert again.version == memory.version and again.version.endswith("-4")
    again.close()


def test_a_key_makes_a_change_happen_once(memory: Memory):
    frame, price = houses(1, seed=7)
    rows = memory.schema.to_rows(frame)
    once = memory.add(rows, price.tolist(), key="k1")
    assert memory.add(rows, price.tolist(), key="k1").ids == once.ids
    again = reopened(memory)
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
def test_what_cannot_be_done_changes_nothing(memory: Memory, change):
    rows = memory.schema.to_rows(houses(1)[0])
    before = memory.version, len(memory.model.candidates_)
    with pytest.raises((DataError, UnknownIds)):
        change(memory, rows)
    assert (memory.version, len(memory.model.candidates_)) == before
    again = reopened(memory)
    assert again.version == before[0]
    again.close()
    assert memory.add(rows, [1.0]).ids == [120]


def test_compaction_writes_a_model_file_and_goes_on(memory: Memory):
    frame, price = houses(10, seed=7)
    rows = memory.schema.to_rows(frame)
    memory.add(rows[:5], price[:5].tolist(), key="k")
    assert memory.n_uncompacted == 1
    path = memory.compact()
    assert path.name == "houses-1.tabr" and memory.n_uncompacted == 0
    compacted = load_model(path, "cpu")
    assert len(compacted.candidates_) == len(memory.model.candidates_)
    memory.add(rows[5:], price[5:].tolist())
    assert memory.add(rows[:5], price[:5].tolist(), key="k").ids == [*range(120, 125)]
    again = reopened(memory)
    assert again.version == memory.version
    asked, _ = houses(6, seed=9)
    np.testing.assert_allclose(predictions(again, asked), predictions(memory, asked))
    again.close()


def test_two_memories_of_one_store_agree(memory: Memory):
    other = reopened(memory)
    rows = memory.schema.to_rows(houses(4, seed=7)[0])
    ids = [
        (memory if k % 2 else other).add([row], [float(k)]).ids[0]
        for k, row in enumerate(rows)
    ]
    assert ids == [120, 121, 122, 123]
    memory.catch_up()
    other.catch_up()
    assert memory.version == other.version
    asked, _ = houses(6, seed=9)
    np.testing.assert_allclose(predictions(memory, asked), predictions(other, asked))
    other.close()


def test_who_did_not_see_a_compaction_goes_on(memory: Memory):
    other, late = reopened(memory), reopened(memory)
    rows = memory.schema.to_rows(houses(3, seed=7)[0])
    memory.add(rows[:1], [1.0])
    memory.compact()
    assert other.add(rows[1:2], [2.0]).ids == [121]
    assert late.catch_up() == 1 and late.version == other.version
    asked, _ = houses(6, seed=9)
    np.testing.assert_allclose(predictions(late, asked), predictions(other, asked))
    other.close()
    late.close()


def test_a_store_of_another_model_is_refused(memory: Memory, classifier_file: Path):
    with pytest.raises(DataError, match="serve that file, or give another store"):
        Memory(classifier_file, memory.path.with_name("store"), "cpu")

"""The candidate set."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from tabr.candidates import candidate_set as module
from tabr.candidates.candidate_set import CandidateSet
from tabr.candidates.rules import NotSameGroup
from tabr.config import NetworkConfig
from tabr.errors import DataError
from tabr.network.rows import Rows
from tabr.network.tabr import TabR
from tabr.prediction.predict import predict
from tabr.tables.preprocessor import Arrays, EncodedRows
from tabr.tables.shape import DataShape


def rows_of(values: list[float]) -> Rows:
    num = torch.tensor(values)[:, None].repeat(1, 2)
    return Rows(num, num[:, :0], num[:, :0].long())


def make(n: int = 3) -> CandidateSet:
    values = [float(i) for i in range(n)]
    frame = pd.DataFrame({"a": [f"row {i}" for i in range(n)]})
    y = np.arange(n) * 10.0
    ids = np.arange(n) * 2 + 2
    return CandidateSet(ids, frame, y, rows_of(values), torch.tensor(values))


def encoded(frame: pd.DataFrame, values: list[float]) -> EncodedRows:
    return EncodedRows(frame, Arrays(*(part.numpy() for part in rows_of(values))))


def add(old: CandidateSet, values: list[float]) -> tuple[CandidateSet, np.ndarray]:
    frame = pd.DataFrame({"a": [f"new {v}" for v in values]})
    y = np.array(values) * 10
    return old.added(encoded(frame, values), y, np.array(values, np.float32))


def test_rows_that_come_one_by_one_are_few_frames() -> None:
    step = make()
    for k in range(100):
        step, _ = add(step, [float(k)])
    assert len(step._frames) < 10
    together, _ = add(make(), [float(k) for k in range(100)])
    pd.testing.assert_frame_equal(step.frame, together.frame)
    ids = np.array([106, 2, 50, 7])
    pd.testing.assert_frame_equal(step.look_up(ids), together.look_up(ids))


def test_rows_are_looked_up_by_id() -> None:
    rows = make().look_up(np.array([6, 2, 6]))
    assert rows.a.tolist() == ["row 2", "row 0", "row 2"]
    assert rows.index.tolist() == [6, 2, 6]


@pytest.mark.parametrize("ids", [[2, 3], [-1], [100], [2, 8]])
def test_an_unknown_id_is_named(ids: list[int]) -> None:
    with pytest.raises(KeyError, match=str(ids[-1])):
        make().look_up(ids)


def test_ids_are_whole_numbers() -> None:
    with pytest.raises(DataError, match="ids are whole numbers"):
        make().positions([2.5])


def test_its_length_is_the_number_of_candidates() -> None:
    assert len(make()) == 3
    assert len(make().to(torch.device("cpu"))) == 3


def test_what_is_added_stands_behind_the_rest_and_leaves_the_old_set_alone() -> None:
    old = make()
    new, ids = add(old, [7.0, 8.0])
    assert ids.tolist() == [7, 8]
    assert new.ids.tolist() == [2, 4, 6, 7, 8]
    assert new.y.tolist() == [0, 10, 20, 70, 80]
    assert new.frame.a.tolist()[-2:] == ["new 7.0", "new 8.0"]
    assert new.labels.tolist() == [0, 1, 2, 7, 8]
    assert new.look_up([8, 2]).a.tolist() == ["new 8.0", "row 0"]
    assert old.ids.tolist() == [2, 4, 6] and len(old.frame) == 3
    assert old.rows.num[:, 0].tolist() == [0, 1, 2]


def test_two_sets_may_grow_out_of_one() -> None:
    old, _ = add(make(), [3.0])  # now there is spare room
    one, _ = add(old, [4.0])
    other, _ = add(old, [5.0, 6.0])
    assert one.labels.tolist() == [0, 1, 2, 3, 4]
    assert other.labels.tolist() == [0, 1, 2, 3, 5, 6]


def test_ids_are_not_given_twice() -> None:
    new, ids = add(make(), [1.0])
    less = new.removed(ids)
    again, others = add(less, [1.0])
    assert not set(ids) & set(others)
    assert others.tolist() == again.packed().ids[-1:].tolist()
    _, after = add(again.removed(others).packed(), [2.0])
    assert after > others


def test_who_is_removed_is_gone_but_not_from_the_old_set() -> None:
    old = make()
    new = old.removed([4])
    assert new.ids.tolist() == [2, 6] and new.y.tolist() == [0, 20]
    assert new.frame.a.tolist() == ["row 0", "row 2"]
    assert old.ids.tolist() == [2, 4, 6] and len(old) == 3
    with pytest.raises(KeyError, match="4"):
        new.removed([4])
    packed = new.packed()
    assert packed.ids.tolist() == [2, 6] and packed.labels.tolist() == [0, 2]
    assert packed.look_up([6]).a.tolist() == ["row 2"]


def test_the_last_candidate_stays() -> None:
    with pytest.raises(DataError, match="a model needs candidates"):
        make().removed([2, 4, 6])


def test_many_removed_ones_are_packed_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", 3)
    few = make(40).removed([2, 4])
    assert len(few.labels) == 40
    many = few.removed([6, 8, 10, 12])
    assert len(many.labels) == len(many) == 34


def test_labels_may_change() -> None:
    old = make()
    new = old.relabelled([6, 2], np.array([1.5, 2.5]), np.float32([0.15, 0.25]))
    assert new.y.tolist() == [2.5, 10, 1.5]
    assert new.labels.tolist() == pytest.approx([0.25, 1, 0.15])
    assert old.y.tolist() == [0, 10, 20] and old.labels.tolist() == [0, 1, 2]


def test_one_candidate_gets_one_label() -> None:
    with pytest.raises(DataError, match="each id may come once"):
        make().relabelled([2, 2], np.array([1.0, 2.0]), np.float32([0.1, 0.2]))


def test_labels_that_are_texts_may_grow_longer() -> None:
    rows = rows_of([0.0, 1.0])
    y = np.array(["a", "b"])
    frame = pd.DataFrame({"a": [0, 1]})
    old = CandidateSet(np.array([0, 1]), frame, y, rows, torch.tensor([0, 1]))
    new = old.relabelled([0], np.array(["much longer"]), np.array([1]))
    assert new.y.tolist() == ["much longer", "b"]
    more = encoded(frame, [0.0, 1.0])
    longer, _ = new.added(more, np.array(["x" * 20, "b"]), np.array([1, 1]))
    assert longer.y.tolist() == ["much longer", "b", "x" * 20, "b"]


def network(retrieval: str = "step-4") -> TabR:
    from tabr.config import STEPS

    torch.manual_seed(0)
    config = NetworkConfig(width=8, retrieval=STEPS[retrieval])
    return TabR(config, DataShape(2, 0, (), "regression", 0)).eval()


@pytest.mark.parametrize("retrieval", ["step-0", "step-2", "step-4"])
def test_a_changed_set_predicts_as_one_made_anew(retrieval: str) -> None:
    net, new_rows = network(retrieval), rows_of([0.3, 2.2, 4.1])
    living = make(6)
    living.index_of(net)  # so that it is extended, not made anew
    living, ids = add(living, [1.4, 3.6, 4.4])
    living = living.removed([4, ids[1]])
    living, _ = add(living, [2.4])
    living = living.relabelled([2], np.array([9.0]), np.float32([0.9]))
    fresh = living.packed()
    assert len(fresh) == len(living) == 8
    for m in (3, 8, 20):
        mine, found = predict(living.index_of(net), new_rows, m)
        theirs, _ = predict(fresh.index_of(net), new_rows, m)
        gap = (mine.prediction - theirs.prediction).abs().max()
        assert gap < 1e-5
        position = found.position.numpy()[found.found.numpy()]
        assert not set(living.ids_at(position)) & {4, ids[1]}


def test_indexes_follow_the_device_of_labels_and_are_left_out_of_pickles() -> None:
    candidates, net = make(), network()
    index = candidates.index_of(net)
    assert candidates.index_of(net) is index
    copy = pickle.loads(pickle.dumps(candidates))
    assert copy.ids.tolist() == candidates.ids.tolist()
    assert copy.index_of(net) is not index


def test_a_rule_follows_its_candidates() -> None:
    frame = pd.DataFrame({"a": ["p", "q", "p"]})
    rule = NotSameGroup("a").bind(frame)
    parts = np.arange(3), frame, np.zeros(3), rows_of([0.0, 1.0, 2.0]), torch.zeros(3)
    old = CandidateSet(*parts, rule)
    new, _ = add(old, [5.0])
    assert new.rule is not None and new.rule.n == 4
    packed = new.removed([0]).packed()
    assert packed.rule is not None and packed.rule.codes.shape == (1, 3)
    free = new.restricted(None)
    assert free.rule is None and free.rule_index() is None and len(free) == 4

"""Fitted models: rules, explanations, and candidates that come and go."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from tabr import (
    DataError,
    NotSameGroup,
    PastOnly,
    SameGroup,
    TabRClassifier,
    TabRRegressor,
    Where,
)
from tabr.errors import ModelFileError, ParameterError

SMALL: dict[str, Any] = {
    "n_members": 1,
    "width": 16,
    "context_size": 12,
    "max_epochs": 2,
    "device": "cpu",
    "random_state": 0,
}


def table(n: int = 160, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({
        "a": rng.normal(size=n),
        "b": rng.normal(size=n),
        "town": rng.choice(["x", "y", "z"], n),
        "day": pd.Timestamp("2024-01-01")
        + pd.to_timedelta(rng.integers(0, 90, n), unit="D"),
        "who": rng.choice(list("pqrstuvw"), n),
    })  # fmt: skip
    return frame, frame.a * 2 + frame.b + rng.normal(size=n) * 0.1


RULE = PastOnly("day", window="40D") & NotSameGroup("who")
IGNORE = ["day", "who"]


@pytest.fixture(scope="module")
def plain() -> TabRRegressor:
    frame, y = table()
    return TabRRegressor(**SMALL, ignore=IGNORE).fit(frame, y)


@pytest.fixture(scope="module")
def ruled() -> TabRRegressor:
    frame, y = table()
    return TabRRegressor(**SMALL, ignore=IGNORE, candidates=RULE).fit(frame, y)


# --- whole numbers beyond floats ----------------------------------------------------


def test_classes_beyond_floats_come_back_as_they_were(tmp_path: Path) -> None:
    frame, _ = table(60)
    classes = np.array([2**53 + 1, 2**53 + 2, 2**53 + 3])
    y = classes[np.arange(60) % 3]
    model = TabRClassifier(**SMALL, ignore=IGNORE).fit(frame, y)
    ids = model.add_candidates(frame, y.astype(np.uint64))
    model.relabel_candidates(ids, pd.array(y, "UInt64"))
    model.save(tmp_path / "m.tabr")
    loaded = TabRClassifier.load(tmp_path / "m.tabr")
    for one in (model, loaded):
        assert one.classes_.tolist() == classes.tolist()
        assert one.candidates_.y_of(ids).tolist() == y.tolist()
        assert one.explain(frame).labels.dtype == np.int64
        assert set(one.predict(frame).tolist()) <= set(classes.tolist())
    with pytest.raises(DataError, match="classes that fit saw"):
        model.add_candidates(frame, y.astype(float))


# --- forked processes -------------------------------------------------------------

FORKS = """
import os, pickle, signal, threading, time
import torch
from tabr import TabRRegressor
from tests.test_fitted import IGNORE, SMALL, table

torch.set_num_threads(2)
frame, y = table(600)
model = TabRRegressor(**SMALL, ignore=IGNORE).fit(frame, y)
model.predict(frame)  # by all threads
over = threading.Event()

def change():
    while not over.is_set():
        model.remove_candidates(model.add_candidates(frame, y))

def work():
    for each in (model, pickle.loads(pickle.dumps(model))):
        each.predict(frame)
        ids = each.add_candidates(frame.head(3), y[:3])
        each.relabel_candidates(ids, y[:3])
        each.explain(frame.head(2))
        each.restrict_candidates(None)
        each.remove_candidates(ids)

def outcome(pid, seconds):
    for _ in range(int(seconds / 0.02)):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"

thread = threading.Thread(target=change)
thread.start()
outcomes = []
for _ in range(12):
    time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    outcomes.append(outcome(pid, 20))
over.set()
thread.join()
print(outcomes)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_predicts_and_updates_though_another_thread_did() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == str([0] * 12), done.stderr[-2000:]


# --- seeds ------------------------------------------------------------------------


def test_every_seed_that_is_taken_has_networks_of_its_own() -> None:
    frame, y = table(60)
    how = {**SMALL, "max_epochs": 1, "ignore": IGNORE}

    def predictions(seed: Any) -> NDArray[np.float64]:
        model = TabRRegressor(**{**how, "random_state": seed}).fit(frame, y)
        return model.predict(frame)

    seeds: list[Any] = [0, 1, 2**31, 2**31 + 1, 2**32 - 1, np.random.RandomState(0)]
    seeds += [np.random.default_rng(0), np.random.default_rng(1)]
    found = [predictions(seed) for seed in seeds]
    for i, one in enumerate(found):
        assert all(not np.array_equal(one, other) for other in found[:i])
    for seed in (np.int32(1), np.uint64(1)):
        np.testing.assert_array_equal(predictions(seed), found[1])
    again = predictions(np.random.default_rng(0))
    np.testing.assert_array_equal(again, found[-2])
    for seed in (2**32, 2**40, 2**64 + 1, -1, np.uint64(2**63), np.int64(-5)):
        with pytest.raises(ParameterError, match=r"from 0 to 2\*\*32 - 1, of which"):
            predictions(seed)
    how["n_members"] = 3
    with pytest.raises(ParameterError, match="of which 3 networks have one each"):
        predictions(2**32 - 2)


# --- labels unlike those of fit -------------------------------------------------


def test_labels_far_beyond_those_of_fit_are_told(plain: TabRRegressor) -> None:
    model, (frame, y) = copy.copy(plain), table(3, seed=1)
    far = "1 label lies far beyond .* the farthest is 1,000,000: .* fit again"
    with pytest.warns(UserWarning, match=far) as told:
        model.add_candidates(frame, [0.0, 1e6, 1.0])
        model.relabel_candidates(model.candidates_.ids[:1], [1e6])
    assert [warning.filename for warning in told] == [__file__] * 2
    assert model.label_doubt([1e6]) in {str(warning.message) for warning in told}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.add_candidates(frame, y)
        before = model.candidates_
        with pytest.raises(UserWarning):
            model.add_candidates(frame, [0.0, 1e6, 1.0])
    assert model.candidates_ is before and model.label_doubt(y) is None
    for label in (np.nan, np.inf, None):
        with pytest.raises(DataError):
            model.add_candidates(frame.head(1), [label])
        with pytest.raises(DataError):
            model.relabel_candidates(before.ids[:1], [label])


# --- targets without spread, and with hardly any ------------------------------

HOWS = [{}, {"preset": "paper"}, {"n_members": 3}, {"preset": "paper", "n_members": 3}]
HOWS.append({"preset": "best", "n_members": 1})


def check_constant(model: Any, rows: pd.DataFrame, value: float) -> None:
    """Check that all that the model says of numbers is this one."""
    found = model.explain(rows)
    said = [model.predict(rows), found.predictions, found.alone, found.usual]
    said += [found.members.predictions, model.predict_interval(rows, 0.8)]
    for part in said:
        assert (part == value).all()
    assert (found.effects == 0).all()
    assert found.corrections is None or (found.corrections == 0).all()


@pytest.mark.parametrize("with_eval_set", [False, True])
@pytest.mark.parametrize("how", HOWS, ids=str)
def test_a_constant_target_is_predicted_exactly(
    how: dict[str, Any], with_eval_set: bool, tmp_path: Path
) -> None:
    frame, _ = table(80)
    new, _ = table(20, seed=1)
    for value in (0.1, 1e-6, -3e300):
        y = np.full(80, value)
        model = TabRRegressor(**{**SMALL, "max_epochs": 1, **how})
        model.fit(frame, y, eval_set=(new, y[:20]) if with_eval_set else None)
        check_constant(model, new, value)
        model.add_candidates(new, y[:20])
        model.target_.scale = 1.0  # as files of older versions have it
        model.save(tmp_path / "m.tabr")
        check_constant(TabRRegressor.load(tmp_path / "m.tabr"), new, value)


def test_a_constant_target_stays_the_answer_beside_other_labels() -> None:
    frame, _ = table(80)
    new, _ = table(20, seed=1)
    for preset in ("default", "paper"):
        how = {**SMALL, "preset": preset}
        model = TabRRegressor(**how).fit(frame, np.ones(80))
        model.add_candidates(new, np.full(20, 7.0))
        assert (model.predict(new) == 1).all()


@pytest.mark.parametrize("how", HOWS[:2], ids=str)
def test_the_unit_and_the_offset_of_a_target_change_only_theirs(
    how: dict[str, Any],
) -> None:
    frame, y = table()
    new, _ = table(20, seed=1)
    exact = np.round(y * 1024) / 1024  # so that no offset rounds it

    def answers(y: Any, scale: float, offset: float) -> NDArray[np.float64]:
        model = TabRRegressor(**{**SMALL, **how}).fit(frame, y)
        ends = model.predict_interval(new, 0.5)
        found = model.explain(new)
        said = [model.predict(new)[:, None], ends, found.alone[:, None]]
        return (np.hstack(said) - offset) / scale

    plain = answers(exact, 1, 0)
    for scale, offset in ((1e-6, 0), (1e-300, 0), (1e300, 0), (1, 1e9), (1e-6, 1)):
        found = answers(exact * scale + offset, scale, offset)
        np.testing.assert_allclose(found, plain, atol=1e-3)


# --- rules --------------------------------------------------------------------


def check_allowed(model: Any, rows: pd.DataFrame) -> int:
    """Check that all neighbours are allowed; return how many there are."""
    ids = model.neighbors(rows).ids
    count = 0
    for row, neighbors in zip(rows.itertuples(), ids, strict=True):
        there = neighbors[neighbors >= 0]
        near = model.candidates_.look_up(there)
        age = (row.day - near.day).dt.days
        assert (age > 0).all() and (age <= 40).all()
        assert (near.who != row.who).all()
        count += len(there)
    return count


def test_neighbours_of_new_rows_follow_the_rule(ruled: TabRRegressor) -> None:
    rows, _ = table(60, seed=1)
    assert check_allowed(ruled, rows) > 100


def test_a_number_of_days_without_a_unit_is_refused_wherever_rules_come(
    ruled: TabRRegressor, tmp_path: Path
) -> None:
    frame, y = table()
    rule = PastOnly("day", gap=365)
    with pytest.raises(DataError, match="write '365D' for 365 days"):
        TabRRegressor(**SMALL, candidates=rule).fit(frame, y)
    before = ruled.candidates_
    with pytest.raises(DataError, match="write '365D' for 365 days"):
        ruled.restrict_candidates(rule)
    assert ruled.candidates_ is before and ruled.candidates == RULE
    old = copy.copy(ruled).set_params(candidates=rule)  # as older versions saved it
    old.save(tmp_path / "m.tabr")
    with pytest.raises(ModelFileError, match="write '365D' for 365 days; fit"):
        TabRRegressor.load(tmp_path / "m.tabr")


def test_a_rule_that_leaves_most_rows_alone_is_told() -> None:
    frame, y = table()
    each = frame.assign(who=range(len(frame)))
    for rule in (PastOnly("day", window="1us"), SameGroup("who"), PastOnly("who", 0.5)):
        with pytest.warns(UserWarning, match="100% of the candidates have no neighb"):
            model = TabRRegressor(**SMALL, candidates=rule).fit(each, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.restrict_candidates(PastOnly("day", window="40D"))
        model.restrict_candidates(None)
    with pytest.warns(UserWarning, match="of the candidates have no neighb") as told:
        model.restrict_candidates(PastOnly("day", gap="80D"))
    assert told[0].filename == __file__


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All searches to come, of training and of other rows: rules, found, exclude."""
    from tabr.candidates.exact_index import ExactIndex
    from tabr.candidates.point_index import PointIndex

    seen: list[Any] = []
    real, ask = PointIndex.neighbors, ExactIndex.nearest

    def watched(self, points, m, exclude=None, rules=None, *rest, **more):
        found = real(self, points, m, exclude, rules, *rest, **more)
        seen.append((rules, found, exclude))
        return found

    def asked(self, points, m, rules=None, *rest, **more):
        near, context = ask(self, points, m, rules, *rest, **more)
        seen.append((rules, near, None))
        return near, context

    monkeypatch.setattr(PointIndex, "neighbors", watched)
    monkeypatch.setattr(ExactIndex, "nearest", asked)
    return seen


def test_the_future_is_never_retrieved_in_training_either(searches: list[Any]) -> None:
    frame, y = table()
    how = {**SMALL, "ignore": IGNORE, "refit_candidates": False}
    model = TabRRegressor(**how, candidates=PastOnly("day"))
    model.fit(frame, y)
    train = model.candidates_.frame
    n_checked = 0
    for rules, (position, found), batch in searches:
        assert rules is not None
        if batch is None:
            continue
        days = train.day.to_numpy()
        before = days[position.numpy()] < days[batch.numpy()][:, None]
        assert before[found.numpy()].all()
        n_checked += int(found.sum())
    assert n_checked > 1000


def days_apart(model: Any, searches: list[Any]) -> NDArray[np.float64]:
    """Days between training rows and the neighbours that training found for them."""
    days = (model.candidates_.frame.day - pd.Timestamp(0)).dt.days.to_numpy()
    return np.concatenate([
        abs(days[position.numpy()] - days[batch.numpy()][:, None])[found.numpy()]
        for _, (position, found), batch in searches
        if batch is not None
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("how", "apart"),
    [
        ({}, True),
        ({"preset": "paper"}, False),
        ({"candidates": SameGroup("town")}, False),  # the user has said who may
    ],
)
def test_training_rows_learn_from_other_times_where_held_out_rows_lie_ahead(
    how: dict[str, Any], apart: bool, searches: list[Any]
) -> None:
    frame, y = table(600)
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(600), "D")
    held_out = frame[500:], y[500:]
    how = {**SMALL, "context_size": 4, **how}
    model = TabRRegressor(**how).fit(frame[:500], y[:500], eval_set=held_out)
    ten_periods = days_apart(model, searches) // 50
    same = (days_apart(model, searches) < 5).mean()
    assert len(ten_periods) > 1000
    assert (same < 0.01) == apart
    searches.clear()
    assert (model.neighbors(frame[500:]).ids >= 0).all()  # rows to come take anybody
    assert all(rules is None for rules, _, _ in searches) == ("candidates" not in how)


def test_a_time_that_most_rows_share_parts_nothing(searches: list[Any]) -> None:
    frame, y = table(300)
    frame["day"] = pd.Timestamp("2024-01-01")
    frame.loc[:90, "day"] -= pd.to_timedelta(np.arange(91), "D")
    frame.loc[250:, "day"] += pd.to_timedelta(np.arange(1, 51), "D")
    held_out = frame[250:], y[250:]
    model = TabRRegressor(**SMALL).fit(frame[:250], y[:250], eval_set=held_out)
    assert model.preprocessor_.trend == "day"
    assert all(rules is None for rules, _, _ in searches)


def test_rows_held_out_at_random_part_no_times(searches: list[Any]) -> None:
    frame, y = table(300)
    TabRRegressor(**SMALL).fit(frame, y)
    assert all(rules is None for rules, _, _ in searches)


def test_held_out_rows_are_the_latest() -> None:
    frame, y = table()
    how = {**SMALL, "ignore": IGNORE, "refit_candidates": False}
    model = TabRRegressor(**how, candidates=PastOnly("day"))
    model.fit(frame, y)
    held = np.setdiff1d(np.arange(len(frame)), model.candidates_.ids)
    assert 20 <= len(held) <= 40
    assert frame.day[held].min() > model.candidates_.frame.day.max()


def test_held_out_rows_are_whole_groups() -> None:
    frame, y = table()
    how = {**SMALL, "ignore": IGNORE, "refit_candidates": False}
    model = TabRRegressor(**how, candidates=NotSameGroup("who"))
    model.fit(frame, y)
    held = np.setdiff1d(np.arange(len(frame)), model.candidates_.ids)
    assert not set(frame.who[held]) & set(model.candidates_.frame.who)


def test_validation_rows_join_the_candidates_unless_told_otherwise() -> None:
    frame, y = table()
    how = {**SMALL, "ignore": IGNORE, "candidates": PastOnly("day")}
    alone = TabRRegressor(**how, refit_candidates=False).fit(frame, y)
    joined = TabRRegressor(**how).fit(frame, y)
    paper = TabRRegressor(**how, preset="paper").fit(frame, y)
    assert paper.candidates_.ids.tolist() == alone.candidates_.ids.tolist()
    assert joined.candidates_.ids.tolist() == list(range(len(frame)))
    np.testing.assert_allclose(joined.candidates_.y, y)
    pd.testing.assert_frame_equal(joined.candidates_.frame, frame)
    rows, _ = table(30, seed=2)
    held = set(range(len(frame))) - set(alone.candidates_.ids)
    assert set(joined.neighbors(rows).ids.ravel()) & held
    # The same as adding them by hand.
    added = alone.add_candidates(frame.iloc[sorted(held)], y.iloc[sorted(held)])
    assert len(added) == len(held)
    np.testing.assert_allclose(alone.predict(rows), joined.predict(rows), rtol=1e-4)


def test_validation_rows_of_an_eval_set_get_ids_behind_the_table() -> None:
    frame, y = table(80)
    others = table(20, seed=1)
    model = TabRRegressor(**SMALL, refit_candidates=True)
    model.fit(frame, y, eval_set=others)
    assert model.candidates_.ids.tolist() == list(range(100))
    model = TabRRegressor(**SMALL).fit(frame, y, eval_set=others)
    assert model.candidates_.ids.tolist() == list(range(80))


def test_a_row_that_may_take_nobody_is_predicted_alone(ruled: TabRRegressor) -> None:
    rows, _ = table(4, seed=3)
    rows.loc[:1, "day"] = pd.Timestamp("2020-01-01")
    rows.loc[2, "day"] = pd.NaT
    ids = ruled.neighbors(rows).ids
    assert (ids[:3] == -1).all() and (ids[3] >= 0).any()
    assert np.isfinite(ruled.predict(rows)).all()
    found = ruled.explain(rows)
    np.testing.assert_allclose(found.predictions[:3], found.alone[:3])
    assert (found.share[:3] == 0).all()


def test_a_function_may_rule_too() -> None:
    frame, y = table()
    rule = Where(lambda row, other: row["town"] == other["town"], ["town"])
    model = TabRRegressor(**SMALL, ignore=IGNORE, candidates=rule).fit(frame, y)
    same = TabRRegressor(**SMALL, ignore=IGNORE, candidates=SameGroup("town"))
    same.fit(frame, y)
    rows, _ = table(20, seed=4)
    np.testing.assert_array_equal(model.predict(rows), same.predict(rows))


def test_ignored_columns_are_no_features(plain: TabRRegressor) -> None:
    rows, _ = table(5, seed=1)
    expected = plain.predict(rows)
    rows["who"], rows["day"] = "nobody", pd.NaT
    np.testing.assert_array_equal(plain.predict(rows), expected)
    np.testing.assert_array_equal(plain.predict(rows.drop(columns=IGNORE)), expected)


def test_a_column_to_ignore_must_be_there() -> None:
    frame, y = table(30)
    with pytest.raises(DataError, match=r"it names \['whom'\]"):
        TabRRegressor(**SMALL, ignore=["whom"]).fit(frame, y)


def test_a_rule_without_its_column_is_refused(ruled: TabRRegressor) -> None:
    rows, _ = table(5, seed=1)
    with pytest.raises(DataError, match=r"\['who'\] are absent"):
        ruled.predict(rows.drop(columns="who"))
    frame, y = table()
    with pytest.raises(DataError, match=r"\['when'\] are absent"):
        TabRRegressor(**SMALL, candidates=PastOnly("when")).fit(frame, y)
    with pytest.raises(TypeError, match="candidates must be a rule"):
        TabRRegressor(**SMALL, candidates="past").fit(frame, y)


def test_a_rule_is_stored_with_the_model(ruled: TabRRegressor, tmp_path: Any) -> None:
    ruled.save(tmp_path / "m.tabr")
    loaded = TabRRegressor.load(tmp_path / "m.tabr")
    rows, _ = table(30, seed=1)
    np.testing.assert_array_equal(loaded.predict(rows), ruled.predict(rows))
    assert check_allowed(loaded, rows) > 0
    assert loaded.candidates == ruled.candidates


def test_a_function_must_be_set_again_after_loading(tmp_path: Any) -> None:
    frame, y = table()
    rule = Where(lambda row, other: row["a"] > other["a"], ["a"])
    model = TabRRegressor(**SMALL, candidates=rule).fit(frame, y)
    with pytest.warns(UserWarning, match="restrict_candidates after loading"):
        model.save(tmp_path / "m.tabr")
    loaded = TabRRegressor.load(tmp_path / "m.tabr")
    with pytest.raises(DataError, match="call restrict_candidates"):
        loaded.predict(frame)
    loaded.restrict_candidates(rule)
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))


def test_a_rule_may_change_after_training(plain: TabRRegressor, tmp_path: Any) -> None:
    plain.save(tmp_path / "m.tabr")
    model = TabRRegressor.load(tmp_path / "m.tabr")
    rows, _ = table(30, seed=1)
    model.restrict_candidates(RULE)
    assert check_allowed(model, rows) > 0
    model.restrict_candidates(None)
    np.testing.assert_array_equal(model.predict(rows), plain.predict(rows))


# --- the living memory --------------------------------------------------------


def fresh(**more: Any) -> TabRRegressor:
    frame, y = table()
    return TabRRegressor(**{**SMALL, "ignore": IGNORE, **more}).fit(frame, y)


def test_an_added_row_is_its_own_nearest_neighbour() -> None:
    model = fresh()
    rows, y = table(6, seed=9)
    before = model.predict(rows)
    ids = model.add_candidates(rows, y + 100)
    found = model.neighbors(rows)
    nearest = np.take_along_axis(found.ids, found.distances.argmin(1)[:, None], 1)
    assert nearest[:, 0].tolist() == ids.tolist()
    assert (np.abs(model.predict(rows) - before) > 0.01).all()
    model.remove_candidates(ids)
    assert not np.isin(model.neighbors(rows).ids, ids).any()


def test_adding_and_removing_leaves_predictions_as_they_were() -> None:
    model = fresh(n_members=2)
    rows, y = table(20, seed=9)
    before = model.predict(rows)
    ids = model.add_candidates(rows, y)
    assert not np.allclose(model.predict(rows), before)
    model.remove_candidates(ids[:10])
    model.remove_candidates(ids[10:])
    np.testing.assert_allclose(model.predict(rows), before, rtol=1e-6)


def test_labels_may_be_corrected() -> None:
    model = fresh()
    rows, _ = table(5, seed=9)
    ids = np.unique(model.neighbors(rows).ids)
    before = model.predict(rows)
    model.relabel_candidates(ids, np.full(len(ids), 50.0))
    assert (np.abs(model.predict(rows) - before) > 0.01).all()
    assert (model.explain(rows).to_frame().label == 50).all()


@pytest.mark.parametrize("kind", ["column", "label", "length", "rule"])
def test_a_bad_row_changes_nothing(kind: str) -> None:
    model = fresh(candidates=RULE)
    rows, y = table(6, seed=9)
    y = y.astype(object)
    before, frame = model.candidates_, model.predict(rows)
    if kind == "column":
        rows.loc[3, "a"] = np.inf
    elif kind == "label":
        y.iloc[3] = np.nan
    elif kind == "length":
        y = y.iloc[:5]
    else:
        rows["day"] = "no date"
    with pytest.raises((DataError, ValueError)):
        model.add_candidates(rows, y)
    assert model.candidates_ is before
    np.testing.assert_array_equal(model.predict(table(6, seed=9)[0]), frame)


def test_a_class_that_fit_did_not_see_is_refused() -> None:
    frame, y = table()
    model = TabRClassifier(**SMALL, ignore=IGNORE).fit(frame, y > 0)
    n = len(model.candidates_)
    with pytest.raises(DataError, match="classes that fit saw"):
        model.add_candidates(frame.head(2), ["maybe", "no"])
    model.add_candidates(frame.head(2), [True, False])
    model.relabel_candidates([len(frame)], [True])  # the first that was added
    assert len(model.candidates_) == n + 2


def test_an_unknown_id_removes_and_relabels_nobody() -> None:
    model = fresh()
    before = model.candidates_
    known = int(before.ids[0])
    with pytest.raises(KeyError, match="100000"):
        model.remove_candidates([known, 100000])
    with pytest.raises(KeyError, match="100000"):
        model.relabel_candidates([known, 100000], [0.0, 0.0])
    with pytest.raises((DataError, ValueError)):
        model.relabel_candidates([known], [0.0, 1.0])
    assert model.candidates_ is before


def test_changes_are_saved_with_the_model(tmp_path: Any) -> None:
    model = fresh(candidates=RULE)
    rows, y = table(8, seed=9)
    rows["day"] = pd.Timestamp("2024-03-01")
    ids = model.add_candidates(rows, y)
    model.remove_candidates(ids[-3:])
    model.relabel_candidates(ids[:1], [7.0])
    model.save(tmp_path / "m.tabr")
    loaded = TabRRegressor.load(tmp_path / "m.tabr")
    new, _ = table(20, seed=10)
    np.testing.assert_allclose(loaded.predict(new), model.predict(new), rtol=1e-6)
    assert loaded.candidates_.ids.tolist() == model.candidates_.ids.tolist()
    assert loaded.add_candidates(rows, y)[0] == ids[-1] + 1


def test_a_prediction_sees_all_of_an_update_or_nothing() -> None:
    """One thread adds and removes rows of huge labels together, another predicts."""
    model = fresh()
    rows, _ = table(12, seed=9)
    model.predict(rows)
    low = model.predict(rows)
    ids = model.add_candidates(rows, np.full(12, 1e3))
    high = model.predict(rows)
    model.remove_candidates(ids)
    stop = threading.Event()

    def update() -> None:
        while not stop.is_set():
            added = model.add_candidates(rows, np.full(12, 1e3))
            model.remove_candidates(added)

    thread = threading.Thread(target=update)
    thread.start()
    try:
        seen = [model.predict(rows) for _ in range(60)]
    finally:
        stop.set()
        thread.join()
    for one in seen:
        is_low = np.allclose(one, low, rtol=1e-4)
        assert is_low or np.allclose(one, high, rtol=1e-4)


def test_training_on_a_part_may_retrieve_from_the_whole() -> None:
    frame, y = table(400)
    long = {**SMALL, "max_epochs": 60, "learning_rate": 0.003}
    # The row's own numbers would tell most of these labels without any neighbour.
    long |= {"refit_candidates": False, "row_embedding": "none"}
    model = TabRRegressor(**long, ignore=IGNORE)
    model.fit(frame.iloc[:100], y.iloc[:100])
    new, truth = table(100, seed=5)
    before = np.abs(model.predict(new) - truth).mean()
    model.add_candidates(frame.iloc[100:], y.iloc[100:])
    assert np.abs(model.predict(new) - truth).mean() < before


# --- explanations -------------------------------------------------------------


@pytest.mark.parametrize("n_members", [1, 3])
def test_an_effect_is_the_prediction_minus_that_without_the_neighbour(
    n_members: int,
) -> None:
    model = fresh(n_members=n_members, candidates=SameGroup("who"), context_size=500)
    rows, _ = table(3, seed=1)
    found = model.explain(rows)
    np.testing.assert_allclose(found.predictions, model.predict(rows))
    # Every allowed candidate is in the context: removing one masks it, no more.
    for row in range(3):
        for k in (0, 2):
            one = found.table.ids[row, k]
            other = fresh(
                n_members=n_members, candidates=SameGroup("who"), context_size=500
            )
            other.remove_candidates([one])
            without = other.predict(rows.iloc[[row]])[0]
            expected = found.predictions[row] - without
            assert found.effects[row, k] == pytest.approx(expected, abs=1e-5)


def test_explanations_agree_with_neighbours(plain: TabRRegressor) -> None:
    rows, _ = table(7, seed=1)
    found, near = plain.explain(rows), plain.neighbors(rows)
    for mine, theirs in zip(found.table, near, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    frame = found.to_frame()
    assert list(frame.columns[:7]) == [
        "row", "neighbor", "weight", "effect", "distance", "label", "correction",
    ]  # fmt: skip
    assert len(frame) == 7 * 12
    label = dict(zip(plain.candidates_.ids, plain.candidates_.y, strict=True))
    assert frame.label.tolist() == [label[i] for i in frame.neighbor]
    own = plain.candidates_.look_up(frame.neighbor)
    np.testing.assert_array_equal(frame.town, own.town)
    gap = found.to_frame(top=2, differences=True)
    assert len(gap) == 14
    np.testing.assert_allclose(
        gap["a - row's"], gap.a - rows.a.to_numpy()[gap.row.to_numpy()]
    )


def test_labels_that_are_corrected_come_nearer_to_the_truth() -> None:
    frame, y = table(300)
    # By the default a table this small is learned from the rows' own numbers.
    how = {**SMALL, "preset": "paper", "max_epochs": 12, "learning_rate": 0.01}
    model = TabRRegressor(**how, ignore=IGNORE)
    model.fit(frame, y)
    rows, truth = table(80, seed=3)
    found = model.explain(rows)
    assert found.corrections is not None
    raw = np.abs(found.labels - truth.to_numpy()[:, None]).mean()
    mended = np.abs(found.labels + found.corrections - truth.to_numpy()[:, None]).mean()
    assert mended < raw


def test_effects_of_classes_are_changes_of_the_probability() -> None:
    frame, y = table()
    model = TabRClassifier(**SMALL, ignore=IGNORE).fit(frame, np.sign(y).astype(int))
    rows, _ = table(5, seed=1)
    found = model.explain(rows)
    assert found.answers.tolist() == model.predict(rows).tolist()
    np.testing.assert_allclose(found.predictions, model.predict_proba(rows).max(1))
    np.testing.assert_allclose(found.probabilities, model.predict_proba(rows))
    assert found.corrections is None and "correction" not in found.to_frame()
    assert ((found.share >= 0) & (found.share <= 1)).all()
    assert np.abs(found.effects).max() < 1


def test_an_explanation_shows_itself(plain: TabRRegressor) -> None:
    rows, _ = table(5, seed=1)
    found = plain.explain(rows)
    text = repr(found)
    assert "without neighbours" in text and "2 more rows" in text
    assert str(found.table.ids[0, 0]) in text
    page = found._repr_html_()
    assert page.count("<table>") == 3 and "<th>corrected</th>" in page


def test_an_explanation_is_drawn(plain: TabRRegressor) -> None:
    pytest.importorskip("matplotlib")
    rows, _ = table(2, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plain.explain(rows).plot(row=1, top=6)
    assert [len(axis.patches) for axis in figure.axes] == [6, 6]


def test_each_row_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By fit, calibration included, and by each question and change after it."""
    from tabr.tables.preprocessor import Preprocessor

    encoded = []
    real = Preprocessor._encode

    def counted(self, frame):
        encoded.append(len(frame))
        return real(self, frame)

    monkeypatch.setattr(Preprocessor, "_encode", counted)
    frame, y = table()
    model = TabRRegressor(**SMALL, ignore=IGNORE, refit_candidates=True).fit(frame, y)
    assert sum(encoded) == len(frame)
    for ask in (model.predict, model.explain, model.neighbors, model.predict_interval):
        encoded.clear()
        ask(frame.head(7))
        assert sum(encoded) == 7
    encoded.clear()
    model.add_candidates(frame.head(5), y[:5])
    assert sum(encoded) == 5

"""Several members as one: weights, temperature, rows that were held out."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tabr import NotSameGroup, PastOnly, TabRClassifier, TabRRegressor
from tabr.config import PRESETS
from tabr.estimators import load_model
from tabr.prediction.blend import blend_weights, temperature, tempered
from tabr.training import pack

FAST = {"preset": "best", "n_members": 3, "max_epochs": 3, "width": 12}
FAST |= {"context_size": 8, "random_state": 0}


def numbers(n: int = 150, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.RandomState(seed)
    frame = pd.DataFrame(
        {
            "a": rng.standard_normal(n),
            "b": rng.standard_normal(n),
            "town": rng.choice(["x", "y", "z"], n),
            "when": np.arange(n),
        }
    )
    return frame, (frame.a * 2 + (frame.town == "x")).to_numpy()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each fold was asked, in every fit."""
    seen: list[Any] = []
    ask = pack._ask

    def spy(*arguments: Any) -> Any:
        seen.append((arguments[1], ask(*arguments)))
        return seen[-1][1]

    monkeypatch.setattr(pack, "_ask", spy)
    return seen


def test_each_row_is_predicted_by_members_that_did_not_learn_from_it(
    asked: list[Any],
) -> None:
    X, y = numbers()
    model = TabRRegressor(**FAST).fit(X, y)
    held = []
    for fold, answer in asked:
        out = fold.held_out.sample.ids
        assert not set(out) & set(fold.learned)
        assert not set(out) & set(answer.candidates.ids)
        assert {member.recipe for member in answer.members} == set(
            PRESETS["best"].recipes
        )
        held.append(out)
    np.testing.assert_array_equal(np.sort(np.concatenate(held)), np.arange(len(X)))
    np.testing.assert_array_equal(model.candidates_.ids, np.arange(len(X)))
    assert len(model.calibration_.scores) == len(X)


def test_weights_of_recipes_are_learned_from_all_held_out_rows(
    asked: list[Any],
) -> None:
    X, y = numbers()
    model = TabRRegressor(**FAST).fit(X, y)
    names = list(PRESETS["best"].recipes)
    predictions = np.full((len(names), len(X)), np.nan)
    for fold, answer in asked:
        for member in answer.members:
            network = member.network
            outputs = [
                o
                for m, o in zip(answer.members, answer.outputs, strict=True)
                if m.network is network
            ]
            values = model.target_.predictions(outputs[0].output.prediction)
            values = values.clip(*answer.candidates.limits)
            predictions[names.index(member.recipe), fold.held_out.sample.ids] = values
    order = np.concatenate([fold.held_out.sample.ids for fold, _ in asked])
    expected = blend_weights(predictions[:, order], y[order])
    for name, weight in zip(names, expected, strict=True):
        of_name = [m.weight for m in model.members_ if m.recipe == name]
        assert sum(of_name) == pytest.approx(weight)


@pytest.mark.parametrize("n_members", [1, 3])
def test_with_an_eval_set_all_members_learn_from_all_rows(n_members: int) -> None:
    X, y = numbers(200)
    model = TabRRegressor(**{**FAST, "n_members": n_members})
    model.fit(X[:150], y[:150], eval_set=(X[150:], y[150:]))
    assert {member.fold for member in model.members_} == {0}
    assert len(model.candidates_) == 150
    assert len(model.calibration_.scores) == 50


def test_the_mean_of_members_is_predicted_by_their_weights() -> None:
    X, y = numbers()
    model = TabRRegressor(**FAST).fit(X, y)
    table = model.explain(X.head(9)).members
    assert table.weights.sum() == pytest.approx(1)
    mean = table.predictions @ table.weights
    np.testing.assert_allclose(mean, model.predict(X.head(9)))
    frame = table.to_frame()
    assert len(frame) == 9 * len(model.members_)
    assert set(frame.recipe) == {member.recipe for member in model.members_}


def test_an_explanation_says_from_where_to_where_members_go() -> None:
    X, y = numbers()
    model = TabRRegressor(**FAST).fit(X, y)
    why = model.explain(X.head(2))
    said = why.members.predictions[0]
    words = f"{len(said)} members say {said.min():.4g} to {said.max():.4g}"
    assert words in repr(why) and words in why._repr_html_()
    model.members_ = model.members_[:1]
    assert "members" not in repr(model.explain(X.head(2)))


def test_effects_are_those_of_leaving_a_neighbour_out_of_all_members() -> None:
    X, y = numbers()
    flags = y > np.median(y)
    for model, labels in ((TabRRegressor(**FAST), y), (TabRClassifier(**FAST), flags)):
        model.fit(X, labels)
        row = X.head(1)
        explained = model.explain(row)
        id = explained.table.ids[0, 0]
        chosen = explained.answers[0]
        model.remove_candidates([id])
        near = model.neighbors(row).ids
        assert id not in near
        # Not the same as leaving it out: the next best takes its place. But close.
        if isinstance(model, TabRRegressor):
            after = model.predict(row)[0]
        else:
            after = model.predict_proba(row)[0, list(model.classes_).index(chosen)]
        change = explained.predictions[0] - after
        assert abs(explained.effects[0, 0] - change) < 0.3 * np.std(labels)


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_a_saved_pack_predicts_the_same_bits(kind: str, tmp_path: Any) -> None:
    X, y = numbers()
    model: Any = TabRRegressor(**FAST)
    if kind == "classes":
        model, y = TabRClassifier(**FAST), np.where(y > 1, "high", "low")
    model.fit(X, y)
    model.temperature_ = 1.25 if kind == "classes" else 1.0
    model.members_[0].weight *= 0.5
    model.save(tmp_path / "pack.tabr")
    again = load_model(tmp_path / "pack.tabr", device="cpu")
    for name in ("recipe", "fold", "weight"):
        ours = [getattr(member, name) for member in model.members_]
        assert ours == [getattr(member, name) for member in again.members_]
    ask = "predict_proba" if kind == "classes" else "predict"
    np.testing.assert_array_equal(getattr(again, ask)(X), getattr(model, ask)(X))
    np.testing.assert_array_equal(again.neighbors(X).ids, model.neighbors(X).ids)


def test_weights_and_temperature_change_predictions() -> None:
    X, y = numbers()
    model = TabRClassifier(**FAST).fit(X, y > 0)
    before = model.predict_proba(X)
    model.temperature_ = 2.0
    softer = model.predict_proba(X)
    assert np.abs(softer - 0.5).mean() < np.abs(before - 0.5).mean()
    model.temperature_ = 1.0
    for member in model.members_[1:]:
        member.weight = 1e-9
    one = model.predict_proba(X)
    assert not np.allclose(one, before)


def test_probabilities_of_a_network_alone_are_tempered_by_rows_it_held_out() -> None:
    X, y = numbers(400)
    flags = (y > 0) ^ (np.random.RandomState(0).rand(400) < 0.3)
    held_out = X[300:], flags[300:]
    options = {**FAST, "preset": "default", "n_members": 1, "max_epochs": 40}
    options |= {"dropout": 0.0, "column_dropout": 0.0, "learning_rate": 0.01}
    # The last epoch is the best to this score: probabilities become far too sure.
    options["scoring"] = lambda model, X, y: time.perf_counter()
    model = TabRClassifier(**options).fit(X[:300], flags[:300], eval_set=held_out)
    t, model.temperature_ = model.temperature_, 1.0
    probabilities = model.predict_proba(held_out[0])
    codes = held_out[1].astype(int)
    assert t == pytest.approx(temperature(partial(tempered, probabilities), codes))
    assert t > 1
    model.temperature_ = t
    np.testing.assert_allclose(
        model.predict_proba(held_out[0]), tempered(probabilities, t)
    )


@pytest.mark.parametrize(("smoothing", "is_sure"), [(0.0, True), (0.6, False)])
def test_members_of_folds_are_sharpened_but_not_softened(
    smoothing: float, is_sure: bool
) -> None:
    X, y = numbers(400)
    noise = 0.3 if is_sure else 0.0
    flags = (y > 0) ^ (np.random.RandomState(0).rand(400) < noise)
    options = {**FAST, "preset": "default", "max_epochs": 30}
    options |= {"dropout": 0.0, "learning_rate": 0.01, "label_smoothing": smoothing}
    # The last epoch is the best to this score: probabilities become far too sure.
    options["scoring"] = lambda model, X, y: time.perf_counter()
    model = TabRClassifier(**options).fit(X, flags)
    assert len({member.fold for member in model.members_}) == FAST["n_members"]
    if is_sure:
        assert model.temperature_ == 1
    else:
        assert model.temperature_ < 1


def test_rows_that_are_added_are_seen_by_all_members() -> None:
    X, y = numbers()
    model = TabRRegressor(**FAST).fit(X, y)
    before = model.predict(X.head(3))
    ids = model.add_candidates(X.head(3), np.full(3, 50.0))
    assert set(ids) <= set(model.neighbors(X.head(3)).ids.ravel())
    assert (model.predict(X.head(3)) != before).all()


def test_folds_respect_groups_and_times(asked: list[Any]) -> None:
    X, y = numbers()
    TabRRegressor(**FAST, candidates=NotSameGroup("town")).fit(X, y)
    for fold, _ in asked:
        learned, held = X.town[fold.learned], fold.held_out.sample.frame.town
        assert not set(learned) & set(held)
    asked.clear()
    TabRRegressor(**FAST, candidates=PastOnly("when")).fit(X, y)
    for fold, answer in asked:
        first = fold.held_out.sample.frame.when.min()
        assert X.when[fold.learned].max() < first
        assert answer.candidates.frame.when.max() < first


def test_members_of_the_paper_hold_out_the_same_rows() -> None:
    X, y = numbers()
    params = {**FAST, "preset": "paper"}
    model = TabRRegressor(**params).fit(X, y)
    assert len(model.members_) == 3
    assert len(model.candidates_) == 120
    assert {member.weight for member in model.members_} == {1.0}


def test_a_parameter_that_is_given_overrides_all_recipes() -> None:
    X, y = numbers()
    model = TabRRegressor(**FAST, n_heads=2, embedding="none").fit(X, y)
    configs = [member.network.config for member in model.members_]
    assert {config.n_heads for config in configs} == {2}
    assert {config.embedding for config in configs} == {None}


def test_a_time_limit_leaves_members_out_and_never_fails() -> None:
    X, y = numbers(400)
    params = {**FAST, "n_members": 5, "max_epochs": None, "patience": 100}
    start = time.perf_counter()
    model = TabRRegressor(**params, time_limit=1.0).fit(X, y)
    assert time.perf_counter() - start < 30  # training itself would take minutes
    assert 1 <= len(model.members_) < 15
    assert np.isfinite(model.predict(X)).all()
    tiny = TabRRegressor(**params, time_limit=1e-3).fit(X, y)
    assert len(tiny.members_) == 1


def test_no_number_beyond_the_labels_of_candidates_is_predicted() -> None:
    X, y = numbers()
    far = X.head(20).assign(a=1e6, b=-1e6)
    model = TabRRegressor(**{**FAST, "preset": "default", "n_members": 1}).fit(X, y)
    low, high = model.candidates_.y.min(), model.candidates_.y.max()
    with_limits = model.predict(far)
    assert ((low <= with_limits) & (with_limits <= high)).all()
    for member in model.members_:  # a network that says far too much
        list(member.network.head.children())[-1].bias.data += 1e3
    model.candidates_ = model.candidates_.taken(np.arange(len(model.candidates_)))
    np.testing.assert_allclose(model.predict(X), high)
    model.add_candidates(X.head(1), [high + 7])
    np.testing.assert_allclose(model.predict(X), high + 7)

"""The scikit-learn surface: what users call, with real tables."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from tabr import (
    DataError,
    EmbeddingConfig,
    NotSameGroup,
    RetrievalConfig,
    TabRClassifier,
    TabRRegressor,
)
from tabr.config import STEPS

SMALL = {
    "n_members": 1,
    "width": 16,
    "context_size": 8,
    "max_epochs": 3,
    "random_state": 0,
}
# The checks want models that learn tiny tables by heart, and quickly.
EAGER = {
    "width": 32,
    "context_size": 16,
    "max_epochs": 40,
    "learning_rate": 5e-3,
    "dropout": 0.0,
    "context_dropout": 0.0,
    "random_state": 0,
}


def expected_failures(_: object) -> dict[str, str]:
    return {
        "check_sample_weight_equivalence_on_dense_data": (
            "weights weigh losses: a row repeated twice is also two candidates"
        )
    }


@parametrize_with_checks(
    [TabRRegressor(**EAGER), TabRClassifier(**EAGER)],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks_pass(estimator: Any, check: Any) -> None:
    check(estimator)


def people(n: int = 200, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Make a table with every kind of column, and a number that depends on it."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, n).astype(float)
    city = rng.choice(["Bern", "Oslo", "Lima"], n)
    frame = pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, age),
            "city": city,
            "member": rng.random(n) < 0.5,
            "since": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "income": rng.lognormal(10, 1, n),
        }
    )
    return frame, age / 10 + 3 * (city == "Oslo") + rng.normal(0, 0.1, n)


def as_polars(frame: pd.DataFrame) -> Any:
    polars = pytest.importorskip("polars", reason="pip install 'tabr[polars]'")
    return polars.DataFrame({name: frame[name].to_list() for name in frame})


@pytest.mark.parametrize(
    "make",
    [lambda f: f, as_polars, lambda f: pa.Table.from_pandas(f)],
    ids=["pandas", "polars", "pyarrow"],
)
def test_any_make_of_table_gives_the_same_predictions(make: Any) -> None:
    frame, y = people()
    model = TabRRegressor(**SMALL).fit(make(frame), y)
    expected = TabRRegressor(**SMALL).fit(frame, y).predict(frame)
    np.testing.assert_allclose(model.predict(make(frame)), expected, rtol=1e-5)
    np.testing.assert_allclose(model.predict(frame), expected, rtol=1e-5)


def test_numpy_arrays_and_lists_of_rows_are_tables() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = TabRRegressor(**SMALL).fit(X, y)
    np.testing.assert_array_equal(model.predict(X[:5]), model.predict(X[:5].tolist()))
    assert model.n_features_in_ == 10
    assert not hasattr(model, "feature_names_in_")


def test_it_learns() -> None:
    frame, y = people(600)
    test, y_test = people(200, seed=1)
    model = TabRRegressor(**{**SMALL, "max_epochs": 40, "learning_rate": 3e-3})
    assert model.fit(frame, y).score(test, y_test) > 0.8
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    model = TabRClassifier(**{**SMALL, "max_epochs": 20, "learning_rate": 3e-3})
    assert model.fit(X, y).score(X_test, y_test) > 0.93


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [7, 3], [0.0, 1.0]])
def test_two_classes_of_any_type(labels: list[Any]) -> None:
    X, codes = load_breast_cancer(return_X_y=True, as_frame=True)
    y = np.array(labels)[codes]
    model = TabRClassifier(**SMALL).fit(X, y)
    assert set(model.predict(X)) <= set(labels)
    assert model.classes_.tolist() == sorted(labels)
    probability = model.predict_proba(X)
    assert probability.shape == (len(X), 2)
    np.testing.assert_allclose(probability.sum(1), 1)
    likeliest = model.classes_[probability.argmax(1)]
    np.testing.assert_array_equal(model.predict(X), likeliest)


def test_many_classes() -> None:
    X, codes = load_iris(return_X_y=True, as_frame=True)
    y = pd.Series(codes).map({0: "setosa", 1: "versicolor", 2: "virginica"})
    model = TabRClassifier(**{**SMALL, "max_epochs": 20, "learning_rate": 1e-2})
    assert model.fit(X, y).score(X, y) > 0.9
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]


def test_columns_may_come_in_any_order_and_number() -> None:
    frame, y = people()
    model = TabRRegressor(**SMALL).fit(frame, y)
    other = frame[frame.columns[::-1]].assign(more=1)
    np.testing.assert_array_equal(model.predict(other), model.predict(frame))
    with pytest.raises(DataError, match="city"):
        model.predict(frame.drop(columns="city"))
    assert model.feature_names_in_.tolist() == frame.columns.tolist()


def test_missing_unseen_and_new_values_are_predicted() -> None:
    frame, y = people()
    model = TabRRegressor(**SMALL).fit(frame, y)
    odd = frame.head(3).copy()
    odd.loc[0, "city"] = "Rome"
    odd.loc[1, "city"] = None
    odd.loc[2, ["age", "income"]] = np.nan
    predictions = model.predict(odd)
    assert np.isfinite(predictions).all()
    assert (predictions != model.predict(frame.head(3))).all()


def test_column_kinds_can_be_overridden() -> None:
    frame, y = people()
    model = TabRRegressor(**SMALL, column_kinds={"age": "categorical"}).fit(frame, y)
    assert model.preprocessor_.kinds_["age"] == "categorical"


# Of each two values one must make another model than the other.
OPTIONS: list[dict[str, list[Any]]] = [
    {"normalization": ["quantile", "standard", "none"]},
    {"mode": ["fixed", "paper"], "normalization": ["quantile"]},  # its noise
    {"mode": ["fixed", "paper"], "normalization": ["none"], "weight_decay": [0.5]},
    {"embedding": [None, "lr", "plr", "plr-lite", EmbeddingConfig("plr", 4)]},
    {"freeze_after": [None, 0, 1]},
    {"width": [32, 40]},
    {"encoder_blocks": [0, 1]},
    {"predictor_blocks": [0, 1, 2]},
    {"context_size": [8, 16]},
    {"dropout": [0.0, 0.3]},
    {"context_dropout": [0.0, 0.3]},
    {"column_dropout": [0.0, 0.3]},
    {"learning_rate": [0.005, 0.001]},
    {"weight_decay": [0.0, 0.5]},
    {"batch_size": [None, 64]},
    {"max_epochs": [1, 2]},
    {"random_state": [0, 1]},
    {"n_members": [1, 2]},
    {"validation_fraction": [0.2, 0.4]},
    {"candidate_share": [None, 0.5]},
    {"n_heads": [None, 4]},
    {"row_embedding": ["none", "bins", "pbld"]},
    {"scale_layer": [True, False]},
    {"betas": [None, (0.9, 0.999)]},
    {"gradient_clip": [None, 0.01]},
    {"weight_average": [0, 2]},
    {"schedule": ["constant", "flat-cosine"], "max_epochs": [4]},
    {"preset": ["default", "best", "paper"], "n_members": [1]},
    {"refit_candidates": [False, True]},
    {"ignore": [(), ("bmi",)]},
    {"column_kinds": [None, {"bmi": "categorical"}]},
    {"candidates": [None, NotSameGroup("sex")]},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
def test_no_option_is_ignored(options: dict[str, list[Any]]) -> None:
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    common = {**SMALL, "max_epochs": 2}
    predictions = []
    for values in itertools.product(*options.values()):
        chosen = dict(zip(options, values, strict=True))
        model = TabRRegressor(**{**common, **chosen}).fit(X, y)
        predictions.append(model.predict(X))
        assert np.isfinite(predictions[-1]).all()
    for one, other in itertools.combinations(predictions, 2):
        assert not np.array_equal(one, other)


def test_few_rows_of_classes_are_learned_without_some_columns() -> None:
    X, y = load_diabetes(return_X_y=True)
    rates = []
    for estimator, labels in ((TabRClassifier, y > 150), (TabRRegressor, y)):
        model = estimator(n_members=1, max_epochs=1, width=8).fit(X, labels)
        rates.append(model.members_[0].network.config.column_dropout)
    assert rates == [0.2, 0.0]


def test_each_point_of_the_design_space_is_another_model() -> None:
    X, y = load_iris(return_X_y=True)
    predictions = []
    for retrieval in [*STEPS, RetrievalConfig(value=("label",))]:
        model = TabRClassifier(**{**SMALL, "max_epochs": 2}, retrieval=retrieval)
        predictions.append(model.fit(X, y).predict_proba(X))
        assert predictions[-1].shape == (150, 3)
    for one, other in itertools.combinations(predictions, 2):
        assert not np.array_equal(one, other)


def test_eval_set_is_what_stops_training() -> None:
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = TabRRegressor(**SMALL).fit(X[:300], y[:300], eval_set=(X[300:], y[300:]))
    assert len(model.candidates_) == 300
    rmse = np.sqrt(np.mean((model.predict(X[300:]) - y[300:]) ** 2))
    assert model.history_.score.max() == pytest.approx(-rmse, rel=1e-5)


def test_without_eval_set_a_share_is_held_out_by_class() -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = TabRClassifier(**SMALL, validation_fraction=0.3, refit_candidates=False)
    model.fit(X, y)
    assert len(model.candidates_) == 105
    assert np.bincount(y[model.candidates_.ids]).tolist() == [35, 35, 35]


def test_of_many_rows_a_smaller_share_is_held_out() -> None:
    rng = np.random.RandomState(0)
    one = {**SMALL, "max_epochs": 1, "refit_candidates": False}
    for n_rows, by_default, of_the_paper in ((1000, 200, 200), (4000, 400, 800)):
        X, y = rng.normal(size=(n_rows, 1)), rng.normal(size=n_rows)
        for preset, n_held in (("default", by_default), ("paper", of_the_paper)):
            model = TabRRegressor(**one, preset=preset).fit(X, y)
            assert len(model.candidates_) == n_rows - n_held


def test_a_share_that_is_named_is_held_out_from_all_members() -> None:
    X, y = load_diabetes(return_X_y=True)
    three = {**SMALL, "n_members": 3}
    by_folds = TabRRegressor(**three).fit(X, y)
    assert len({member.fold for member in by_folds.members_}) == 3
    for options in ({"validation_fraction": 0.2}, {"refit_candidates": False}):
        alike = TabRRegressor(**three, **options).fit(X, y)
        assert [member.fold for member in alike.members_] == [0, 0, 0]
    assert len(alike.candidates_) == len(X) - 88  # of 442, a fifth


def test_few_rows_are_learned_by_several_networks_of_the_default_preset() -> None:
    X, y = np.random.RandomState(0).normal(size=(2, 1000))
    few = {name: value for name, value in SMALL.items() if name != "n_members"}
    few |= {"max_epochs": 1}
    for n_rows, n_members in ((999, 5), (1000, 1)):
        model = TabRRegressor(**few).fit(X[:n_rows, None], y[:n_rows])
        assert len(model.members_) == n_members
        assert model.n_networks(n_rows) == n_members
    paper = TabRRegressor(**few, preset="paper").fit(X[:99, None], y[:99])
    assert len(paper.members_) == 1


def test_eval_set_with_an_unknown_class_is_refused() -> None:
    X, y = load_iris(return_X_y=True)
    known = y < 2
    with pytest.raises(DataError, match="2"):
        TabRClassifier(**SMALL).fit(X[known], y[known], eval_set=(X, y))


@pytest.mark.parametrize("scoring", ["neg_mean_absolute_error", "r2", "callable"])
def test_any_scorer_can_stop_training(scoring: Any) -> None:
    if scoring == "callable":
        scoring = make_scorer(mean_absolute_error, greater_is_better=False)
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = TabRRegressor(**SMALL, scoring=scoring)
    model.fit(X[:300], y[:300], eval_set=(X[300:], y[300:]))
    from sklearn.metrics import check_scoring

    expected = check_scoring(model, scoring)(model, X[300:], y[300:])
    assert model.history_.score.max() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("scoring", ["roc_auc", "neg_log_loss", "accuracy", "f1"])
def test_scorers_of_probabilities_can_stop_training(scoring: str) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = TabRClassifier(**SMALL, scoring=scoring)
    model.fit(X[:400], y[:400], eval_set=(X[400:], y[400:]))
    from sklearn.metrics import get_scorer

    model.temperature_ = 1.0  # it was found after training
    expected = get_scorer(scoring)(model, X[400:], y[400:])
    assert model.history_.score.max() == pytest.approx(expected, rel=1e-5)


def test_rows_of_weight_zero_are_not_there() -> None:
    X, y = load_diabetes(return_X_y=True)
    weight = np.ones(len(y))
    weight[:100] = 0
    a = TabRRegressor(**SMALL).fit(X, y, sample_weight=weight)
    b = TabRRegressor(**SMALL).fit(X[100:], y[100:])
    np.testing.assert_array_equal(a.predict(X), b.predict(X))
    assert a.candidates_.ids.min() >= 100


@pytest.mark.parametrize("weight", [[1.0], np.full(442, -1.0), np.zeros(442)])
def test_bad_weights_are_refused(weight: Any) -> None:
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(DataError, match="sample_weight"):
        TabRRegressor(**SMALL).fit(X, y, sample_weight=weight)


def test_members_differ_and_their_mean_is_predicted() -> None:
    X, y = load_diabetes(return_X_y=True)
    eval_set = (X[300:], y[300:])
    ensemble = TabRRegressor(**{**SMALL, "n_members": 3})
    ensemble.fit(X[:300], y[:300], eval_set=eval_set)
    singles = [
        TabRRegressor(**{**SMALL, "random_state": k})
        .fit(X[:300], y[:300], eval_set=eval_set)
        .predict(X)
        for k in range(3)
    ]
    assert not np.allclose(singles[0], singles[1])
    np.testing.assert_allclose(ensemble.predict(X), np.mean(singles, 0), rtol=1e-6)
    assert len(ensemble.members_) == len(ensemble.best_epoch_) == 3
    assert set(ensemble.history_.member) == {0, 1, 2}


def test_members_may_stop_at_different_epochs() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = TabRRegressor(
        **{**SMALL, "max_epochs": 60, "n_members": 4}, patience=1, learning_rate=1e-2
    ).fit(X, y)
    assert len(set(model.history_.groupby("member").size())) > 1


def test_same_seed_gives_the_same_bits() -> None:
    frame, y = people()
    a, b, c = (
        TabRRegressor(**{**SMALL, "random_state": s}).fit(frame, y).predict(frame)
        for s in (0, 0, 1)
    )
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_fit_touches_no_global_random_state() -> None:
    np.random.seed(3)
    torch.manual_seed(3)
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()
    frame, y = people()
    TabRRegressor(**SMALL).fit(frame, y)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_prediction_of_a_row_does_not_depend_on_the_others() -> None:
    frame, y = people()
    model = TabRRegressor(**SMALL).fit(frame, y)
    whole = model.predict(frame)
    for i in (0, 17, 199):
        alone = model.predict(frame.iloc[[i]])
        np.testing.assert_allclose(alone, whole[[i]], rtol=1e-9)
    parts = [model.predict(frame.iloc[i : i + 7]) for i in range(0, 200, 7)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-9)


def test_neighbors_are_the_rows_that_were_looked_at() -> None:
    frame, y = people()
    for n_members in (1, 3):
        model = TabRRegressor(**{**SMALL, "n_members": n_members}).fit(frame, y)
        found = model.neighbors(frame.head(7))
        assert found.ids.shape == found.weights.shape == found.distances.shape == (7, 8)
        assert set(found.ids.ravel()) <= set(model.candidates_.ids)
        assert (np.diff(found.weights, axis=1) <= 0).all()
        assert (found.weights.sum(1) <= 1 + 1e-6).all()
        assert (found.distances >= 0).all()
        rows = model.candidates_.look_up(found.ids[0])
        pd.testing.assert_frame_equal(rows, frame.loc[found.ids[0]], check_names=False)


def test_a_candidate_is_its_own_first_neighbour_when_asked_again() -> None:
    frame, y = people()
    model = TabRRegressor(**SMALL).fit(frame, y)
    ids = model.candidates_.ids[:5]
    found = model.neighbors(frame.loc[ids])
    np.testing.assert_array_equal(found.ids[:, 0], ids)
    np.testing.assert_allclose(found.distances[:, 0], 0, atol=1e-2)


def test_fewer_candidates_than_asked_for() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = TabRRegressor(**{**SMALL, "context_size": 96}).fit(X[:12], y[:12])
    assert model.neighbors(X[:2]).ids.shape == (2, len(model.candidates_))


def test_an_interruption_keeps_the_best_so_far(monkeypatch: Any) -> None:
    calls = iter(range(100))

    def scorer(estimator: Any, X: Any, y: Any) -> float:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return 0.0

    frame, y = people()
    model = TabRRegressor(**{**SMALL, "max_epochs": 9, "n_members": 3}, scoring=scorer)
    with pytest.warns(UserWarning, match="interrupted"):
        model.fit(frame, y)
    assert len(model.members_) == 1
    assert np.isfinite(model.predict(frame)).all()


def test_a_failed_fit_leaves_the_old_model() -> None:
    frame, y = people()
    model = TabRRegressor(**SMALL).fit(frame, y)
    before = model.predict(frame)
    with pytest.raises(DataError):
        model.fit(frame, np.full(len(y), np.nan))
    np.testing.assert_array_equal(model.predict(frame), before)


def test_pickled_and_cloned_models_do_as_the_original() -> None:
    frame, y = people()
    model = TabRRegressor(**{**SMALL, "n_members": 2}).fit(frame, y)
    model.predict(frame)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(frame), model.predict(frame))
    fresh = clone(model)
    assert fresh.get_params() == model.get_params()
    for ask in (fresh.predict, fresh.neighbors, fresh.save):
        with pytest.raises(NotFittedError):
            ask(frame)
    for name in ("history_", "best_epoch_"):
        assert not hasattr(fresh, name)


def test_pipelines_cross_validation_and_grid_search() -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    pipeline = make_pipeline(FunctionTransformer(), TabRClassifier(**SMALL))
    assert cross_val_score(pipeline, X, y, cv=2).shape == (2,)
    grid = GridSearchCV(TabRClassifier(**SMALL), {"width": [8, 16]}, cv=2).fit(X, y)
    assert grid.best_params_["width"] in (8, 16)


def test_verbose_shows_progress(capsys: Any) -> None:
    frame, y = people()
    TabRRegressor(**{**SMALL, "n_members": 2}, verbose=True).fit(frame, y)
    shown = capsys.readouterr().err
    assert "member 2 of 2" in shown and "score" in shown
    TabRRegressor(**SMALL).fit(frame, y)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_members": 0}, "`n_members >= 1` must hold, however: n_members=0"),
        ({"context_size": 0}, "`context_size >= 1`"),
        ({"width": -1}, "`width > 0`"),
        ({"dropout": 1.5}, "`0 <= dropout < 1`"),
        ({"embedding": "ple"}, "embedding must be"),
        ({"retrieval": "step-9"}, "retrieval must be"),
        ({"mode": "fast"}, "mode must be"),
        ({"device": "warp"}, "device must be one that this machine has"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"normalization": "log"}, "normalization"),
        ({"batch_size": -4}, "batch_size"),
    ],
)
def test_wrong_parameters_are_named_in_fit(parameters: Any, message: str) -> None:
    frame, y = people(20)
    model = TabRRegressor(**{**SMALL, **parameters})  # the constructor only stores
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        model.fit(frame, y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpu_and_cpu_models_agree_on_how_well_they_learn() -> None:
    frame, y = people(600)
    test, y_test = people(200, seed=1)
    settings = {**SMALL, "max_epochs": 30, "learning_rate": 3e-3}
    cpu, gpu = (
        TabRRegressor(**settings, device=device).fit(frame, y).score(test, y_test)
        for device in ("cpu", "cuda")
    )
    assert abs(cpu - gpu) < 0.05

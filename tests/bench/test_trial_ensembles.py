"""Ensembles of made-up trials, whose predictions lie in files as those of searches."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tabr.bench.results import (
    Plan,
    Predictions,
    all_scores,
    read_predictions,
    write_predictions,
)
from tabr.bench.tasks.catalog import select
from tabr.bench.trial_ensembles import (
    MOST_MEMBERS,
    TrialMember,
    choose_ensemble,
    read_ensemble,
    weighted_mean,
    write_ensemble,
)
from tabr.errors import DataError

CHURN, DIAMOND = select(["churn", "diamond"])
N = 300
CLASSES = {"numbers": 0, "two classes": 2, "three classes": 3}
each_outcome = pytest.mark.parametrize("outcome", CLASSES)


class Trials:
    """Trials of one search, each wrong by its own noise."""

    def __init__(self, folder: Path, outcome: str) -> None:
        self.folder, self.n_classes = folder, CLASSES[outcome]
        self.task = CHURN if self.n_classes else DIAMOND
        self.rng = np.random.default_rng(0)
        self.members: list[TrialMember] = []
        if self.n_classes:
            self.classes = np.array(["a", "b", "c"][: self.n_classes])
            self.codes = self.rng.integers(self.n_classes, size=N)
            self.y = self.classes[self.codes]
        else:
            self.classes, self.y = None, self.rng.normal(size=N)

    def guess(self, noise: float, sureness: float = 1.0) -> np.ndarray:
        if not self.n_classes:
            return self.y + noise * self.rng.normal(size=N)
        logits = 2 * np.eye(self.n_classes)[self.codes]
        logits += noise * self.rng.normal(size=logits.shape)
        powers = np.exp(sureness * logits)
        return powers / powers.sum(1, keepdims=True)

    def add(self, values: np.ndarray) -> TrialMember:
        k = len(self.members)
        path = self.folder / "trials" / f"{k}.npz"
        test = self.rng.random(values.shape)
        write_predictions(Predictions(values, test, self.classes), path)
        member = TrialMember(k, {"width": k}, -k, 1.0, f"trials/{k}.npz")
        self.members.append(member)
        return member

    def choose(self, scoring: str | None = None, y: np.ndarray | None = None):
        plan = Plan("mlp", scoring=scoring)
        y = self.y if y is None else y
        return choose_ensemble(self.members, self.task, plan, 7, y, self.folder)


def score_by_hand(trials: Trials, ensemble) -> float:
    """The log-loss or RMSE of the weighted mean, a row at a time."""
    files = [np.load(trials.folder / m.predictions)["val"] for m in ensemble.members]
    total = 0.0
    for row in range(N):
        mean = 0.0
        for member, values in zip(ensemble.members, files, strict=True):
            mean = mean + member.weight * values[row]
        if trials.n_classes:
            powers = [p ** (1 / ensemble.temperature) for p in mean]
            total -= np.log(powers[trials.codes[row]] / sum(powers))
        else:
            total += (mean - trials.y[row]) ** 2
    return total / N if trials.n_classes else np.sqrt(total / N) / DIAMOND.scale


@each_outcome
@pytest.mark.parametrize("sureness", [1.0, 4.0])
def test_the_score_is_that_of_the_weighted_mean(
    outcome: str, sureness: float, tmp_path: Path
):
    trials = Trials(tmp_path, outcome)
    for noise in (0.9, 1.0, 1.1, 1.2):
        trials.add(trials.guess(noise, sureness))
    ensemble = trials.choose("log-loss" if trials.n_classes else None)
    assert sum(m.weight for m in ensemble.members) == pytest.approx(1, abs=1e-12)
    assert min(m.weight for m in ensemble.members) > 0
    assert ensemble.val == pytest.approx(score_by_hand(trials, ensemble))
    predictions = ensemble.predictions(tmp_path)
    if trials.n_classes:
        assert predictions.val.sum(1) == pytest.approx(1)
        assert predictions.classes.tolist() == trials.classes.tolist()
        assert trials.choose().val == np.mean(predictions.val.argmax(1) == trials.codes)
    scores = all_scores(trials.task, trials.y, predictions.val, trials.classes)
    assert scores[ensemble.metric] == ensemble.val


@each_outcome
def test_a_hopeless_trial_gets_nothing(outcome: str, tmp_path: Path):
    trials = Trials(tmp_path, outcome)
    trials.add(trials.guess(0.9))
    trials.add(trials.guess(1.0))
    hopeless = trials.add(trials.guess(30.0))
    ensemble = trials.choose()
    assert [m.trial for m in ensemble.members] == [0, 1]
    assert hopeless.trial not in [m.trial for m in ensemble.members]
    assert ensemble.trials == 3 and ensemble.best_val == trials.members[0].val


@pytest.mark.parametrize("outcome", ["two classes", "three classes"])
def test_a_mean_that_is_too_sure_is_tempered(outcome: str, tmp_path: Path):
    trials = Trials(tmp_path, outcome)
    sure = trials.add(trials.guess(2.0, 4.0))
    (member,) = (ensemble := trials.choose("log-loss")).members
    assert member == replace(sure, weight=1.0) and ensemble.temperature > 1
    untempered = replace(ensemble, temperature=1.0)
    assert ensemble.val < score_by_hand(trials, untempered)
    # Classes keep their order, and accuracy is as it was.
    values = [e.predictions(tmp_path).val for e in (ensemble, untempered)]
    assert (values[0].argsort(1) == values[1].argsort(1)).all()


def test_only_the_best_trials_may_enter(tmp_path: Path):
    trials = Trials(tmp_path, "numbers")
    for _ in range(MOST_MEMBERS):
        trials.add(trials.guess(1.0))
    before = trials.choose()
    trials.add(trials.y)  # without an error, and yet ranked behind the others
    assert trials.choose() == replace(before, trials=MOST_MEMBERS + 1)


def test_a_trial_that_predicts_no_numbers_is_left_out(tmp_path: Path):
    trials = Trials(tmp_path, "two classes")
    trials.add(np.full((N, 2), np.nan))
    assert trials.choose() is None
    trials.add(trials.guess(1.0))
    (member,) = trials.choose().members
    assert member.trial == 1 and member.weight == 1


def test_rows_of_a_class_that_no_trial_knows_teach_nothing(tmp_path: Path):
    trials = Trials(tmp_path, "two classes")
    trials.add(trials.guess(0.9, 4.0))
    trials.add(trials.guess(1.1, 4.0))
    y = trials.y.astype(object)
    y[::10] = "unheard of"
    ensemble = trials.choose(y=y)
    known = Trials(tmp_path / "known", "two classes")
    kept = np.arange(N) % 10 > 0
    for member in trials.members:
        known.add(np.load(tmp_path / member.predictions)["val"][kept])
    other = known.choose(y=trials.y[kept])
    weights = [[m.weight for m in e.members] for e in (ensemble, other)]
    assert weights[0] == weights[1] and ensemble.temperature == other.temperature
    assert ensemble.val == pytest.approx(0.9 * other.val)  # those rows are all wrong


def test_the_choice_does_not_see_test_rows(tmp_path: Path):
    trials = Trials(tmp_path, "three classes")
    for noise in (0.9, 1.0):
        trials.add(trials.guess(noise))
    before = trials.choose()
    for member in trials.members:
        path = tmp_path / member.predictions
        kept = read_predictions(path)
        write_predictions(replace(kept, test=np.full((5, 3), np.nan)), path)
    assert trials.choose() == before


def test_an_ensemble_is_read_as_it_was_written(tmp_path: Path):
    trials = Trials(tmp_path, "two classes")
    for noise in (0.9, 1.0):
        trials.add(trials.guess(noise))
    ensemble = trials.choose("log-loss")
    write_ensemble(ensemble, tmp_path, CHURN)
    assert read_ensemble(tmp_path, CHURN, "mlp", "log-loss") == ensemble
    (path,) = tmp_path.rglob("mlp-retuned@log-loss/split-0-ensemble.json")
    assert "both validation scores flatter" in json.loads(path.read_text())["note"]
    with pytest.raises(DataError, match="`tabr tune --ensemble` for mlp first"):
        read_ensemble(tmp_path, CHURN, "mlp")
    (tmp_path / trials.members[0].predictions).unlink()
    with pytest.raises(DataError, match="the same `tabr tune --ensemble` again"):
        ensemble.predictions(tmp_path)


def test_a_mean_of_one_is_itself():
    values = np.array([0.1, 0.7])
    assert weighted_mean([values], [1.0]).tolist() == values.tolist()

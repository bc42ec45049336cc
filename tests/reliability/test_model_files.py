import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliability import model_files
from reliability.model_files import Models, Tally, Worker, rows, try_file, write_models

SMALL = {"classes", "rules"}  # a pack is slow to fit


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two whole models."""
    path = tmp_path_factory.mktemp("models")
    write_models(path, SMALL)
    return path


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(number=st.integers(0, 2**32))
def test_crafted_file_is_refused_in_words_or_predicts(folder, tmp_path, number):
    # Files with Parquet start a process each; test_parquet has them.
    crafted = Models.read(folder).crafted(0, number, with_old=False)
    path = tmp_path / "crafted.tabr"
    path.write_bytes(crafted.content)
    word, detail = try_file(path, rows(4, seed=1))
    assert word in ("refused", "loaded"), (crafted.kind, detail)


def test_same_seed_and_number_give_the_same_file(folder):
    models = Models.read(folder)
    first = [models.crafted(3, number) for number in range(20)]
    assert first == [models.crafted(3, number) for number in range(20)]
    assert first != [models.crafted(4, number) for number in range(20)]
    assert len({crafted.kind for crafted in first}) > 3


def test_whole_files_are_no_bombs(folder):
    for name in SMALL:
        assert try_file(folder / f"{name}.tabr", rows(4)) == ("loaded", "")


def test_worker_outlives_a_crash_and_says_so(folder, monkeypatch):
    worker = Worker(folder, seed=0)
    try:
        assert worker.outcome(0).word in ("refused", "loaded")
        worker.process.kill()
        crash = worker.outcome(1)
        assert (crash.number, crash.word) == (1, "crashed")
        assert worker.outcome(1).word in ("refused", "loaded")
    finally:
        worker.close()


def test_tally_holds_only_without_odd_outcomes():
    tally = Tally()
    tally.add(model_files.Outcome(0, "bits", "refused"))
    assert tally.trial().held
    tally.add(model_files.Outcome(1, "bits", "crashed"))
    trial = tally.trial()
    assert not trial.held and trial.counts["crashed"] == 1
    assert json.dumps(trial.counts)


def test_changes_are_taken_in_their_shares():
    assert np.isclose(sum(share for _, share in model_files.CHANGES.values()), 1)

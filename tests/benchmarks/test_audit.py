"""Planted leaks, and the page of the audit."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks import audit


def test_the_page_in_the_docs_is_that_of_the_results() -> None:
    text = audit.PAGE.read_text("utf-8")
    assert audit.page(text) == text


def test_copies_are_planted_after_the_rows_and_are_near_them() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.random(500), "b": rng.choice(["x", "y"], 500)})
    train, test = frame[:400], frame[400:].reset_index(drop=True)
    leaky, copied = audit.plant(train, test, 0.1, 0.001, 0, rng)
    assert len(copied) == len(set(copied)) == 10
    assert leaky[:400].equals(train)
    copies = leaky[400:]
    assert (copies["b"].to_numpy() == test["b"].to_numpy()[copied]).all()
    moved = np.abs(copies["a"].to_numpy() - test["a"].to_numpy()[copied])
    assert 0 < moved.max() < 0.05
    assert audit.exact_copies(test, copies, copied) == 0


def test_whole_numbers_that_move_by_less_than_a_half_stay() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": np.arange(500) * 1.0})
    train, test = frame[:400], frame[400:].reset_index(drop=True)
    leaky, copied = audit.plant(train, test, 0.1, 0.0, 0, rng)
    assert audit.exact_copies(test, leaky[400:], copied) == 10

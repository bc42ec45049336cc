"""Rows with their neighbours, as text."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from tabr.cli import neighbor_view
from tabr.estimators import TabRClassifier
from tabr.text import percent


def test_columns_that_differ_come_first():
    rng = np.random.default_rng(0)
    # Labels follow `near`, whose neighbours are close; `far` is noise.
    frame = pd.DataFrame({"near": rng.normal(size=90), "far": rng.choice([*"abc"], 90)})
    y = frame["near"] > 0
    model = TabRClassifier(width=8, context_size=4, max_epochs=2, random_state=0)
    model.fit(frame, y)
    made = neighbor_view.make_cases(model, frame, [0, 1], 3)
    exchanged = [
        dataclasses.replace(case, columns={**case.columns, "near": 99.0})
        for case in made
    ]
    assert neighbor_view.differing_columns(model, exchanged) == ["near", "far"]
    alike = [
        dataclasses.replace(
            case,
            neighbors=[
                dataclasses.replace(
                    n, columns={**n.columns, "near": case.columns["near"]}
                )
                for n in case.neighbors
            ],
        )
        for case in made
    ]
    other = [
        dataclasses.replace(case, columns={**case.columns, "far": "d"})
        for case in alike
    ]
    assert neighbor_view.differing_columns(model, other) == ["far", "near"]


def test_members_are_told_apart_where_effects_are_shown():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=90)})
    model = TabRClassifier(n_members=2, width=8, context_size=4, max_epochs=2)
    model.fit(frame, frame["a"] > 0)
    (case,) = neighbor_view.make_cases(model, frame, [3], 2, effects=True)
    said = [member["prediction"] for member in case.members]
    weights = [member["weight"] for member in case.members]
    assert np.dot(said, weights) == pytest.approx(case.probability)
    words = f"2 members say {percent(min(said))} to {percent(max(said))}"
    lines = neighbor_view.case_lines([case], ["a"], 100)
    assert any(line.endswith(words) for line in lines)
    (plain,) = neighbor_view.make_cases(model, frame, [3], 2)
    assert plain.members is None
    assert "members" not in "".join(neighbor_view.case_lines([plain], ["a"], 100))


def test_values_are_written_shortly():
    written = [
        neighbor_view.cell(v)
        for v in (1.0, 0.123456, 123456.7, float("nan"), None, "x")
    ]
    assert written == ["1", "0.1235", "123457", "-", "-", "x"]
    assert neighbor_view.cell(pd.Timestamp("2021-05-05")) == "2021-05-05"
    assert len(neighbor_view.cell("long" * 9)) == 18


def test_ink_becomes_darker_characters():
    blank, full = ({str(k): ink for k in range(64)} for ink in (0, 16))
    assert neighbor_view._picture(blank) == [" " * 11] * 8
    assert neighbor_view._picture(full) == ["█" * 11] * 8

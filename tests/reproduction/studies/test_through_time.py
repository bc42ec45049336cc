"""The past predicts the future, on small tables."""

from __future__ import annotations

import numpy as np
import pandas as pd

from reproduction.studies.through_time import by_time, predict_in_parts
from tests.bench.tables import timed


def test_a_split_in_time_has_the_latest_rows_last() -> None:
    parts = by_time(timed("timestamp"), "timestamp")
    assert [len(y) for _, y in parts] == [38, 10, 12]
    ends = [(X.timestamp.min(), X.timestamp.max()) for X, _ in parts]
    assert ends[0][1] < ends[1][0] and ends[1][1] < ends[2][0]


def test_labels_become_known_after_their_part_is_predicted() -> None:
    class Memory:
        def __init__(self) -> None:
            self.known: list[int] = []

        def predict(self, X: pd.DataFrame) -> np.ndarray:
            assert not set(X.a) & set(self.known)
            return X.a.to_numpy()

        def add_candidates(self, X: pd.DataFrame, y: np.ndarray) -> None:
            self.known += X.a.tolist()

    memory, X = Memory(), pd.DataFrame({"a": range(47)})
    predicted = predict_in_parts(memory, X, np.zeros(47))  # type: ignore[arg-type]
    assert predicted.tolist() == memory.known == list(range(47))

"""The candidate set."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from tabr.candidates import CandidateSet
from tabr.rows import Rows


def make() -> CandidateSet:
    num = torch.arange(6.0).view(3, 2)
    rows = Rows(num, num[:, :0], num[:, :0].long())
    frame = pd.DataFrame({"a": ["x", "y", "z"]})
    ids = np.array([7, 2, 9])
    return CandidateSet(ids, frame, np.array([1.0, 2.0, 3.0]), rows, torch.zeros(3))


def test_rows_are_looked_up_by_id() -> None:
    rows = make().look_up(np.array([9, 7, 9]))
    assert rows.a.tolist() == ["z", "x", "z"]
    assert rows.index.tolist() == [9, 7, 9]


def test_an_unknown_id_is_named() -> None:
    with pytest.raises(KeyError, match="3"):
        make().look_up(np.array([7, 3]))


def test_its_length_is_the_number_of_candidates() -> None:
    assert len(make()) == 3
    assert len(make().to(torch.device("cpu"))) == 3

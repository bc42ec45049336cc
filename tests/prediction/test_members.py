"""What members say, joined."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from tabr.candidates.candidate_set import CandidateSet
from tabr.device.devices import choose_device
from tabr.network.rows import Rows
from tabr.network.tabr import Output
from tabr.prediction.members import MemberOutput, neighbor_table
from tabr.search import Neighbors


def test_a_device_that_is_not_there_is_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="device must be one that this machine has"):
        choose_device("cuda:99")
    assert choose_device("cpu").type == "cpu"


def test_neighbours_come_heaviest_first_and_absent_ones_last() -> None:
    output = Output(
        torch.zeros(1, 1),
        torch.tensor([[0.3, 0.7, 0.0]]),
        torch.tensor([[-4.0, -1.0, -1e30]]),
    )
    found = Neighbors(torch.tensor([[0, 2, 1]]), torch.tensor([[True, True, False]]))
    rows = Rows(torch.zeros(3, 1), torch.zeros(3, 0), torch.zeros(3, 0).long())
    frame = pd.DataFrame({"a": range(3)})
    y = np.zeros(3)
    candidates = CandidateSet(np.array([10, 11, 12]), frame, y, rows, torch.zeros(3))
    table = neighbor_table([MemberOutput(output, found, None)], candidates)
    assert table.ids.tolist() == [[12, 10, -1]]
    np.testing.assert_allclose(table.weights, [[0.7, 0.3, 0.0]])
    np.testing.assert_allclose(table.distances, [[1.0, 2.0, np.inf]])

"""Input vectors: embeddings of numbers, binary columns, one-hot categories."""

from __future__ import annotations

import pytest
import torch

from tabr.config import EmbeddingConfig
from tabr.network.embeddings import InputVector, OneHot
from tabr.network.rows import Rows
from tabr.tables.shape import DataShape


def test_one_hot_has_a_one_for_each_level_and_zeros_for_none() -> None:
    one_hot = OneHot((2, 3))(torch.tensor([[0, 2], [1, -1], [-1, 0]])).int()
    expected = [[1, 0, 0, 0, 1], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]]
    assert one_hot.tolist() == expected


@pytest.mark.parametrize("kind", [None, "lr", "plr", "plr-lite"])
def test_input_vector_has_its_width_whatever_is_missing(kind: str | None) -> None:
    config = None if kind is None else EmbeddingConfig(kind, width=4, n_frequencies=3)
    for n_num, n_bin, cardinalities in ((3, 1, (2,)), (0, 2, (3, 2)), (2, 0, ())):
        module = InputVector(
            DataShape(n_num, n_bin, cardinalities, "regression", 0), config
        )
        cat = torch.zeros(5, len(cardinalities), dtype=torch.int64)
        rows = Rows(torch.randn(5, n_num), torch.ones(5, n_bin), cat)
        assert module(rows).shape == (5, module.width)
        assert module(rows.take(torch.zeros(2, 3).long())).shape == (2, 3, module.width)


def test_numbers_stay_as_they_are_without_an_embedding() -> None:
    rows = Rows(torch.randn(4, 2), torch.ones(4, 1), torch.tensor([[0]] * 4))
    vector = InputVector(DataShape(2, 1, (2,), "regression", 0), None)(rows)
    assert torch.equal(vector[:, :2], rows.num)
    assert vector[:, 2:].tolist() == [[1, 1, 0]] * 4

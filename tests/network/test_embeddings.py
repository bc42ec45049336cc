"""Input vectors: embeddings of numbers, binary columns, one-hot categories."""

from __future__ import annotations

import pytest
import torch

from tabr.config import EmbeddingConfig
from tabr.network.embeddings import ColumnDropout, InputVector, OneHot
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


SHAPE = DataShape(3, 1, (2, 3), "regression", 0, sources=(0, 1, 0, 2, 3, 1))


@pytest.mark.parametrize("kind", [None, "pbld", "bins"])
def test_a_column_is_dropped_with_all_that_is_made_of_it(kind: str | None) -> None:
    config = None if kind is None else EmbeddingConfig(kind, width=4, n_frequencies=3)
    dropout = ColumnDropout(SHAPE, config, 0.3)
    each = 1 if kind is None else 4
    places = [0] * each + [1] * each + [0] * each + [2] + [3] * 2 + [1] * 3
    like = torch.zeros(5, InputVector(SHAPE, config).width, dtype=torch.float64)
    draws = torch.stack([dropout(like) for _ in range(2000)])
    assert draws.dtype == torch.float64
    first = torch.tensor([places.index(column) for column in range(4)])
    of_columns = draws[:, first]
    assert torch.equal(draws, of_columns[:, places])
    assert of_columns.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert ((of_columns == 0).double().mean(0) - 0.3).abs().max() < 0.06
    # Each by itself: all sixteen patterns come.
    assert len(of_columns.unique(dim=0)) == 16


def test_columns_are_dropped_in_training_only() -> None:
    like = torch.zeros(5, 9)
    assert ColumnDropout(SHAPE, None, 0.3)(like) is not None
    assert ColumnDropout(SHAPE, None, 0.3).eval()(like) is None
    assert ColumnDropout(SHAPE, None, 0.0)(like) is None


def test_without_sources_each_column_is_one_of_its_own() -> None:
    shape = DataShape(2, 1, (2,), "regression", 0)
    assert ColumnDropout(shape, None, 0.1).source.tolist() == [0, 1, 2, 3, 3]
    assert ColumnDropout(DataShape(0, 0, (), "regression", 0), None, 0.1)(
        torch.zeros(5, 0)
    ).shape == (0,)

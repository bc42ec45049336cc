"""Predictions from an index of points."""

from __future__ import annotations

import torch

from tabr.candidates.point_index import PointIndex, candidate_points
from tabr.prediction.predict import predict
from tests.candidates.test_point_index import setting


def test_prediction_does_not_depend_on_the_chunk() -> None:
    network, rows, labels = setting(encoder_blocks=1)
    index = PointIndex(network, candidate_points(network, rows), labels)
    whole = predict(index, rows, 5)[0].prediction
    parts = predict(index, rows, 5, rows_at_a_time=7)[0].prediction
    torch.testing.assert_close(whole, parts)


def test_one_row_and_fewer_candidates_than_asked_for() -> None:
    network, rows, labels = setting(3)
    index = PointIndex(network, candidate_points(network, rows), labels)
    output, neighbors = predict(index, rows.take(slice(0, 1)), 96)
    assert output.prediction.shape == (1, 1)
    assert neighbors.position.shape == (1, 3)
    assert neighbors.position[0, 0] == 0  # a new row may equal a candidate

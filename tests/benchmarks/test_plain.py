"""The opponent is TabR-S: with the same weights it predicts what ours predicts."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.plain import PlainTabRS
from tabr.candidates.point_index import PointIndex
from tabr.config import NetworkConfig
from tabr.network.rows import Rows
from tabr.network.tabr import TabR
from tabr.prediction.predict import predict
from tabr.tables.shape import DataShape


def rows_of(x: Tensor) -> Rows:
    return Rows(x, x[:, :0], x[:, :0].long())


def copy_weights(source: TabR, target: PlainTabRS) -> None:
    block = source.predictor[0]
    pairs: list[tuple[nn.Module, nn.Module]] = [
        (source.linear, target.encoder),
        (source.to_key, target.key),  # its bias is not there: distances forget it
        (source.label_value, target.label),
        (source.difference_value.first, target.difference[0]),
        (source.difference_value.second, target.difference[3]),
        (block.norm, target.block[0]),
        (block.first, target.block[1]),
        (block.second, target.block[4]),
        (source.head, target.head),
    ]
    for one, other in pairs:
        other.load_state_dict(one.state_dict(), strict=one is not source.to_key)


def test_plain_form_and_ours_agree() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(60, generator=generator, dtype=torch.float64)
    config = NetworkConfig(width=8, dropout=0.0, context_dropout=0.0)
    ours = TabR(config, DataShape(3, 0, (), "regression", 0)).double()
    plain = PlainTabRS(3, config).double()
    copy_weights(ours, plain)
    new, candidates, labels = x[:10], x[10:], y[10:]
    index = PointIndex(ours, candidates, labels)
    output, _ = predict(index, rows_of(new), 7)
    assert torch.allclose(
        plain(new, candidates, labels, 7), output.prediction.squeeze(-1), atol=1e-12
    )

"""TabR-S in its plain form: the opponent that speed is measured against.

As the paper describes it and as its authors ran it: all candidates but the batch are
encoded with gradients, b x n distances, a top-k, and T applied to every neighbour.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tabr.config import NetworkConfig


class PlainTabRS(nn.Module):
    """Regression, no embeddings, N_E = 0, N_P = 1."""

    def __init__(self, d_in: int, config: NetworkConfig) -> None:
        super().__init__()
        d, hidden, rate = config.width, config.hidden, config.dropout
        self.encoder = nn.Linear(d_in, d)
        self.key = nn.Linear(d, d)
        self.label = nn.Linear(1, d)
        self.difference = nn.Sequential(
            nn.Linear(d, hidden),
            nn.ReLU(),
            nn.Dropout(rate),
            nn.Linear(hidden, d, bias=False),
        )
        self.block = nn.Sequential(
            nn.LayerNorm(d),
            nn.Linear(d, hidden),
            nn.ReLU(),
            nn.Dropout(rate),
            nn.Linear(hidden, d),
        )
        self.head = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, 1))
        self.context_dropout = nn.Dropout(config.context_dropout)

    def search(self, k: Tensor, candidate_k: Tensor, m: int) -> Tensor:
        """Keys (b, d), (n, d) -> positions of the m nearest (b, m)."""
        with torch.no_grad():
            distance = candidate_k.square().sum(-1) - 2 * k @ candidate_k.T
            return distance.topk(m, largest=False).indices

    def forward(self, x: Tensor, candidates: Tensor, labels: Tensor, m: int) -> Tensor:
        candidate_k = self.key(self.encoder(candidates))
        x = self.encoder(x)
        k = self.key(x)
        index = self.search(k, candidate_k, m)
        context_k = candidate_k[index]  # (b, m, d)
        similarity = (
            -k.square().sum(-1, keepdim=True)
            + 2 * (k[:, None] @ context_k.mT).squeeze(1)
            - context_k.square().sum(-1)
        )
        weights = self.context_dropout(F.softmax(similarity, -1))
        values = self.label(labels[index][..., None]) + self.difference(
            k[:, None] - context_k
        )
        x = x + (weights[:, None] @ values).squeeze(1)
        x = x + self.block(x)
        return self.head(x).squeeze(-1)

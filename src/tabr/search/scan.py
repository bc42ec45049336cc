"""Candidates laid out for the kernels of `scan_triton`, and one search in them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from tabr.search import scan_triton as kernels
from tabr.search.exact import Neighbors
from tabr.search.scan_triton import Rules

_HALF_FROM = 17  # narrower points cost little in full precision
_EXTRA = 3  # columns for offset and error
_PADDED = 256  # candidates come in whole tiles
_PROGRAMS = 1056  # eight for each multiprocessor of a large GPU
_CHUNKS = 32  # at most, of candidates that are put into bins together
_PREPARE = {"num_warps": 4, "num_stages": 2}


class Scan:
    """Candidates (n, p), laid out for the kernels.

    Points that a training step moves are laid out anew at each step; for others only
    `follow` is called, which takes over a new metric.
    """

    def __init__(self, vectors: Tensor) -> None:
        """Round the vectors for the walk; they should lie around zero."""
        self.n, self.p = n, p = vectors.shape
        self.half = p >= _HALF_FROM
        self.width = _width(p + _EXTRA)
        self.n_padded = triton.cdiv(max(n, 1), _PADDED) * _PADDED
        extra = (0, self.width - p, 0, self.n_padded - n)
        self.vectors = F.pad(vectors, extra)
        self.largest = self.vectors.abs().amax(0)
        self.rounded, self.scales = self.vectors, self.vectors.new_ones(self.width)
        if self.half:
            # A power of two of each column: dividing by it rounds nothing.
            usual = self.vectors.square().mean(0).sqrt() * 4
            wanted = torch.maximum(usual, self.largest / 2**15).clamp_min(1e-30)
            self.scales = torch.exp2(wanted.log2().ceil())
            self.rounded = (self.vectors / self.scales).half()

    def follow(self, gram: Tensor | None, scales: Tensor) -> None:
        """Take over a metric: gram (p, p), or None for products; D squared (p,)."""
        floor = scales.amax() * 1e-12 + 1e-30
        extra = self.width - self.p
        self.balance = F.pad(scales.clamp_min(floor), (0, extra))
        self.offsets = self.vectors.new_empty(self.n_padded)
        block, n_blocks = min(64, self.width), self.n_padded // 64
        kernels._prepare[(min(n_blocks, _PROGRAMS),)](
            self.vectors, self.rounded, self.scales,
            self.vectors if gram is None else F.pad(gram, (0, extra, 0, extra)),
            self.balance, self.largest, self.offsets, self.n, self.p, n_blocks,
            HAS_GRAM=gram is not None, HALF=self.half, PK=self.width, BK=block,
            P2=triton.next_power_of_2(self.width), BN=64, **_PREPARE,
        )  # fmt: skip

    def top(
        self,
        queries: Tensor,
        m: int,
        *,
        exclude: Tensor | None = None,
        rules: Rules | None = None,
        last: Tensor | None = None,
    ) -> Neighbors:
        """Find for each query the m candidates with the largest <query, v> + offset.

        Args:
            queries: (b, p).
            m: Neighbours asked for.
            exclude: (b,), the position of a candidate that is the query itself, or -1.
            rules: Further rules.
            last: (b, m) int32, allowed candidates that bound the search from below,
                or -1; the nearer they are the faster it is.
        """
        b, device = len(queries), queries.device
        m = min(m, self.n)
        position = torch.empty(b, m, dtype=torch.int64, device=device)
        found = torch.empty(b, m, dtype=torch.bool, device=device)
        if b == 0 or m == 0:
            return Neighbors(position, found)
        m2 = max(16, triton.next_power_of_2(m))
        length = max(512, 4 * m2)
        padded = triton.cdiv(b, 128) * 128
        plain, full_upper = torch.empty(2, padded, self.width, device=device)
        upper, lower = torch.empty(
            2, padded, self.width, device=device, dtype=self.rounded.dtype
        )
        unit_of, bound = torch.empty(2, padded, device=device)
        state, count = torch.empty(2, padded, dtype=torch.int32, device=device)
        lists = torch.empty(padded, length, dtype=torch.int32, device=device)
        if rules is None:
            rules, n_rules = Rules(count, count, count, 0, 0), 0
        else:
            n_rules = len(rules.codes)
        ruled = rules.codes, rules.low, rules.high
        of_rules = {"N_RULES": n_rules, "OUTSIDE": rules.outside, "ENDS": rules.ends}
        exact: dict[str, Any] = {"PK": self.width, "BP": min(32, self.width)}
        has_own = exclude is not None
        own = count if exclude is None else exclude

        kernels._start[(padded,)](
            queries.contiguous(), self.vectors, self.offsets, self.scales,
            self.balance, self.largest, count if last is None else last, plain,
            full_upper, upper, lower, unit_of, bound, count, state, b, m, self.p,
            HAS_LAST=last is not None, HALF=self.half,
            P2=triton.next_power_of_2(self.width), M2=m2, **exact,
        )  # fmt: skip
        tile = _tile(self.half, self.width)
        n_tiles = self.n_padded // tile["BN"]
        per_program = triton.cdiv(n_tiles, min(_CHUNKS, n_tiles))
        n_chunks = triton.cdiv(n_tiles, per_program)
        n_bins = n_chunks * tile["BN"]
        maxima = torch.empty(padded, n_bins, device=device)
        kernels._best_of_bins[(padded // tile["BQ"], n_chunks)](
            lower, self.rounded, *ruled, state, maxima, b, self.n, per_program,
            n_tiles, HALF=self.half, PK=self.width, **tile, **of_rules,
        )  # fmt: skip
        # The row itself may be the best of a bin.
        kernels._bound_by_bins[(b,)](
            maxima, unit_of, state, bound, m + has_own, n_bins,
            SIZE=triton.next_power_of_2(max(n_bins, m) + 1),
        )  # fmt: skip
        first = upper if self.half else full_upper
        walks = [(self.half, first, self.rounded)] * 2
        if self.half:
            walks.append((False, full_upper, self.vectors))
        for number, (half, rows, candidates) in enumerate(walks):
            tile = _tile(half, self.width)
            n_tiles = self.n_padded // tile["BN"]
            n_groups = padded // tile["BQ"]
            per_program = triton.cdiv(n_tiles, triton.cdiv(_PROGRAMS, n_groups))
            kernels._collect[(n_groups, triton.cdiv(n_tiles, per_program))](
                rows, candidates, *ruled, unit_of, bound, state, count, lists, b,
                self.n, per_program, n_tiles, AGAIN=number > 0, HALF=half,
                PK=self.width, LIST=length, PORTABLE=device.type == "cpu", **tile,
                **of_rules,
            )  # fmt: skip
            kernels._rank[(b,)](
                plain, self.vectors, self.offsets, own, bound, state, count, lists,
                position, found, m, AGAIN=number > 0, HAS_OWN=has_own, LIST=length,
                **exact,
            )  # fmt: skip
        kernels._search_all[(b,)](
            plain, self.vectors, self.offsets, own, *ruled, state, position, found,
            b, self.n, m, HAS_OWN=has_own, M2=m2, **exact, **of_rules,
        )  # fmt: skip
        return Neighbors(position, found)


def _width(p: int) -> int:
    """Return the width that p numbers are padded to."""
    if p > 128:
        return int(triton.cdiv(p, 64)) * 64
    return int(max(16, triton.next_power_of_2(p)))


def _tile(half: bool, width: int) -> dict[str, int]:
    """Return the shape of a tile of scores and how it is computed, as measured."""
    block = min(64 if width > 128 else 128, width)
    if half:
        return {"BQ": 128, "BN": 128, "BK": block, "num_warps": 8, "num_stages": 3}
    return {"BQ": 64, "BN": 64, "BK": min(block, 64), "num_warps": 4, "num_stages": 3}

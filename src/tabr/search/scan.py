"""Candidates laid out for the kernels of a walk, and one search in them."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from tabr.search import rank_triton, walk_triton
from tabr.search.exact import Neighbors
from tabr.search.rank_triton import Rules

_HALF_FROM = 17  # narrower points cost little in full precision
_EXTRA = 4  # columns for an offset, in two parts, and for the limits of errors
_PADDED = 256  # candidates come in whole tiles
_PROGRAMS = 1056  # eight for each multiprocessor of a large GPU
_LISTED = 2048  # candidates that may reach a row's bound, before it is tightened
_CHUNKS = 32  # at most, of candidates that are put into bins together

# Tiles as measured on one H200, for full and for half precision.
_PREPARE = (  # narrow, wide
    {"BN": 64, "num_warps": 4, "num_stages": 2},
    {"BN": 128, "num_warps": 8, "num_stages": 1},
)
_BINS = (
    {"BQ": 64, "BN": 32, "num_warps": 4, "num_stages": 3},
    {"BQ": 128, "BN": 64, "num_warps": 4, "num_stages": 3},
)
_COLLECT = (
    {"BQ": 64, "BN": 32, "num_warps": 4, "num_stages": 3},
    {"BQ": 128, "BN": 128, "num_warps": 8, "num_stages": 2},
)


# The interpreter knows no assembler.
PORTABLE = os.environ.get("TRITON_INTERPRET") == "1"


class Scan:
    """Candidates (n, p), laid out for the kernels.

    Points that a training step moves are laid out anew at each step; for others only
    `follow` is called, which takes over a new metric.
    """

    def __init__(self, vectors: Tensor) -> None:
        """Round the vectors for the walk; they should lie around zero."""
        self.n, self.p = n, p = vectors.shape
        self.half = p >= _HALF_FROM
        self.main, self.width = _widths(p)
        self.n_padded = triton.cdiv(max(n, 1), _PADDED) * _PADDED
        extra = (0, self.width - p, 0, self.n_padded - n)
        self.vectors = F.pad(vectors, extra)
        self.usual = self.vectors.abs().sum(0) / max(n, 1)
        self.rounded, self.scales = self.vectors, self.vectors.new_ones(self.width)
        if self.half:
            # A power of two of each column: dividing by it rounds nothing.
            largest = self.vectors.abs().amax(0)
            wanted = torch.maximum(4 * self.usual, largest / 2**15).clamp_min(1e-30)
            self.scales = torch.exp2(wanted.log2().ceil())
            self.rounded = (self.vectors / self.scales).half()

    def follow(self, gram: Tensor | None) -> None:
        """Take over a metric: gram (p, p), or None for products."""
        self.gram = None if gram is None else gram.contiguous()
        self.offsets = self.vectors.new_empty(self.n_padded)
        tile = _PREPARE[self.main >= 64]
        n_blocks = self.n_padded // tile["BN"]
        walk_triton.prepare[(min(n_blocks, _PROGRAMS),)](
            self.vectors, self.rounded, self.scales, self._gram(), self.usual,
            self.offsets, self.n, self.p, n_blocks, HALF=self.half, **self._shape(),
            **self._metric(), **tile,
        )  # fmt: skip

    def _gram(self) -> Tensor:
        return self.vectors if self.gram is None else self.gram

    def _metric(self) -> dict[str, Any]:
        p2 = triton.next_power_of_2(self.width)
        return {"HAS_GRAM": self.gram is not None, "P2": p2}

    def _shape(self) -> dict[str, int]:
        """Return widths as the kernels take them."""
        block = self.main if self.main <= 128 else 64
        return {"PK": self.width, "MAIN": self.main, "BK": block}

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
        length = max(_LISTED, 4 * m2)
        padded = triton.cdiv(b, 128) * 128
        plain, full_upper = torch.empty(2, padded, self.width, device=device)
        upper, lower = torch.empty(
            2, padded, self.width, device=device, dtype=self.rounded.dtype
        )
        unit_of, bound = torch.empty(2, padded, device=device)
        unbounded, active, count = torch.empty(
            3, padded, dtype=torch.int32, device=device
        )
        lists = torch.empty(padded, length, dtype=torch.int32, device=device)
        keys = torch.empty(padded, 3 * length, dtype=torch.int64, device=device)
        if rules is None:
            rules, n_rules = Rules(count, count, count, 0, 0), 0
        else:
            n_rules = len(rules.codes)
        ruled = rules.codes, rules.low, rules.high
        shape = self._shape()
        of_walk: dict[str, Any] = {
            **shape,
            "N_RULES": n_rules,
            "OUTSIDE": rules.outside,
            "ENDS": rules.ends,
        }
        exact: dict[str, Any] = {**shape, "BP": min(32, self.main)}
        del exact["BK"]
        of_rules = {k: of_walk[k] for k in ("N_RULES", "OUTSIDE", "ENDS")}
        has_own = exclude is not None
        own = count if exclude is None else exclude

        walk_triton.start[(padded,)](
            queries.contiguous(), self.vectors, self.offsets, self.scales,
            self._gram(), self.usual, count if last is None else last, plain,
            full_upper, upper, lower, unit_of, bound, count, unbounded, active, b, m,
            self.p, HAS_LAST=last is not None, HALF=self.half, M2=m2,
            **self._metric(), **exact,
        )  # fmt: skip

        def bound_by_bins(wanted: Tensor) -> None:
            tile = _BINS[self.half]
            n_tiles = self.n_padded // tile["BN"]
            per_program = triton.cdiv(n_tiles, min(_CHUNKS, n_tiles))
            n_chunks = triton.cdiv(n_tiles, per_program)
            n_bins = n_chunks * tile["BN"]
            maxima = torch.empty(padded, n_bins, device=device)
            walk_triton.best_of_bins[(padded // tile["BQ"], n_chunks)](
                lower, self.rounded, *ruled, wanted, maxima, b, self.n, per_program,
                n_tiles, HALF=self.half, **of_walk, **tile,
            )  # fmt: skip
            # The row itself may be the best of a bin.
            walk_triton.bound_by_bins[(b,)](
                maxima, unit_of, wanted, bound, m + has_own, n_bins,
                SIZE=triton.next_power_of_2(max(n_bins, m) + 1),
            )  # fmt: skip

        def collect(half: bool) -> None:
            tile = _COLLECT[half]
            n_tiles = self.n_padded // tile["BN"]
            n_groups = padded // tile["BQ"]
            per_program = triton.cdiv(n_tiles, triton.cdiv(_PROGRAMS, n_groups))
            walk_triton.collect[(n_groups, triton.cdiv(n_tiles, per_program))](
                upper if half else full_upper,
                self.rounded if half else self.vectors, *ruled, unit_of, bound,
                active, count, lists, b, self.n, per_program, n_tiles, HALF=half,
                LIST=length, PORTABLE=PORTABLE, **of_walk, **tile,
            )  # fmt: skip
            rank_triton.rank[(b,)](
                plain, self.vectors, self.offsets, own, bound, active, count, lists,
                keys, position, found, self.n, m, HAS_OWN=has_own, LIST=length, M2=m2,
                **exact,
            )  # fmt: skip

        bound_by_bins(unbounded)
        collect(self.half)
        if last is not None:  # who is far from the last neighbours
            bound_by_bins(active)
            collect(self.half)
        if self.half:
            collect(False)
        rank_triton.search_all[(b,)](
            plain, self.vectors, self.offsets, own, *ruled, active, keys, position,
            found, b, self.n, m, HAS_OWN=has_own, LIST=length, M2=m2, **exact,
            **of_rules,
        )  # fmt: skip
        return Neighbors(position, found)


def _widths(p: int) -> tuple[int, int]:
    """Return the width that p numbers are padded to, without and with the extras."""
    if p > 128:
        width = triton.cdiv(p + _EXTRA, 64) * 64
        return width, width
    main = max(16, triton.next_power_of_2(p))
    return main, main if p + _EXTRA <= main else main + 16

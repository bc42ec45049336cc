"""The search on NVIDIA GPUs: candidates laid out for Triton kernels, and its steps.

`walk_triton` describes the search, `layout_triton` its precision.
"""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from tabr.device.member_axis import n_on_device
from tabr.search import layout_triton, rank_triton, walk_triton
from tabr.search.exact import Neighbors
from tabr.search.filter import Filter

_HALF_FROM = 17  # narrower points cost little in full precision
_EXTRA = 4  # columns for an offset, in two parts, and for the limits of errors
_PADDED = 256  # candidates come in whole tiles
_PROGRAMS = 1056  # eight for each multiprocessor of a large GPU
_PREPARING = 264  # programs: each reads the metric
_GATHERED = 528  # programs for each group of gathered rows
_LISTED = 2048  # candidates that may reach a row's bound, before it is tightened
_SHARING = 264  # programs that search without lists
_CHUNKS = 32  # most chunks of candidates, each of which has bins of its own

# Tiles as measured on one H200, for full and for half precision.
_PREPARE = (  # of one block of columns, of several
    {"BN": 64, "num_warps": 4, "num_stages": 1},
    {"BN": 128, "num_warps": 8, "num_stages": 1},
)
_BINS = (
    {"BQ": 64, "BN": 32, "num_warps": 4, "num_stages": 3},
    {"BQ": 128, "BN": 64, "num_warps": 4, "num_stages": 3},
)
# Speed alone depends on these: programs never wait for each other. Of points up to 128
# wide two programs in half precision fit on a multiprocessor, of wider ones one.
_COLLECT = (
    {"BQ": 64, "BN": 32, "num_warps": 4, "num_stages": 3},
    {"BQ": 128, "BN": 128, "num_warps": 8, "num_stages": 2},
)

# Triton's interpreter runs no assembler.
PORTABLE = os.environ.get("TRITON_INTERPRET") == "1"


class Scan:
    """Candidates (n, p), laid out for the kernels.

    Points that a training step moves are laid out anew at each step; for others only
    `set_metric` is called.
    """

    def __init__(self, vectors: Tensor) -> None:
        """Round the vectors for the walk; they should lie around zero."""
        self.n, self.p = n, p = vectors.shape
        self.half = p >= _HALF_FROM
        self.main, self.width = _widths(p)
        block = self.main if self.main <= 128 else 64
        self.width_constants = {"PK": self.width, "MAIN": self.main, "BK": block}
        self.n_padded = triton.cdiv(max(n, 1), _PADDED) * _PADDED
        extra = (0, self.width - p, 0, self.n_padded - n)
        self.vectors = F.pad(vectors, extra)
        self.mean_abs = self.vectors.abs().sum(0) / max(n, 1)
        self.rounded, self.scales = self.vectors, self.vectors.new_ones(self.width)
        if self.half:
            # A power of two of each column: dividing by it rounds nothing.
            largest = self.vectors.abs().amax(0)
            wanted = torch.maximum(4 * self.mean_abs, largest / 2**15).clamp_min(1e-30)
            self.scales = torch.exp2(wanted.log2().ceil())
            self.rounded = (self.vectors / self.scales).half()

    def set_metric(self, gram: Tensor | None) -> None:
        """Take over a metric: gram (p, p), or None for products."""
        # Without a metric the kernels get any tensor in its place.
        self.gram = self.vectors if gram is None else gram.contiguous()
        p2 = triton.next_power_of_2(self.width)
        self.metric_constants = {"HAS_GRAM": gram is not None, "P2": p2}
        self.offsets = self.vectors.new_empty(self.n_padded)
        tile = _PREPARE[self.main > 128]
        n_blocks = self.n_padded // tile["BN"]
        layout_triton.prepare[(min(n_blocks, _PREPARING),)](
            self.vectors, self.rounded, self.scales, self.gram, self.mean_abs,
            self.offsets, self.n, self.p, n_blocks, HALF=self.half,
            **self.width_constants, **self.metric_constants, **tile,
        )  # fmt: skip

    def top(
        self,
        queries: Tensor,
        m: int,
        *,
        exclude: Tensor | None = None,
        filter: Filter | None = None,
        last: Tensor | None = None,
    ) -> Neighbors:
        """Return for each query the m candidates with the largest <query, v> + offset.

        Args:
            queries: (b, p).
            m: Neighbours asked for.
            exclude: (b,), the position of a candidate that is the query itself, or -1.
            filter: Which candidates a query may take, besides `exclude`.
            last: (b, m) int32, allowed candidates that bound the search from below,
                or -1; the nearer they are the faster it is.
        """
        m = min(m, self.n)
        search = _Search(self, queries, m, exclude, filter)
        if len(queries) == 0 or m == 0:
            return search.result
        search.start(last)
        search.bound_by_bins(self.half)
        search.collect(self.half)
        if self.half:
            search.gather(1)
            search.collect(half=True)
        search.gather(2)
        if self.half or _may_be_loose(self.n, m, search.length):
            search.bound_by_bins(half=False)
        search.collect(half=False)
        search.without_lists()
        return search.result


class _Search:
    """One search: its steps, and what they leave for each other on the device.

    Attributes:
        result: The neighbours found so far.
        state: (b,), which walk a row waits for: 0 none, 1 any, 2 in full precision.
        loose: (b,), whether its bound is too low for a walk.
        order: The rows of the next walk, then -1; all rows at first.
    """

    def __init__(
        self,
        scan: Scan,
        queries: Tensor,
        m: int,
        exclude: Tensor | None,
        filter: Filter | None,
    ) -> None:
        self.scan, self.queries, self.m = scan, queries.contiguous(), m
        self.b, device = len(queries), queries.device
        # Rows come in whole tiles, too.
        self.n_padded = n = triton.cdiv(self.b, 128) * 128

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty(*shape, dtype=dtype, device=device)

        self.result = Neighbors(
            empty(self.b, m, dtype=torch.int64), empty(self.b, m, dtype=torch.bool)
        )
        self.m2 = max(16, triton.next_power_of_2(m))
        self.length = max(_LISTED, 4 * self.m2)
        # Queries as they are; then for scores at most and at least, in each precision.
        self.padded, *self.full = empty(3, n, scan.width)
        self.rounded = self.full
        if scan.half:
            self.rounded = [*empty(2, n, scan.width, dtype=torch.float16)]
        self.row_units, self.bound = empty(2, n)
        self.loose, self.state, self.order, self.count = empty(4, n, dtype=torch.int32)
        self.n_gathered = empty(1, dtype=torch.int32)
        self.is_gathered = False
        self.lists = empty(n, self.length, dtype=torch.int32)
        self.keys = empty(n, 3 * self.length, dtype=torch.int64)
        self.n_excluded = 0 if exclude is None else 1
        if exclude is None:  # -1 excludes none: so one kernel serves all searches
            exclude = torch.full((self.b,), -1, device=device)
        self.exclude = exclude
        n_conditions = 0 if filter is None else len(filter.codes)
        if filter is None:
            filter = Filter(self.count, self.count, self.count, 0, 0)
        self.conditions = filter.codes, filter.low, filter.high
        self.condition_constants = {
            "N_CONDITIONS": n_conditions,
            "OUTSIDE": filter.outside,
            "ENDS": filter.ends,
        }
        self.rank_constants = {
            "PK": scan.width,
            "MAIN": scan.main,
            "BP": min(32, scan.main),
            "M2": self.m2,
        }

    def start(self, last: Tensor | None) -> None:
        """Lay the queries out, and bound them by their last neighbours."""
        scan = self.scan
        layout_triton.start[(self.n_padded,)](
            self.queries, scan.vectors, scan.offsets, scan.scales, scan.gram,
            scan.mean_abs, self.count if last is None else last, self.padded,
            *self.full, *self.rounded, self.row_units, self.bound, self.count,
            self.loose, self.state, self.order, self.b, self.m, scan.p,
            HAS_LAST=last is not None, HALF=scan.half, **scan.metric_constants,
            **self.rank_constants,
        )  # fmt: skip

    def gather(self, max_state: int) -> None:
        """Leave only rows whose state is at most this to the next walks."""
        self.is_gathered = True
        walk_triton.gather[(1,)](
            self.state, self.order, self.n_gathered, self.n_padded,
            MAX_STATE=max_state, BLOCK=1024,
        )  # fmt: skip

    def bound_by_bins(self, half: bool) -> None:
        """Bound loose rows by the best of bins."""
        scan, tile = self.scan, _BINS[half]
        n_tiles = scan.n_padded // tile["BN"]
        per_program = triton.cdiv(n_tiles, min(_CHUNKS, n_tiles))
        n_chunks = triton.cdiv(n_tiles, per_program)
        n_bins = n_chunks * tile["BN"]
        maxima = self.bound.new_empty(self.n_padded, n_bins)
        _, queries = self.rounded if half else self.full
        walk_triton.best_of_bins[(self.n_padded // tile["BQ"], n_chunks)](
            queries, scan.rounded if half else scan.vectors, *self.conditions,
            self.order, self.loose, maxima, self.b, scan.n, per_program, n_tiles,
            HALF=half, **scan.width_constants, **self.condition_constants, **tile,
        )  # fmt: skip
        # The row itself may be the best of a bin.
        walk_triton.bound_by_bins[(self.b,)](
            maxima, self.row_units, self.order, self.state, self.loose, self.bound,
            self.m + self.n_excluded, n_bins, HALF=half,
            SIZE=triton.next_power_of_2(max(n_bins, self.m) + 1),
        )  # fmt: skip

    def collect(self, half: bool) -> None:
        """List the candidates that may reach the bounds of rows, and rank them."""
        scan, tile = self.scan, _COLLECT[half]
        n_tiles, n_groups = scan.n_padded // tile["BN"], self.n_padded // tile["BQ"]
        # Gathered rows fill few groups, which should fill the device nevertheless.
        n_programs = _GATHERED if self.is_gathered else _PROGRAMS // n_groups
        n_programs //= n_on_device()  # other members search at the same time
        per_program = triton.cdiv(n_tiles, max(1, n_programs))
        upper, _ = self.rounded if half else self.full
        walk_triton.collect[(n_groups, triton.cdiv(n_tiles, per_program))](
            upper, scan.rounded if half else scan.vectors, *self.conditions,
            self.row_units, self.bound, self.order, self.state, self.count, self.lists,
            self.b, scan.n, per_program, n_tiles, HALF=half, LIST=self.length,
            PORTABLE=PORTABLE, **scan.width_constants, **self.condition_constants,
            **tile,
        )  # fmt: skip
        rank_triton.rank[(self.b,)](
            self.padded, scan.vectors, scan.offsets, self.exclude, scan.rounded, upper,
            self.row_units, self.bound, self.loose, self.state, self.count, self.lists,
            self.keys, *self.result, scan.n, self.m, scan.p,
            MAX_STATE=1 if half else 2, MAY_REPEAT=half and not self.is_gathered,
            LIST=self.length, **self.rank_constants,
        )  # fmt: skip

    def without_lists(self) -> None:
        """Search for the rows that no list could hold."""
        scan = self.scan
        self.gather(2)
        n_shares = self.length // self.m2
        share = triton.cdiv(scan.n, n_shares)
        scratch = self.keys.new_empty(_SHARING, 3 * self.length)
        rank_triton.search_share[(_SHARING,)](
            self.padded, scan.vectors, scan.offsets, self.exclude, *self.conditions,
            self.order, self.n_gathered, scratch, self.keys, self.b, scan.n, self.m,
            share, N_SHARES=n_shares, LIST=self.length, **self.rank_constants,
            **self.condition_constants,
        )  # fmt: skip
        rank_triton.merge_shares[(self.b,)](
            self.state, self.keys, *self.result, self.m, N_SHARES=n_shares,
            M2=self.m2, LIST=self.length,
        )  # fmt: skip


def _may_be_loose(n: int, m: int, length: int) -> bool:
    """Whether n candidates can make a row loose after its list overflowed."""
    return n / length * m > length // 2


def _widths(p: int) -> tuple[int, int]:
    """Return the width that p numbers are padded to, without and with the extras."""
    if p > 128:
        width = triton.cdiv(p + _EXTRA, 64) * 64
        return width, width
    main = max(16, triton.next_power_of_2(p))
    return main, main if p + _EXTRA <= main else main + 16

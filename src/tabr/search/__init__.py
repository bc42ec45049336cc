"""Search: the m best candidates of each query, under a filter, exactly.

In: queries (b, p), the candidates' vectors (n, p) and offsets (n,), a filter. Out:
`Neighbors`, the positions of the candidates with the largest <query, vector> + offset,
best first. All files give the same neighbours, up to ties and float32 rounding.

* `filter`: which candidates each query may take.
* `exact`: the search in torch, for any device: all scores, a chunk at a time.
* `walk_numba`: the search on CPUs in compiled loops, which `exact` calls.
* `scan`: the search on NVIDIA GPUs. Writing and selecting b times n scores takes far
  longer there than computing them, so Triton kernels keep only the few that matter.
  `layout_triton` lays candidates and queries out in half precision, with limits of
  their rounding errors; `walk_triton` passes over all candidates and lists those that
  may be among the best; `rank_triton` ranks the lists in full precision.

`scan` and the kernels import Triton, so they are imported only where it runs.
"""

from tabr.search.exact import Neighbors, can_walk, top
from tabr.search.filter import Allowed, Filter

__all__ = ["Allowed", "Filter", "Neighbors", "can_walk", "top"]

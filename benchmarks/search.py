"""Time the exact search against torch's top-k of the full matrix of scores.

    python -m benchmarks.search --device cuda [--sizes 10000000x128x1024] [--repeat 5]

A size is candidates x width x queries; 96 neighbours are asked for, by rows that were
never searched for before. What belongs to the candidates alone, their squared lengths
and on a GPU the layout of a scan, is made before the clock starts. The full matrix is
made for as many queries at a time as fit into a few gigabytes. Both must find the same
neighbours up to ties: the true scores, in float64, of what each found are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks import timing
from benchmarks.timing import M, Size
from tabr.device.devices import has_triton
from tabr.search import top

SIZES = tuple(Size(n, 128, 1024) for n in (100_000, 1_000_000, 10_000_000))
_MATRIX_BYTES = {"cpu": 1 << 28, "cuda": 1 << 33}
_TOLERANCE = 1e-5  # of the largest score: float32 rounds to this

Search = Callable[[Tensor], Tensor]  # queries (b, p) -> positions (b, m)


def ours(vectors: Tensor, offsets: Tensor) -> Search:
    """As the library searches on that device."""
    if has_triton(vectors.device):
        from tabr.search.scan import Scan

        scan = Scan(vectors)
        scan.set_metric(torch.eye(vectors.shape[1], device=vectors.device))
        return lambda queries: scan.top(queries, M).position
    return lambda queries: top(queries, vectors, offsets, M).position


def topk(vectors: Tensor, offsets: Tensor) -> Search:
    """The obvious way, in float32 without TF32, as torch has it by default."""
    limit = _MATRIX_BYTES[vectors.device.type]
    n_rows = max(1, limit // (len(vectors) * vectors.element_size()))

    def search(queries: Tensor) -> Tensor:
        parts = [
            torch.addmm(offsets, part, vectors.T).topk(M).indices
            for part in queries.split(n_rows)
        ]
        return torch.cat(parts)

    return search


SEARCHES: dict[str, Callable[[Tensor, Tensor], Search]] = {"tabr": ours, "topk": topk}


def measure(size: Size, device: torch.device, repeat: int) -> dict[str, Any]:
    """Return times and peak memory of both, and how far their findings differ."""
    generator = torch.Generator(device).manual_seed(0)
    draw = partial(torch.randn, generator=generator, device=device)
    vectors, queries = draw(size.n, size.d_in), 2 * draw(size.b, size.d_in)
    # With these offsets the largest score is the smallest squared distance.
    data = queries, vectors, -vectors.square().sum(-1)
    facts: dict[str, dict[str, Any]] = {}
    calls: dict[str, Callable[[], Tensor]] = {}
    scores: dict[str, Tensor] = {}
    for name, make in SEARCHES.items():
        calls[name] = partial(make(*data[1:]), queries)
        position, peak = timing.with_peak(calls[name], device)
        facts[name] = {} if peak is None else {"peak_bytes": peak}
        scores[name] = true_scores(*data, position)
    for name, ms in timing.medians(calls, device, repeat).items():
        facts[name]["ms"] = ms
    largest = float(scores["topk"].abs().max())
    difference = float((scores["tabr"] - scores["topk"]).abs().max()) / largest
    result = {
        "candidates": size.n,
        "width": size.d_in,
        "queries": size.b,
        "ways": facts,
        "largest_difference": difference,
        "same": difference < _TOLERANCE,
    }
    del data, calls, vectors, make
    timing.free_memory(device)
    return result


def true_scores(
    queries: Tensor, vectors: Tensor, offsets: Tensor, position: Tensor
) -> Tensor:
    """Return the scores (b, m) of the candidates at position, in float64, sorted."""
    product = vectors[position].double() @ queries.double()[:, :, None]
    return (product.squeeze(-1) + offsets[position]).sort(descending=True).values


def main(arguments: Sequence[str] | None = None) -> None:
    parser = timing.parser(__doc__, repeat=5)
    parser.add_argument("--sizes", nargs="+", type=timing.size, default=SIZES)
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    results = []
    for size in options.sizes:
        result = measure(size, device, options.repeat)
        results.append(result)
        ours_ms, topk_ms = (result["ways"][name]["ms"] for name in ("tabr", "topk"))
        print(
            f"{size.n:>10,} x {size.d_in}, {size.b} queries   tabr {ours_ms:.2f} ms   "
            f"topk {topk_ms:.2f} ms   the same neighbours: {result['same']}",
            flush=True,
        )
        timing.write("search", options, arguments, {"m": M, "sizes": results})


if __name__ == "__main__":
    main()

"""Time a training step against the number of candidates, 10^4 to 10^7.

    python -m benchmarks.curve --device cuda [--sizes 10000x8x256 ...] [--repeat 5]

Three sizes a decade, for narrow rows in small batches and wide rows in large ones.
The plain form is left out once a step took more than a second or ran out of memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from benchmarks import timing
from benchmarks.step import HOW, line, measure
from benchmarks.timing import Size

SHAPES = ((8, 256), (100, 1024))  # input width, batch
SIZES = tuple(
    Size(round(10 ** (4 + i / 3)), d_in, b) for d_in, b in SHAPES for i in range(10)
)
_LONGEST_MS = 1000.0  # of a plain step, to try it at the next size


def main(arguments: Sequence[str] | None = None) -> None:
    parser = timing.parser(__doc__, repeat=5)
    parser.add_argument("--sizes", nargs="+", type=timing.size, help="as 10000x8x256")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    sizes = sorted(options.sizes or SIZES, key=lambda size: (size.d_in, size.b, size.n))
    too_slow: set[tuple[int, int]] = set()
    results = []
    for size in sizes:
        shape = size.d_in, size.b
        names = ("tabr",) if shape in too_slow else ("plain", "tabr")
        result = measure(size, names, device, options.repeat)
        plain_ms = result["forms"].get("plain", {}).get("step_ms", float("inf"))
        if plain_ms > _LONGEST_MS:
            too_slow.add(shape)
        results.append(result)
        print(line(result), flush=True)
        timing.write("curve", options, arguments, {"how": HOW, "sizes": results})


if __name__ == "__main__":
    main()

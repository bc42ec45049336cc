"""Time a training step of TabR-S in its plain form and in ours, in one run.

    python -m benchmarks.step [--device cpu] [--sizes california] [--repeat 9]

Both train the same network on the same random rows. The two forms take turns, so that
a noisy machine troubles both; the medians and their ratio are printed and written to
results/.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.plain import PlainTabRS
from tabr.config import NetworkConfig
from tabr.fitting import Contexts
from tabr.network import TabR
from tabr.rows import Rows

SIZES = {  # name: candidates, input width, batch
    "california": (13_209, 8, 256),
    "diamond": (34_521, 26, 512),
    "higgs-small": (62_751, 28, 512),
}
M = 96


def plain_step(x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    network = PlainTabRS(x.shape[1], NetworkConfig()).to(x.device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4)

    def step(batch: Tensor) -> Tensor:
        others = torch.ones(len(x), dtype=torch.bool, device=x.device)
        others[batch] = False
        optimizer.zero_grad()
        prediction = network(x[batch], x[others], y[others], M)
        loss = (prediction - y[batch]).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def our_step(x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    none = x[:, :0]
    rows = Rows(x, none, none.long())
    network = TabR(NetworkConfig(), x.shape[1], 0, (), "regression").to(x.device)
    contexts = Contexts(network, rows, y, M)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4, fused=True)

    def step(batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        metric = network.metric()
        context = contexts.of(batch, metric)
        prediction = network(rows.take(batch), context, metric).prediction
        loss = (prediction.squeeze(-1) - y[batch]).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def measure(name: str, device: torch.device, repeat: int) -> dict[str, object]:
    n, d_in, b = SIZES[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d_in, generator=generator).to(device)
    y = torch.randn(n, generator=generator).to(device)
    torch.manual_seed(0)
    steps = {"plain": plain_step(x, y), "tabr": our_step(x, y)}
    times: dict[str, list[float]] = {form: [] for form in steps}
    for turn in range(repeat + 2):  # two turns to warm up
        batch = torch.randperm(n, generator=generator)[:b].to(device)
        for form, step in steps.items():
            start = time.perf_counter()
            float(step(batch))  # waits for the device
            if turn >= 2:
                times[form].append(1e3 * (time.perf_counter() - start))
    median = {form: statistics.median(ms) for form, ms in times.items()}
    return {
        "size": name,
        "candidates": n,
        "d_in": d_in,
        "batch": b,
        "device": device.type,
        "plain_ms": round(median["plain"], 2),
        "tabr_ms": round(median["tabr"], 2),
        "ratio": round(median["plain"] / median["tabr"], 2),
        "repeat": repeat,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", nargs="*", default=["california"], choices=SIZES)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("results/speed"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.sizes:
        result = measure(name, torch.device(arguments.device), arguments.repeat)
        path = arguments.out / f"step-{name}-{arguments.device}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(
            f"{name:12} {result['candidates']:>7} x {result['d_in']:<3} "
            f"plain {result['plain_ms']:8.1f} ms   tabr {result['tabr_ms']:8.1f} ms   "
            f"{result['ratio']:.1f} times faster"
        )


if __name__ == "__main__":
    main()

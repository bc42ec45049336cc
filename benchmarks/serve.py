"""Hold a rate of single-row predictions against the service, from a second process.

    python -m benchmarks.serve --seconds 60 --rate 200

The service runs in a process of its own on loopback, with a model of the demo's size
(diabetes, ten numbers) whose memory has 20,000 candidates. Requests leave on schedule,
whether the ones before them were answered or not; a request's time counts from when it
should have left.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import timing
from tabr import TabRRegressor

N_CONNECTIONS = 32
TOKEN = "of-this-benchmark-alone"


def environment() -> dict[str, str]:
    """Return the environment of a service that takes the token."""
    return {**os.environ, "TABR_TOKEN": TOKEN}


def make_model(path: Path, n: int) -> list[dict[str, float]]:
    """Fit a small model, give it n candidates, and return rows to ask about."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    model = TabRRegressor(max_epochs=3, random_state=0, device="cpu").fit(X, y)
    rng = np.random.default_rng(0)
    more = X.iloc[rng.integers(0, len(X), n - len(model.candidates_))]
    noise = 1 + 0.01 * rng.standard_normal(more.shape)
    labels = y.iloc[more.index].to_numpy()
    model.add_candidates(
        pd.DataFrame(more.to_numpy() * noise, columns=X.columns), labels
    )
    model.save(path)
    rows: list[dict[str, float]] = X.astype(float).to_dict("records")
    return rows


class Connection:
    """One connection of HTTP 1.1, kept open."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.lock = asyncio.Lock()
        self.reader: asyncio.StreamReader | None = None

    async def post(self, body: bytes) -> int:
        """Send a prediction request and return the status."""
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection(
                self.host, self.port
            )
        head = (
            f"POST /v1/predict HTTP/1.1\r\nhost: {self.host}\r\n"
            f"authorization: Bearer {TOKEN}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        fields = answer.lower().split(b"\r\n")
        (length,) = (f for f in fields if f.startswith(b"content-length:"))
        await self.reader.readexactly(int(length.split(b":")[1]))
        return int(answer.split(b" ", 2)[1])


async def load(
    host: str, port: int, bodies: list[bytes], rate: float, seconds: float
) -> tuple[list[float], int]:
    """Return the time of each request, and how many were not answered with 200."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(N_CONNECTIONS):
        free.put_nowait(Connection(host, port))
    times: list[float] = []
    errors = 0

    async def one(due: float, body: bytes) -> None:
        nonlocal errors
        connection = await free.get()
        try:
            status = await connection.post(body)
            errors += status != 200
        except (OSError, asyncio.IncompleteReadError, ValueError):
            errors += 1
            connection = Connection(host, port)
        finally:
            free.put_nowait(connection)
        times.append(time.perf_counter() - due)

    start = time.perf_counter()
    tasks = []
    for k in range(round(rate * seconds)):
        due = start + k / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due, bodies[k % len(bodies)])))
    await asyncio.gather(*tasks)
    return times, errors


def main(arguments: Sequence[str] | None = None) -> None:
    parser = timing.parser(__doc__)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--candidates", type=int, default=20_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demo.tabr"
        rows = make_model(path, options.candidates)
        command = [sys.executable, "-m", "tabr", "serve", str(path), "--port", "0"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment()
        )
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[0]
            host, port = address.removeprefix("http://").rsplit(":", 1)
            bodies = [json.dumps({"rows": [row]}).encode() for row in rows]
            asyncio.run(load(host, int(port), bodies, options.rate, 3.0))  # warm
            times, errors = asyncio.run(
                load(host, int(port), bodies, options.rate, options.seconds)
            )
        finally:
            process.terminate()
            process.wait(30)
    ms = np.sort(np.array(times)) * 1000
    result = {
        "candidates": options.candidates,
        "rate": options.rate,
        "seconds": options.seconds,
        "requests": len(times),
        "errors": errors,
        "cores": os.cpu_count(),
        **{f"p{q}_ms": round(float(np.percentile(ms, q)), 2) for q in (50, 90, 99)},
        "max_ms": round(float(ms[-1]), 2),
    }
    print(
        f"{len(times)} requests at {options.rate:g} a second, {errors} errors;"
        f" median {result['p50_ms']} ms, p99 {result['p99_ms']} ms"
    )
    timing.write("serve", options, arguments, {"serve": result})


if __name__ == "__main__":
    main()

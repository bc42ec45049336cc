"""Try to lose updates: kill the service at random moments, and fill its disk.

    python -m benchmarks.durability --rounds 20 --updates 1000

In each round a client sends updates, one row each with a key of its own, until the
service is killed (SIGKILL) at a random moment; then it starts again, and the client
sends what was not acknowledged once more, with the same keys. In the end every label is
in the memory exactly once. The second part lets the files of the service grow no
further (RLIMIT_FSIZE): updates are refused in words, predictions go on, and after the
limit is lifted updates go on, too.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import timing
from benchmarks.serve import TOKEN, environment, make_model

FIRST_LABEL = 10_000.0  # of the updates: 10000, 10001, ...


class Service:
    """The service as a process that can be killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tabr", "serve", str(self.path), "--port", "0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment()
        )
        assert self.process.stdout is not None
        address = self.process.stdout.readline().split()[0]
        host, port = address.removeprefix("http://").rsplit(":", 1)
        self.address = host, int(port)

    def request(self, method: str, path: str, body: Any, **headers: str) -> Any:
        """Return status and JSON of an answer; None if there was none."""
        connection = http.client.HTTPConnection(*self.address, timeout=20)
        try:
            token = {"authorization": f"Bearer {TOKEN}"}
            more = {"content-type": "application/json", **token, **headers}
            connection.request(method, path, json.dumps(body), more)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def add(service: Service, row: Any, number: int) -> Any:
    body = {"rows": [row], "labels": [FIRST_LABEL + number]}
    headers = {"Idempotency-Key": f"update-{number}"}
    return service.request("POST", "/v1/candidates", body, **headers)


def kill_rounds(
    path: Path, rows: list[Any], n_updates: int, n_rounds: int, seed: int
) -> dict[str, Any]:
    """Send updates while the service is killed again and again."""
    rng = random.Random(seed)
    service = Service(path)
    acknowledged: dict[int, int] = {}
    number = n_retries = 0
    for turn in range(n_rounds):
        end = (turn + 1) * n_updates // n_rounds
        moment = number + rng.uniform(0, max(1, end - number))
        timer: threading.Timer | None = None
        while number < end:
            if timer is None and number >= int(moment):
                timer = threading.Timer(rng.uniform(0, 0.02), service.kill)
                timer.start()
            answer = add(service, rows[number % len(rows)], number)
            if answer is not None and answer[0] == 201:
                (acknowledged[number],) = answer[1]["ids"]
                number += 1
                continue
            n_retries += 1
            if timer is not None:
                timer.join()
            service.start()
            timer = None
            moment = end  # one kill a round
        if timer is not None:
            timer.join()
            service.start()
    service.kill()
    labels, ids = remembered(path)
    service = Service(path)  # once more, to see that it starts
    service.end()
    expected = np.arange(n_updates) + FIRST_LABEL
    updates = labels[labels >= FIRST_LABEL]
    by_id = dict(zip(ids.tolist(), labels.tolist(), strict=True))
    return {
        "rounds": n_rounds,
        "acknowledged": len(acknowledged),
        "retries": n_retries,
        "lost": len(np.setdiff1d(expected, updates)),
        "doubled": int(len(updates) - len(np.unique(updates))),
        "under_another_id": sum(
            by_id.get(name) != FIRST_LABEL + k for k, name in acknowledged.items()
        ),
    }


def remembered(path: Path) -> tuple[Any, Any]:
    """Return labels and ids of the memory, read by another process than the service."""
    from tabr.serving.served_model import ServedModel

    served = ServedModel(path, path.with_name(f"{path.name}.memory"), "cpu")
    candidates = served.model.candidates_
    labels, ids = np.asarray(candidates.y, float), np.asarray(candidates.ids)
    served.close()
    return labels, ids


def full_disk(path: Path, rows: list[Any]) -> dict[str, Any]:
    """Return what the service does while its files cannot grow, and afterwards."""
    service = Service(path)
    pid, unlimited = service.process.pid, resource.RLIM_INFINITY
    size = max(
        file.stat().st_size for file in path.parent.rglob("*") if "memory" in str(file)
    )
    for number in range(5):
        assert add(service, rows[0], number)[0] == 201
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, unlimited))
    refused, number = 0, 5
    while refused < 5 and number < 5000:
        answer = add(service, rows[0], number)
        assert answer is not None
        if answer[0] == 201:
            number += 1
        else:
            assert answer[0] == 503, answer
            refused += 1
            text = answer[1]["detail"]
    status, _ = service.request("POST", "/v1/predict", {"rows": rows[:1]})
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
    after = add(service, rows[0], number)[0]
    service.kill()
    labels, _ = remembered(path)
    updates = np.sort(labels[labels >= FIRST_LABEL]) - FIRST_LABEL
    return {
        "refused": refused,
        "said": text,
        "prediction_meanwhile": status,
        "update_afterwards": after,
        "exactly_the_acknowledged": bool(
            np.array_equal(updates, np.arange(number + 1))
        ),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = timing.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    result: dict[str, Any] = {}
    for name in ("kill", "full_disk"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "demo.tabr"
            rows = make_model(path, 1000)
            if name == "kill":
                result[name] = kill_rounds(
                    path, rows, options.updates, options.rounds, options.seed
                )
            else:
                result[name] = full_disk(path, rows)
        print(name, result[name], flush=True)
    print(f"{time.perf_counter() - start:.0f} s, process {os.getpid()}")
    timing.write("durability", options, arguments, {"durability": result})


if __name__ == "__main__":
    main()

"""Clients that change a service's candidates, and what they were told of each change.

Every added row has a label of its own, so the memory tells afterwards which changes
were made, and how often.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

TOKEN = "trial-" + "t" * 26
FIRST_LABEL = 10_000.0  # of the added rows: 10000, 10001, ...
PATIENCE = 120.0  # seconds for an answer

Outcome = Literal["made", "not made", "unknown"]


class Service:
    """The service as a process that can be killed and started again."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path, self.options = path, options
        self.address: tuple[str, int] | None = None
        self.start()

    def start(self) -> None:
        """Start the process and wait until it listens."""
        command = [sys.executable, "-m", "tabr", "serve", str(self.path), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, *self.options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TABR_TOKEN": TOKEN},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the service has not started: {self.process.wait()}")
        host, port = line.split()[0].removeprefix("http://").rsplit(":", 1)
        self.address = host, int(port.partition("/")[0])

    def request(self, method: str, path: str, body: Any, **headers: str) -> Any:
        """Return status and JSON of an answer; None if there was none."""
        if self.address is None:
            return None
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        try:
            more = {"content-type": "application/json", **headers}
            more["authorization"] = f"Bearer {TOKEN}"
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, more)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def kill(self) -> None:
        """End the process at once."""
        self.address = None
        self.process.kill()
        self.process.communicate()

    def end(self) -> None:
        """Ask the process to end, and wait for it."""
        self.address = None
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE)


def added(service: Service, row: Any, number: int, key: str | None) -> Any:
    """Send the row with the label of this number; return the answer."""
    body = {"rows": [row], "labels": [FIRST_LABEL + number]}
    headers = {} if key is None else {"Idempotency-Key": key}
    return service.request("POST", "/v1/candidates", body, **headers)


@dataclass
class Ledger:
    """What clients were told of each change, by its number."""

    told: dict[int, tuple[Outcome, int]] = field(default_factory=dict)  # and the id
    answers: Counter[str] = field(default_factory=Counter)
    _lock: Any = field(default_factory=threading.Lock)
    _next: int = 0

    def take(self) -> int:
        """Return the number of the next change."""
        with self._lock:
            self._next += 1
            return self._next - 1

    def write(self, number: int, answer: Any) -> bool:
        """Note an answer; return whether it leaves no doubt that the change is made."""
        with self._lock:
            name = "none" if answer is None else str(answer[0])
            self.answers[name] += 1
            outcome: Outcome = "unknown"
            place = -1
            if answer is not None and answer[0] == 201:
                outcome, (place,) = "made", answer[1]["ids"]
            elif answer is not None and answer[1].get("outcome") == "not made":
                outcome = "not made"
            self.told[number] = outcome, place
            return outcome == "made"

    def verdict(self, labels: Any, ids: Any) -> dict[str, int]:
        """Compare what was told with the labels and ids of the memory."""
        times = Counter((labels[labels >= FIRST_LABEL] - FIRST_LABEL).astype(int))
        place = dict(zip(labels.tolist(), ids.tolist(), strict=True))
        counts = Counter(outcome for outcome, _ in self.told.values())
        lost = doubled = wrong = 0
        for number, (outcome, told_id) in self.told.items():
            n = times[number]
            doubled += n > 1
            lost += outcome == "made" and n == 0
            is_elsewhere = n == 1 and place[FIRST_LABEL + number] != told_id
            wrong += outcome == "made" and is_elsewhere
            wrong += outcome == "not made" and n > 0
        return {
            "changes acknowledged": counts["made"],
            "told that it was not made": counts["not made"],
            "told that it is not known": self.answers["504"],
            "no answer": self.answers["none"],
            "other answers": sum(
                n
                for status, n in self.answers.items()
                if status not in ("201", "503", "504", "none")
            ),
            "lost": lost,
            "doubled": doubled,
            "told wrongly": wrong,
            "in the memory, sent by nobody": sum(
                n for number, n in times.items() if number not in self.told
            ),
        }


def has_held(counts: dict[str, Any]) -> bool:
    """Whether nothing was lost, doubled or told wrongly."""
    names = ("other answers", "lost", "doubled", "told wrongly")
    return not any(counts[name] for name in names)


class Clients:
    """Clients that add rows until they are told to stop; every other one uses keys.

    A client with keys sends a change again until it is acknowledged; one without sends
    it once. Client k speaks to service k, counted around.
    """

    def __init__(
        self, services: Sequence[Service], rows: Sequence[Any], n: int, seed: int
    ) -> None:
        self.ledger, self._services, self._rows = Ledger(), services, rows
        self._is_over = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._work, args=(k, random.Random(f"{seed} {k}")))
            for k in range(n)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, client: int, draw: random.Random) -> None:
        try:
            service = self._services[client // 2 % len(self._services)]
            while not self._is_over.is_set():
                self._change(service, client, draw)
        except BaseException as error:
            self._errors.append(error)

    def _change(self, service: Service, client: int, draw: random.Random) -> None:
        if service.address is None:  # it starts again
            time.sleep(0.05)
            return
        number, row = self.ledger.take(), draw.choice(self._rows)
        key = f"change-{number}" if client % 2 else None
        while True:
            answer = added(service, row, number, key)
            if self.ledger.write(number, answer) or key is None or self._is_late():
                break
            time.sleep(0.05)
        if draw.random() < 0.02:
            service.request("POST", "/v1/compact", None)

    def _is_late(self) -> bool:
        """Whether the end was long ago, so that no service will answer."""
        return self._is_over.is_set() and time.monotonic() > self._end + PATIENCE

    def finish(self) -> Ledger:
        """Let the clients end their last changes; return what they were told."""
        self._end = time.monotonic()
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return self.ledger


def remembered(path: Path, store: str | Path) -> tuple[Any, Any]:
    """Return labels and ids of the memory, read by another process than the service."""
    from tabr.serving.served_model import ServedModel

    served = ServedModel(path, store, "cpu")
    candidates = served.model.candidates_
    labels, ids = np.asarray(candidates.y, float), np.asarray(candidates.ids)
    served.close()
    return labels, ids

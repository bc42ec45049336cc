"""The trial of crafted bodies: a service gets them from several clients at once."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from reliability.crafted_bodies import Body, bombs, craft, homes
from reliability.trials import ROOT, Trial
from tabr import TabRRegressor
from tabr.serving.messages import MOST_IDS

N_CLIENTS = 4
N_HOMES = 200
MOST_KEPT = 300  # rows that were added and stay, so that all can be listed
LISTED = 1000  # candidates, at most, of one answer
MOST_MIB = 512  # that the service may take above what it took before
LONGEST_LOG = 20_000  # letters that are shown where something failed
SLOWEST = 0.5  # seconds of /healthz

Row = dict[str, Any]


@dataclass(frozen=True)
class Service:
    """A service that runs: its process, address and token."""

    process: subprocess.Popen[str]
    host: str
    port: int
    token: str

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection, to be opened when it is used."""
        return http.client.HTTPConnection(self.host, self.port, timeout=120)

    def send(
        self, connection: http.client.HTTPConnection, body: Body
    ) -> tuple[int, bytes]:
        """Send a body; return the status and the answer."""
        headers = {"authorization": f"Bearer {self.token}", "content-type": body.media}
        connection.request(body.method, body.path, body.content, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def candidates(self) -> dict[int, tuple[Any, Row]]:
        """Return all rows that may be retrieved, by their ids."""
        path = f"/v1/candidates?n={LISTED}"
        _, content = self.send(self.connect(), Body("", "GET", path, "", b""))
        rows = json.loads(content)["rows"]
        return {row["id"]: (row["label"], row["row"]) for row in rows}

    def mib(self, what: str) -> float:
        """Return a line of the process' memory: VmRSS now, VmHWM at most so far."""
        text = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        (line,) = (line for line in text.splitlines() if line.startswith(what))
        return int(line.split()[1]) / 1024

    def forget_peak(self) -> None:
        """Let the peak of the memory begin anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", "ascii")


@contextmanager
def serving(path: Path) -> Iterator[Service]:
    """Run the service of a model, with a log beside it; in the end it is killed."""
    token = secrets.token_hex(16)
    environment = {**os.environ, "TABR_TOKEN": token, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "tabr", "serve", str(path), "--port", "0"]
    with path.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0].removeprefix("http://")
        host, _, port = address.split("/")[0].rpartition(":")
        yield Service(process, host, int(port), token)
    finally:
        process.kill()
        process.wait()


@contextmanager
def asked_for_health(service: Service) -> Iterator[dict[str, Any]]:
    """Ask for /healthz all the time; in the end the dict has what came of it."""
    command = [sys.executable, "-m", "reliability.health"]
    found: dict[str, Any] = {}
    with subprocess.Popen(
        [*command, service.host, str(service.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        yield found
        found |= json.loads(process.communicate()[0])


@dataclass
class Ledger:
    """What the clients were told: statuses, failures, and changes of candidates."""

    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    added: dict[int, Row | None] = field(default_factory=dict)
    n_added: int = 0
    removed: set[int] = field(default_factory=set)
    relabelled: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, number: int, body: Body, status: int, answer: bytes) -> list[int]:
        """Note an answer, or status 0 for none; return ids that should go again."""
        kind = f"{status // 100}xx" if status else "none"
        with self.lock:
            self.statuses[kind] += 1
            if kind in ("5xx", "none"):
                self.failures.append(f"{number}: {body.kind} to {body.path}: {status}")
            if kind != "2xx" or not body.path.startswith("/v1/candidates"):
                return []
            ids: list[int] = json.loads(answer)["ids"]
            if body.method == "DELETE":
                self.removed |= set(ids)
                return []
            if body.method == "PATCH":
                self.relabelled |= set(ids)
                return []
            self.n_added += len(ids)
            if len(self.added) + len(ids) > MOST_KEPT:
                self.removed |= set(ids)
                return ids
            rows = _rows(body, len(ids))
            self.added |= dict(zip(ids, rows, strict=True))
            return []

    def wrong(
        self, before: dict[int, tuple[Any, Row]], after: dict[int, tuple[Any, Row]]
    ) -> int:
        """Return how many candidates are not as acknowledged changes make them."""
        known = (before.keys() | self.added.keys()) - self.removed
        n_wrong = len(known ^ after.keys())
        for id_ in known & after.keys():
            label, row = after[id_]
            if id_ in before:
                same = row == before[id_][1]
                same &= id_ in self.relabelled or label == before[id_][0]
            else:
                sent = self.added[id_]
                same = sent is None or all(_is_same(row[k], sent[k]) for k in row)
            n_wrong += not same
        return n_wrong


def _rows(body: Body, n: int) -> list[Row | None]:
    """Return the rows of an addition as JSON has them; None where it is a table."""
    if body.path != "/v1/candidates":
        return [None] * n
    rows: list[Row | None] = json.loads(body.content)["rows"]
    return rows


def _is_same(kept: Any, sent: Any) -> bool:
    """Whether a cell was kept as it was sent; a date may be written out."""
    if isinstance(sent, str) and isinstance(kept, str):
        return kept[:10] == sent[:10]
    return bool(kept == sent)


def attack(count: int, seed: int, folder: Path) -> Trial:
    """Send crafted bodies to a service of its own, and count what came of them."""
    bombs()  # which takes a while, in which connections would be closed
    path = folder / "homes.tabr"
    TabRRegressor(max_epochs=2, random_state=0, device="cpu").fit(*homes(N_HOMES)).save(
        path
    )
    with serving(path) as service:
        _warm_up(service)
        service.forget_peak()
        before, start = service.candidates(), service.mib("VmRSS")
        ledger = Ledger()
        with asked_for_health(service) as health:
            parts = [range(k, count, N_CLIENTS) for k in range(N_CLIENTS)]
            with ThreadPoolExecutor(N_CLIENTS) as clients:
                list(clients.map(partial(_send_all, service, ledger, seed), parts))
        growth = service.mib("VmHWM") - start
        n_wrong = ledger.wrong(before, service.candidates())
    if ledger.failures:
        click.echo(path.with_suffix(".log").read_text("utf-8")[-LONGEST_LOG:], err=True)
    for line in ledger.failures:
        click.echo(line, err=True)
    return _trial(count, ledger, health, growth, n_wrong)


def _warm_up(service: Service) -> None:
    """Ask all routes what they are for, so that nothing is compiled later."""
    frame, price = homes(50)
    rows = json.loads(frame.to_json(orient="records", date_format="iso"))
    content = json.dumps({"rows": rows}).encode()
    table = frame.assign(price=price).to_csv(index=False).encode()
    json_type, csv_type = "application/json", "text/csv"
    for body in (
        Body("", "POST", "/v1/predict", json_type, content),
        Body("", "POST", "/v1/explain", json_type, content),
        Body("", "POST", "/v1/predict/table", csv_type, table),
    ):
        status, answer = service.send(service.connect(), body)
        if status != 200:
            raise click.ClickException(f"{body.path} answers {status}: {answer!r:.200}")


def _send_all(service: Service, ledger: Ledger, seed: int, numbers: range) -> None:
    """Send the bodies of these numbers one after another."""
    connection = service.connect()
    for number in numbers:
        body = craft(seed, number)
        try:
            status, answer = service.send(connection, body)
        except (OSError, http.client.HTTPException):
            status, answer = 0, b""
            connection.close()
        ids = ledger.note(number, body, status, answer)
        for start in range(0, len(ids), MOST_IDS):
            content = json.dumps({"ids": ids[start : start + MOST_IDS]}).encode()
            removal = Body("", "DELETE", "/v1/candidates", "application/json", content)
            service.send(connection, removal)


def run(count: int, seed: int) -> Trial:
    """Send crafted bodies to a service of a new model."""
    with tempfile.TemporaryDirectory() as folder:
        return attack(count, seed, Path(folder))


def _trial(
    count: int, ledger: Ledger, health: dict[str, Any], growth: float, n_wrong: int
) -> Trial:
    statuses = ledger.statuses
    counts: dict[str, int | float | str] = {
        "bodies": count,
        "answered with 2xx": statuses["2xx"],
        "refused with 4xx": statuses["4xx"],
        "answered with 5xx": statuses["5xx"],
        "lost connections": statuses["none"],
        "rows added as asked": ledger.n_added,
        "candidates that are not as acknowledged": n_wrong,
        "memory at its peak, above the start, MiB": round(growth),
        "memory that is allowed above the start, MiB": MOST_MIB,
        "questions to /healthz": health["asked"],
        "of these unanswered": health["unanswered"],
        "slowest /healthz, s": round(health["slowest"], 3),
    }
    failed = (
        count
        - statuses.total()
        + statuses["5xx"]
        + statuses["none"]
        + n_wrong
        + health["unanswered"]
    )
    held = not failed and growth <= MOST_MIB and health["slowest"] < SLOWEST
    tried = (
        f"Damaged JSON, CSV and Arrow, bodies that would unfold, and noise, sent to all"
        f" routes of `tabr serve` by {N_CLIENTS} clients with all rights, while another"
        f" process asks for /healthz all the time. No 5xx, at most {MOST_MIB} MiB more"
        f" memory, and /healthz within {SLOWEST} s are allowed."
    )
    return Trial("Crafted bodies", tried, counts, held)

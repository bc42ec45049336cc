"""The service as a process of its own, for trials that attack it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.serve import make_model

SETTINGS = {"the default settings": (), "--no-token": ("--no-token",)}


def new_model(folder: Path, n: int = 600) -> tuple[Path, dict[str, float]]:
    """Return the file of a small model in a folder, and one of its rows."""
    path = folder / "patients.tabr"
    return path, make_model(path, n)[0]


@dataclass(frozen=True)
class Running:
    """A service that runs: its process, its address, and the token it has made."""

    process: subprocess.Popen[str]
    host: str
    port: int
    token: str

    def ask(
        self, method: str, path: str, body: Any = None, *, source: str = ""
    ) -> tuple[int, Any]:
        """Return the status and the JSON of an answer, with all rights."""
        address = (source, 0) if source else None
        connection = http.client.HTTPConnection(
            self.host, self.port, timeout=30, source_address=address
        )
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        content = None
        if body is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(body)
        try:
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    @property
    def n_changes(self) -> int:
        """How many changes the service has made so far."""
        _, about = self.ask("GET", "/v1/model")
        return int(about["version"].rpartition("-")[2])


@contextmanager
def running(path: Path, *options: str) -> Iterator[Running]:
    """Serve a model with some options; in the end the service is killed."""
    command = [sys.executable, "-m", "tabr", "serve", str(path), "--port", "0"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TABR_")}
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[0]
        place, _, token = address.partition("/#token=")
        host, _, port = place.removeprefix("http://").rpartition(":")
        yield Running(process, host, int(port), token)
    finally:
        process.kill()
        process.wait()

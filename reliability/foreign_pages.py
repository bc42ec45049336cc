"""Foreign pages in Chromium: what they read from a service, and what they change.

In: a browser, and a service on this machine. Out: counts of what was tried, read and
changed, from pages of another port, of another site, without an origin, and under a
name that was made to point at the service (DNS rebinding). The same attempts by a page
of the service itself show that they can succeed.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from reliability.services import SETTINGS, Running, new_model, running
from reliability.trials import Trial

FOREIGN, REBOUND = "foreign.test", "rebound.test"  # both are made to point here
ARGUMENTS = (
    "--no-sandbox",  # a container has no user to protect from the page
    "--no-proxy-server",
    # Newer browsers ask before a page reaches this machine; others do not.
    "--disable-features=LocalNetworkAccessChecks",
    f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1, MAP {REBOUND} 127.0.0.1",
)
PAGE = "<!doctype html><title>a page</title><body>"
FRAME = (
    '<iframe name=alone sandbox="allow-scripts allow-forms" srcdoc="a page"></iframe>'
)

SCRIPT = Path(__file__).with_suffix(".js").read_text("utf-8").partition("\n")[2]


class _Handler(BaseHTTPRequestHandler):
    """The server of the attacker: a page without anything in it."""

    def do_GET(self) -> None:
        """Send the page."""
        content = (PAGE + FRAME).encode()
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        """Keep quiet."""


@contextmanager
def _attacker() -> Iterator[int]:
    """Run the server of the attacker; yield its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def _bodies(row: dict[str, float]) -> dict[str, str]:
    """Return what the attempts send; each would change the memory."""
    columns = [*row, "target"]
    return {
        "add": json.dumps({"rows": [row], "labels": [1e6]}),
        "relabel": json.dumps({"ids": [1], "labels": [1e6]}),
        "remove": json.dumps({"ids": [2]}),
        "csv": f"{','.join(columns)}\n{','.join(map(str, [*row.values(), 1]))}\n",
    }


def _tabs(browser: Any, service: Running, port: int) -> Iterator[tuple[str, Any, str]]:
    """Yield foreign pages: what each is, its frame, and where it finds the service."""
    here = f"http://127.0.0.1:{service.port}"
    for at in (
        here,
        f"http://localhost:{service.port}",
        f"http://0.0.0.0:{service.port}",
    ):
        for name in ("127.0.0.1", FOREIGN):
            tab = browser.new_page()
            tab.goto(f"http://{name}:{port}/")
            yield ("another port" if name != FOREIGN else "another site"), tab, at
            if at == here and name == FOREIGN:
                yield "no origin", tab.frame("alone"), at
            tab.close()
    tab = browser.new_page()
    # The attacker's page comes first; then the name points at the service.
    start = f"http://{REBOUND}:{service.port}/start"
    tab.route(start, lambda route: route.fulfill(body=PAGE, content_type="text/html"))
    tab.goto(start)
    yield "a name that was pointed here", tab, ""
    tab.close()


def attack(
    browser: Any, service: Running, row: dict[str, float]
) -> tuple[Counter[str], int]:
    """Try everything from all foreign pages; return what was counted, and the reads."""
    counts: Counter[str] = Counter()
    n_read = 0
    with _attacker() as port:
        for origin, tab, at in _tabs(browser, service, port):
            for _, text in tab.evaluate(SCRIPT, {"at": at, **_bodies(row)}):
                counts[f"attempts from {origin}"] += 1
                n_read += bool(text)
    return counts, n_read


def own_page(browser: Any, service: Running, row: dict[str, float]) -> int:
    """Return how many attempts read something when a page of the service makes them."""
    tab = browser.new_page()
    tab.goto(f"http://127.0.0.1:{service.port}/docs")
    tried = tab.evaluate(SCRIPT, {"at": "", **_bodies(row)})
    tab.close()
    return sum(bool(text) for _, text in tried)


def trial(chromium: Any, setting: str, folder: Path, place: str | None = None) -> Trial:
    """Attack a service with one of `SETTINGS`; `place` is where the browser is."""
    path, row = new_model(folder)
    place = place or find_chromium()
    browser = chromium.launch(executable_path=place, args=list(ARGUMENTS))
    with running(path, *SETTINGS[setting]) as service:
        counts, n_read = attack(browser, service, row)
        n_changes, n_files = service.n_changes, len(list(folder.glob("*.tabr"))) - 1
        counted: dict[str, int | float | str] = {
            **counts,
            "answers read": n_read,
            "rows added, changed or removed": n_changes,
            "files written": n_files,
        }
        if not service.token:
            counted["answers that a page of the service itself read"] = own_page(
                browser, service, row
            )
            counted["changes that it made"] = service.n_changes - n_changes
    browser.close()
    return Trial(
        f"Foreign pages in Chromium, with {setting}",
        "Pages that are not the service's own try to read from it and to change it.",
        counted,
        held=not (n_read or n_changes or n_files),
    )


def find_chromium() -> str:
    """Return where the browser is."""
    names = ("chromium", "chromium-browser", "google-chrome")
    place = next((path for name in names if (path := shutil.which(name))), None)
    if place is None:
        raise SystemExit("no browser: apt-get install -y chromium")
    return place


def trials() -> list[Trial]:
    """Attack a service with each of the settings."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        for setting in SETTINGS:
            with tempfile.TemporaryDirectory() as folder:
                found.append(trial(playwright.chromium, setting, Path(folder)))
    return found

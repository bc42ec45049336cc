"""How long /healthz takes, asked all the time by a process that does nothing else.

    python -m reliability.health 127.0.0.1 8000

It ends with its input, and prints how often it asked, how often there was no answer,
and the slowest answer in seconds.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import sys
import time

PAUSE = 0.02  # seconds between answers


def main(host: str, port: int) -> None:
    """Ask until the input ends."""
    asked = unanswered = 0
    slowest = 0.0
    connection = http.client.HTTPConnection(host, port, timeout=30)
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        asked += 1
        start = time.perf_counter()
        try:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            answer.read()
            unanswered += answer.status != 200
        except (OSError, http.client.HTTPException):
            unanswered += 1
            with contextlib.suppress(OSError):
                connection.close()
        slowest = max(slowest, time.perf_counter() - start)
    print(json.dumps({"asked": asked, "unanswered": unanswered, "slowest": slowest}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

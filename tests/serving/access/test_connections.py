"""Clients that open connections, and then say or read nothing."""

import http.client
import socket
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn

from tabr.serving.access.connections import ConnectionLimits, Connections
from tabr.serving.access.shares import ShareLimits
from tabr.serving.access.tokens import Tokens
from tabr.serving.app import create_app
from tabr.serving.guards import Limits
from tabr.serving.run import configure, listen
from tabr.serving.service import Compacting

SHORT = {"header_seconds": 0.3, "stall_seconds": 0.3, "idle_seconds": 1.0}
HEAD = "host: localhost\r\ncontent-type: application/json\r\n"
BODY = f"POST /v1/predict HTTP/1.1\r\n{HEAD}content-length: 90000\r\n\r\n{{"


@contextmanager
def serving(served, limits=None, tokens=None, proxies=(), **connections):
    """Run the service as its command does, in a thread; yield its address."""
    app = create_app(served, tokens, limits, compacting=Compacting(at_end=False))
    own = Connections(ConnectionLimits(**connections), proxies)
    server = uvicorn.Server(configure(app, own))
    listening = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield listening.getsockname()
    finally:
        server.should_exit = True
        thread.join()


def ask(address, path="/healthz", source="127.0.0.1", **headers):
    """Return the status of an answer; 0 if the connection was closed."""
    connection = http.client.HTTPConnection(
        *address, timeout=10, source_address=(source, 0)
    )
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    except (ConnectionError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


@contextmanager
def connected(address, n, text="", source="127.0.0.1"):
    """Hold connections that each have sent a text."""
    with ExitStack() as stack:
        opened = []
        for _ in range(n):
            one = socket.create_connection(address, 10, source_address=(source, 0))
            opened.append(stack.enter_context(one))
            one.sendall(text.encode())
        yield opened


def is_closed(connection, seconds=5.0):
    """Whether the other side closes a connection, after what it sends."""
    connection.settimeout(seconds)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def test_idle_connections_make_room_for_new_ones(served):
    with (
        serving(served, of_client=8) as address,
        connected(address, 40) as idle,
    ):
        assert [ask(address) for _ in range(20)] == [200] * 20
        assert ask(address, source="127.0.0.2") == 200
        assert all(is_closed(one) for one in idle[:32])


def test_one_address_cannot_take_all_connections(served):
    with serving(served, total=12, of_client=8) as address, ExitStack() as stack:
        for k in (1, 3, 4, 5):
            stack.enter_context(connected(address, 8, "GET /", f"127.0.0.{k}"))
        for source in ("127.0.0.1", "127.0.0.2"):
            assert ask(address, source=source) == 200


def test_connections_with_requests_in_progress_are_not_closed_for_others(served):
    with serving(served, of_client=3) as address, connected(address, 3, BODY) as busy:
        time.sleep(0.2)
        assert ask(address) in (503, 0)
        assert ask(address, source="127.0.0.2") == 200
        for one in busy:  # their bodies are taken all the same
            one.sendall(b" " * 89_999)
            assert one.recv(100).startswith(b"HTTP/1.1 422")


def test_a_proxy_has_more_connections_than_a_client(served):
    with (
        serving(served, of_client=3, proxies=["127.0.0.1"]) as address,
        connected(address, 6, BODY),
    ):
        time.sleep(0.2)
        assert ask(address) == 200


@pytest.mark.parametrize(
    "start", ["", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"]
)
def test_a_head_must_be_complete_in_time(served, start):
    with serving(served, **SHORT) as address, connected(address, 2, start) as slow:
        time.sleep(0.1)
        began = time.monotonic()
        with pytest.raises(OSError):
            for letter in f"GET /healthz HTTP/1.1\r\nx: {'y' * 200}":
                slow[0].sendall(letter.encode())
                time.sleep(0.05)
        assert time.monotonic() - began < 8  # of the 10 that all letters take
        assert is_closed(slow[1])


def test_a_client_that_reads_nothing_loses_its_connection(served):
    asked = f"GET /v1/candidates?n=1000 HTTP/1.1\r\n{HEAD}\r\n"
    with serving(served, **SHORT) as address, socket.socket() as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.connect(address)
        unread.settimeout(10)
        with pytest.raises(OSError):  # it is cut off while it asks for more
            while True:
                unread.sendall(asked.encode() * 20)
                time.sleep(0.01)
        assert ask(address) == 200


@pytest.mark.parametrize(
    ("line", "tokens", "status"),
    [
        ("POST /healthz", None, 413),
        ("GET /v1/model", None, 413),
        ("GET /", None, 413),
        ("POST /static/page.js", None, 413),
        ("POST /v1/predict", Tokens("w" * 20), 401),
        ("POST /v1/predict", None, 0),
    ],
)
def test_a_body_is_refused_before_it_comes(served, line, tokens, status):
    text = f"{line} HTTP/1.1\r\n{HEAD}content-length: 16777216\r\n\r\n"
    with (
        serving(served, tokens=tokens) as address,
        connected(address, 1, text) as (one,),
    ):
        if status:
            assert one.recv(100).startswith(f"HTTP/1.1 {status}".encode())
            assert is_closed(one)
        else:  # only where one belongs does the service wait for it
            assert not is_closed(one, 0.3)


def test_requests_of_one_client_are_limited(served):
    limits = Limits(shares=ShareLimits(requests_of_client=3))
    with serving(served, limits) as address, connected(address, 3, BODY):
        time.sleep(0.2)
        assert ask(address, "/v1/model") == 429
        assert ask(address) == 200
        assert ask(address, "/v1/model", "127.0.0.2") == 200


def test_only_a_proxy_tells_who_the_client_is(served):
    limits = Limits(shares=ShareLimits(requests_of_client=3))
    other = {"x-forwarded-for": "10.0.0.9"}
    for proxies, status in (((), 429), (["127.0.0.1"], 200)):
        with (
            serving(served, limits, proxies=proxies) as address,
            connected(address, 3, BODY),
        ):
            time.sleep(0.2)
            assert ask(address, "/v1/model", **other) == status


def test_a_body_in_tiny_pieces_is_refused(served, caplog):
    chunked = f"POST /v1/predict HTTP/1.1\r\n{HEAD}transfer-encoding: chunked\r\n\r\n"
    with serving(served) as address, connected(address, 2, chunked) as (tiny, large):
        with pytest.raises(OSError):
            while True:
                tiny.sendall(b"1\r\n \r\n" * 100)
                time.sleep(0.01)
        for _ in range(100):
            large.sendall(b"200\r\n%b\r\n" % (b" " * 512))
        large.sendall(b"0\r\n\r\n")
        assert large.recv(100).startswith(b"HTTP/1.1 422")
    assert caplog.text == ""


def test_what_becomes_nonsense_after_its_head_is_closed_without_a_trace(served, caplog):
    head = f"POST /v1/predict HTTP/1.1\r\n{HEAD}transfer-encoding: chunked\r\n\r\n"
    with serving(served) as address, connected(address, 3, head + "zz\r\n") as broken:
        assert all(is_closed(one) for one in broken)
        assert ask(address) == 200
    assert caplog.text == ""

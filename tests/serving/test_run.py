"""The service as a process: starting, ending, being killed, slow clients."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reliability.clients import has_held
from reliability.kills import full_disk, kills
from tabr import cli
from tabr.errors import DataError
from tabr.serving.access.origins import is_loopback
from tabr.serving.access.tokens import add
from tabr.serving.run import listen, read_tokens
from tabr.serving.served_model import ServedModel

from .conftest import houses


@pytest.fixture
def rows(served: ServedModel) -> list[Any]:
    return served.schema.to_rows(houses(20, seed=8)[0])


@contextmanager
def served_process(path: Path, *options: str, **environment: str) -> Iterator[tuple]:
    """Start the service; yield its process, host, port and first line."""
    command = [
        sys.executable,
        "-m",
        "tabr",
        "serve",
        str(path),
        "--port",
        "0",
        *options,
    ]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TABR_")}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, **environment},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        place = line.split()[0].partition("/#token=")[0]
        host, port = place.removeprefix("http://").rsplit(":", 1)
        yield process, host, int(port), line
    finally:
        process.kill()
        process.communicate()


def get(host: str, port: int, text: str, wait: float = 10.0) -> bytes:
    """Send bytes and return what comes until the other side is done."""
    with socket.create_connection((host, port), timeout=wait) as connection:
        connection.sendall(text.encode())
        return connection.recv(65536)


def test_it_says_where_it_listens_and_who_may_ask(model_file: Path):
    asked = "GET /v1/model HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer "
    with served_process(model_file, "--log") as (process, host, port, line):
        assert "120 candidates" in line and "made for this run" in line
        token = line.split()[0].partition("/#token=")[2]
        assert len(token) > 40
        answer = get(host, port, f"{asked}{token}\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200") and b"server:" not in answer.lower()
        assert get(host, port, f"{asked}x\r\n\r\n").startswith(b"HTTP/1.1 401")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert "GET /v1/model 200" in errors and "Traceback" not in errors
    assert token not in errors
    with served_process(model_file, "--no-token") as (_, host, port, line):
        assert "no token: this machine alone" in line and "#" not in line
        assert get(host, port, f"{asked}\r\n\r\n").startswith(b"HTTP/1.1 200")
    tokens = model_file.with_name("tokens.json")
    named = add(tokens, "ci", "read", 1)
    with served_process(model_file, TABR_TOKENS=str(tokens)) as (_, host, port, line):
        assert "a token is needed" in line
        assert get(host, port, f"{asked}x\r\n\r\n").startswith(b"HTTP/1.1 401")
        assert get(host, port, f"{asked}{named}\r\n\r\n").startswith(b"HTTP/1.1 200")
    token = "t" * 24
    with served_process(model_file, TABR_TOKEN=token) as (_, host, port, line):
        assert "a token is needed" in line and token not in line
        assert get(host, port, f"{asked}x\r\n\r\n").startswith(b"HTTP/1.1 401")
        assert get(host, port, f"{asked}{token}\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_answers_are_not_held_back():
    async def accepted_option() -> int:
        loop, found = asyncio.get_running_loop(), asyncio.Event()

        class Server(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                self.socket = transport.get_extra_info("socket")
                found.set()

        protocol = Server()
        listening = listen("127.0.0.1", 0)
        async with await loop.create_server(lambda: protocol, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            await found.wait()
            option = protocol.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()
        return option

    with ThreadPoolExecutor(1) as thread:  # tests of the page leave a loop in this one
        assert thread.submit(asyncio.run, accepted_option()).result() != 0


def test_a_proxy_may_ask_by_its_name(model_file: Path):
    options = ("--no-token", "--allow-host", "tabr.example")
    with served_process(model_file, *options) as (_, host, port, _):
        for name, status in (("tabr.example", 200), ("evil.example", 421)):
            answer = get(host, port, f"GET /healthz HTTP/1.1\r\nhost: {name}\r\n\r\n")
            assert answer.startswith(f"HTTP/1.1 {status}".encode())


def test_ctrl_c_ends_it_in_good_order(model_file: Path):
    served = ServedModel(model_file, model_file.with_name("store"), "cpu")
    served.add(served.schema.to_rows(houses(1)[0]), [1.0])
    served.close()
    store = str(model_file.with_name("store"))
    with served_process(model_file, "--store", store) as (process, *_):
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=20)
    assert (process.returncode, output, errors) == (0, "", "")
    assert model_file.with_name("houses-1.tabr").is_file()


def test_more_ctrl_c_end_it_in_good_order_too(model_file: Path):
    served = ServedModel(model_file, model_file.with_name("store"), "cpu")
    served.add(served.schema.to_rows(houses(1)[0]), [1.0])
    served.close()
    store = str(model_file.with_name("store"))
    with served_process(model_file, "--store", store) as (process, *_):
        for _ in range(4):
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        output, errors = process.communicate(timeout=20)
    assert (output, errors) == ("", "")
    assert model_file.with_name("houses-1.tabr").is_file()


def test_ctrl_c_while_it_begins_claims_nothing_false(model_file: Path):
    store = model_file.with_name("houses.tabr.memory")
    command = [sys.executable, "-m", "tabr", "serve", str(model_file), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not store.exists() and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert store.exists() and "nothing was written" not in errors
    assert "Traceback" not in errors
    if process.returncode:  # else it had begun already
        assert process.returncode == 130
        assert "every change that was acknowledged is kept" in errors


def test_without_a_token_it_stays_on_this_machine(model_file: Path, monkeypatch):
    monkeypatch.delenv("TABR_TOKEN", raising=False)
    for more in ([], ["--no-token"]):
        command = ["serve", str(model_file), "--host", "0.0.0.0", *more]
        result = CliRunner().invoke(cli.main, command)
        assert result.exit_code == 2
        assert "can be reached by others: set TABR_TOKEN" in result.stderr
    monkeypatch.setenv("TABR_TOKEN", "t" * 24)
    result = CliRunner().invoke(cli.main, ["serve", str(model_file), "--no-token"])
    assert result.exit_code == 2 and "leave one out" in result.stderr
    assert [is_loopback(h) for h in ("::1", "127.1.2.3", "10.0.0.1", "host")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_what_cannot_be_served_leaves_nothing_behind(model_file: Path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        command = ["serve", str(model_file), "--port", str(port)]
        result = CliRunner().invoke(cli.main, command)
    assert result.exit_code == 2
    assert f"127.0.0.1:{port} cannot be had" in result.stderr
    table = model_file.with_name("table.csv")
    table.write_text("a,b\n1,2\n")
    result = CliRunner().invoke(cli.main, ["serve", str(table), "--port", "0"])
    assert result.exit_code == 2 and "table.csv cannot be read" in result.stderr
    command = ["serve", str(model_file), "--port", "0", "--store", str(table)]
    result = CliRunner().invoke(cli.main, command)  # which is no store
    assert result.exit_code == 2 and "table.csv, however" in result.stderr
    assert {p.name for p in model_file.parent.iterdir()} == {"houses.tabr", "table.csv"}


def test_tokens_come_from_files_or_the_environment(tmp_path: Path, monkeypatch):
    path = tmp_path / "token"
    path.write_text("a" * 20 + "\n")
    monkeypatch.setenv("TABR_READ_TOKEN", "b" * 20)
    tokens = read_tokens(path)
    assert (tokens.write, tokens.read) == ("a" * 20, "b" * 20)
    path.write_text("short")
    with pytest.raises(DataError, match="at least 16 characters") as caught:
        read_tokens(path)
    assert "short" not in str(caught.value).replace(str(path), "")


def test_a_slow_client_holds_nobody_up(model_file: Path):
    with served_process(model_file, "--no-token") as (_, host, port, _):
        slow = [socket.create_connection((host, port)) for _ in range(30)]
        for connection in slow:
            connection.sendall(
                b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
            )
        start = time.monotonic()
        answer = get(host, port, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200") and time.monotonic() - start < 5
        for connection in slow:
            connection.close()


def test_broken_requests_do_not_end_it(model_file: Path):
    broken = [
        "\x00\x01\x02\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        "POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{}",
        "GET /" + "a" * 100_000 + " HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ]
    with served_process(model_file, "--no-token") as (process, host, port, _):
        for text in broken:
            try:
                answer = get(host, port, text, wait=2.0)
            except OSError:
                continue
            assert b" 500 " not in answer.split(b"\r\n")[0]
        answer = get(host, port, "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200") and process.poll() is None


def test_acknowledged_updates_survive_kills(model_file: Path, rows: list[Any]):
    counts = kills(model_file, rows, n_kills=1, n_clients=2)
    assert has_held(counts) and counts["changes acknowledged"] > 1


def test_a_full_disk_refuses_updates_and_nothing_else(
    model_file: Path, rows: list[Any]
):
    outcome = full_disk(model_file, rows)
    assert outcome["refused"] == 5 and "try again later" in outcome["said"]
    assert outcome["a prediction meanwhile"] == 200
    assert outcome["a compaction meanwhile"] == outcome["/readyz meanwhile"] == 503
    assert outcome["a change afterwards"] == 201
    assert outcome["exactly the acknowledged are there"] == "yes"

"""The command `serve`, and the service of the demo."""

from __future__ import annotations

from pathlib import Path

import click

from tabr.cli.files import file_type, model_argument
from tabr.cli.messages import debug


@click.command()
@model_argument
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option(
    "--store",
    metavar="FILE|URL",
    help="Where changes are kept: a file or postgresql://...  [default: beside MODEL]",
)
@click.option(
    "--token-file", type=file_type, help="The token for all.  [default: TABR_TOKEN]"
)
@click.option(
    "--read-token-file",
    type=file_type,
    help="The token that may only read.  [default: TABR_READ_TOKEN]",
)
@click.option(
    "--most-rows",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Rows of a request.",
)
@click.option(
    "--most-mib",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Size of a request's body.",
)
@click.option("--device", help="cpu, cuda, ...  [default: a GPU if there is one]")
@click.option("--log", is_flag=True, help="A line for each request, without contents.")
@debug
def serve(
    model_file: Path,
    host: str,
    port: int,
    store: str | None,
    token_file: Path | None,
    read_token_file: Path | None,
    most_rows: int,
    most_mib: int,
    device: str | None,
    log: bool,
) -> None:
    """Serve MODEL over HTTP: predictions, explanations, and a memory that lasts."""
    check_libraries()
    from tabr.serving.guards import Limits
    from tabr.serving.run import log_requests, read_tokens
    from tabr.serving.run import serve as start

    if log:
        log_requests()
    start(
        model_file,
        store=store,
        host=host,
        port=port,
        tokens=read_tokens(token_file, read_token_file),
        limits=Limits(rows=most_rows, body_bytes=most_mib << 20),
        device=device,
    )


def check_libraries() -> None:
    """Refuse to start without the libraries of the extra `serve`."""
    from tabr.optional import require

    for library in ("fastapi", "uvicorn", "prometheus_client"):
        require(library, extra="serve")

"""The command `serve`, and the service of the demo."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import click

from tabr.cli import options
from tabr.cli.messages import Interrupted, Mistake, debug


@click.command()
@options.model
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@options.port
@click.option(
    "--store",
    metavar="FILE|URL",
    help="Where changes are kept: a file or postgresql://...  [default: beside MODEL]",
)
@click.option(
    "--new-store", is_flag=True, help="Begin anew; files of an old store are set aside."
)
@click.option(
    "--accept-loss", is_flag=True, help="Go on with a store that has lost changes."
)
@options.count("--compact-after", default=1000, help="Changes that become a file.")
@options.count("--compact-hours", default=24, help="For which a change waits for it.")
@options.count("--keep", default=2, help="Files of compactions to keep.")
@click.option(
    "--token-file",
    type=options.input_type,
    help="The token for all.  [default: TABR_TOKEN]",
)
@click.option(
    "--read-token-file",
    type=options.input_type,
    help="The token that may only read.  [default: TABR_READ_TOKEN]",
)
@click.option(
    "--tokens",
    "tokens_file",
    type=options.input_type,
    envvar="TABR_TOKENS",
    help="Named tokens, as `tabr token` writes them.  [default: TABR_TOKENS]",
)
@click.option("--no-token", is_flag=True, help="Let all programs of this machine in.")
@click.option(
    "--allow-host",
    "names",
    metavar="NAME",
    multiple=True,
    help="A name by which clients ask, such as a proxy's; repeatable.",
)
@click.option(
    "--proxy",
    "proxies",
    metavar="ADDRESS",
    multiple=True,
    help="A proxy, which tells its clients in X-Forwarded-For; repeatable.",
)
@click.option("--key", type=options.input_type, help="A public key that signed MODEL.")
@options.count("--most-rows", default=1000, help="Rows of a request.")
@options.count("--most-mib", default=16, help="Size of a request's body.")
@options.device
@click.option("--log", is_flag=True, help="A line for each request, without contents.")
@debug
def serve(
    model_file: Path,
    token_file: Path | None,
    read_token_file: Path | None,
    tokens_file: Path | None,
    no_token: bool,
    names: tuple[str, ...],
    proxies: tuple[str, ...],
    host: str,
    port: int,
    most_rows: int,
    most_mib: int,
    compact_after: int,
    compact_hours: int,
    log: bool,
    **more: Any,
) -> None:
    """Serve MODEL over HTTP: predictions, explanations, and a memory that lasts."""
    check_libraries()
    from tabr.serving import run
    from tabr.serving.guards import Limits
    from tabr.serving.service import Compacting

    if log:
        run.log_requests()
    found = run.read_tokens(token_file, read_token_file, tokens_file)
    if no_token and found.needed:
        raise Mistake(
            "--no-token lets all in, however a token is set as well: leave one out"
        )
    tokens = found if found.needed or no_token else None
    limits = Limits(rows=most_rows, body_bytes=most_mib << 20)
    address = run.Address(host, port, names, proxies)
    more["compacting"] = Compacting(compact_after, 3600.0 * compact_hours)
    try:
        run.serve(model_file, address, tokens=tokens, limits=limits, **more)
    except KeyboardInterrupt:  # while it began or ended
        text = "interrupted; every change that was acknowledged is kept"
        raise Interrupted(text) from None
    # All is kept and closed: one more ctrl-c would only litter the process's end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def check_libraries() -> None:
    """Refuse to start without the libraries of the extra `serve`."""
    from tabr.optional import require

    for library in ("fastapi", "uvicorn", "prometheus_client"):
        require(library, extra="serve")

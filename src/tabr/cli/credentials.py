"""The commands `keygen` and `sign` for model files, and `token` for services."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tabr.cli import options
from tabr.cli.messages import Mistake, Result, common


@click.command()
@click.argument("key", type=options.output_type)
@common
def keygen(key: Path) -> Result:
    """Write a new private key as KEY, and its public one as KEY.pub.

    Who has KEY can sign models; give KEY.pub to those who load them.
    """
    from tabr.storage import make_keys

    if key.exists():
        raise Mistake(f"{key} exists, and a key is not replaced: name another file")
    options.check_output(key)
    public = make_keys(key)
    text = f"wrote {key}, which only you can read, and {public}"
    return Result({"private": str(key), "public": str(public)}, message=text)


@click.command()
@options.model
@click.option("--key", required=True, type=options.input_type, help="A private key.")
@common
def sign(model_file: Path, key: Path) -> Result:
    """Sign MODEL with a private key: write MODEL.sig beside it."""
    from tabr.storage import sign

    signature = sign(model_file, key)
    return Result({"signature": str(signature)}, message=f"wrote {signature}")


# --- tokens of a service --------------------------------------------------------------

file_of_tokens = click.option(
    "--file",
    "path",
    type=options.output_type,
    envvar="TABR_TOKENS",
    required=True,
    help="The file of tokens.  [default: TABR_TOKENS]",
)


@click.group(short_help="Make, list and revoke tokens of a service.")
def token() -> None:
    """Make, list and revoke the tokens of a file, which `tabr serve --tokens` reads.

    A service that runs sees a change within a second. The file holds hashes alone: a
    token is shown once, when it is made.
    """


@token.command()
@click.argument("name")
@click.option(
    "--rights",
    type=click.Choice(["read", "write"]),
    default="read",
    help="What it is for; who may write may read.",
)
@options.count(
    "--days", default=90, type=click.IntRange(1, 3660), help="Until it ends."
)
@file_of_tokens
@common
def new(name: str, rights: Any, days: int, path: Path) -> Result:
    """Make a token called NAME, and print it."""
    from tabr.serving.access import tokens

    secret = tokens.add(path, name, rights, days)
    (made,) = (found for found in tokens.read_file(path) if found.name == name)
    record = {"name": name, "rights": rights, "expires": made.expires, "token": secret}
    message = f"{name} may {rights} until {made.expires}; this token is not shown again"
    return Result(record, secret, message)


@token.command("list")
@file_of_tokens
@common
def list_tokens(path: Path) -> Result:
    """List the tokens: their names, rights and ends."""
    from tabr.serving.access import tokens
    from tabr.text import aligned

    found = tokens.read_file(path)
    rows = [
        [t.name, t.rights, t.expires or "never", "over" if t.is_over else ""]
        for t in found
    ]
    record = [
        {"name": t.name, "rights": t.rights, "expires": t.expires, "is_over": t.is_over}
        for t in found
    ]
    lines = aligned([["name", "rights", "ends", ""], *rows])
    return Result({"tokens": record}, "\n".join(lines))


@token.command()
@click.argument("name")
@file_of_tokens
@common
def revoke(name: str, path: Path) -> Result:
    """Take the token called NAME out of the file."""
    from tabr.serving.access import tokens

    tokens.revoke(path, name)
    text = f"{name} is revoked; a service that runs knows within a second"
    return Result({"revoked": name}, "", text)

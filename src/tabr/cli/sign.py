"""`tabr keygen` and `tabr sign`: signatures that `load(..., key=)` checks."""

from __future__ import annotations

from pathlib import Path

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

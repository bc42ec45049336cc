"""The commands `bench` and `tune`, which hand all they are given to `tabr.bench`.

That has a command line of its own, for machines where only the library is installed.
"""

from __future__ import annotations

import click

PASSED_ON = {"ignore_unknown_options": True, "help_option_names": []}


@click.command(context_settings=PASSED_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> int:
    """Compare methods on your table, or run the paper's experiments again.

    Try `tabr bench run TABLE --target COL`, and `tabr bench --help`.
    """
    from tabr.bench.__main__ import main

    return main(arguments, prog="tabr bench")


@click.command(context_settings=PASSED_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def tune(arguments: tuple[str, ...]) -> int:
    """Search for good parameters for a table; see `tabr tune --help`."""
    from tabr.bench.__main__ import main

    return main(("tune", *arguments), prog="tabr")

"""The command line: arguments come in, results go to stdout and messages to stderr.

A command parses, calls the library and returns a `Result`, which is written as text or
as JSON. A user's mistake is one sentence and exit code 2. What is slow to import, and
the rooms that only one command needs, are imported inside the command.
"""

from __future__ import annotations

import click

from tabr import __version__

# As modules: a command of the same name would hide its module here.
from tabr.cli import (
    audit,
    bench,
    candidates,
    credentials,
    demo,
    fit,
    predict,
    report,
    serve,
    stores,
    tune,
)
from tabr.cli.messages import Commands, debug


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 88,
        "show_default": True,
    },
)
@click.version_option(__version__, message="tabr %(version)s")
@debug
@click.pass_context
def main(context: click.Context) -> None:
    """Learn from tables, and see which rows a prediction came from.

    Tables are CSV (commas, semicolons or tabs; also .gz), Parquet or Feather.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (
    fit.fit,
    predict.predict,
    predict.evaluate,
    predict.neighbors,
    predict.explain,
    candidates.add,
    candidates.remove,
    stores.forget,
    audit.audit,
    report.report,
    serve.serve,
    stores.backup,
    stores.restore,
    stores.history,
    credentials.keygen,
    credentials.sign,
    credentials.token,
    bench.bench,
    tune.tune,
    demo.demo,
):
    main.add_command(_command)

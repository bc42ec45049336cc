"""The commands `backup`, `restore` and `history`: a model and its store."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from tabr.cli import options
from tabr.cli.messages import Result, common
from tabr.cli.serve import check_libraries

store_option = click.option(
    "--store",
    metavar="FILE|URL",
    help="Where changes are kept.  [default: beside MODEL]",
)


@click.command()
@options.model
@store_option
@options.output(metavar="FILE", required=True, help="The backup to write.")
@common
def backup(model_file: Path, store: str | None, output: Path) -> Result:
    """Write MODEL and all its changes to one file, while services go on."""
    check_libraries()
    from tabr.serving.backup import back_up

    record = back_up(model_file, store, output)
    text = f"{output} has {model_file} and its {record['changes']} changes"
    return Result(record, message=text)


@click.command()
@click.argument("file", metavar="FILE", type=options.input_type)
@options.output(metavar="MODEL", required=True, help="The model file to write.")
@store_option
@common
def restore(file: Path, output: Path, store: str | None) -> Result:
    """Write the model and the store of a backup; nothing is replaced."""
    check_libraries()
    from tabr.serving.backup import restore

    record = restore(file, output, store)
    text = f"{output} is as {file} has it, with {record['changes']} changes"
    return Result(record, message=f"{text}: `tabr serve {output}` goes on with it")


@click.command()
@options.model
@store_option
@options.count("-n", default=50, help="How many, the last ones.")
@common
def history(model_file: Path, store: str | None, n: int) -> Result:
    """Show who changed the candidates of MODEL, what and when."""
    check_libraries()
    from tabr.serving.backup import opened

    kept = opened(model_file, store)
    try:
        entries = kept.history(max(0, kept.n_changes() - n), n)
    finally:
        kept.close()
    lines = [
        f"{e.seq:>8}  {_time(e.at)}  {e.kind:<8} {e.n:>8} rows  {e.who or '-':<20}"
        f"  {e.ids:.60}"
        for e in entries
    ]
    record = {"changes": [{**e._asdict(), "at": _time(e.at)} for e in entries]}
    return Result(record, "\n".join(lines))


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

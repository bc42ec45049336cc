"""The commands `backup`, `restore`, `history`, `forget`: a model and its store."""

from __future__ import annotations

import getpass
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tabr.cli import options
from tabr.cli.messages import Result, common, watch
from tabr.cli.serve import check_libraries

if TYPE_CHECKING:
    from tabr.serving.erasure.forget import Proof
    from tabr.serving.erasure.traces import Trace

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


@click.command()
@options.model
@options.ids
@options.ids_table
@store_option
@common
def forget(model_file: Path, ids: Any, table: Path | None, store: str | None) -> Result:
    """Remove rows from MODEL, its store and old files for good, and show it.

    No service may run meanwhile. What a row taught the networks stays.
    """
    check_libraries()
    ids = options.read_ids(ids, table)
    watch(model_file)
    from tabr.serving.erasure.forget import forget

    try:
        who = getpass.getuser()
    except (OSError, KeyError):  # without an account
        who = None
    proof = forget(model_file, ids, store, who)
    record = _record_of(model_file, proof)
    return Result(
        record, _text_of(proof), _message_of(proof), 0 if proof.is_gone else 1
    )


def _record_of(model_file: Path, proof: Proof) -> dict[str, Any]:
    looked_for = Counter(value.name for value in proof.values)
    files = [
        {
            "file": trace.file,
            "ids": trace.ids,
            "found": [
                {"id": v.id, "column": v.name, "part": part} for v, part in trace.found
            ],
        }
        for trace in proof.traces
    ]
    return {
        "model": str(model_file),
        "gone": proof.is_gone,
        "removed": proof.removed,
        "levels": proof.levels,
        "looked_for": dict(looked_for),
        "files": files,
        "deleted": proof.deleted,
        "put_away": proof.put_away,
        "notes": proof.notes,
    }


def _text_of(proof: Proof) -> str:
    """Return a line for each file, and what is not known."""
    kinds = Counter(value.name for value in proof.values)
    names = ", ".join(f"{n} of {name}" for name, n in kinds.items()) or "ids alone"
    lines = [f"looked for: ids, and values that no other row has: {names}"]
    for trace in proof.traces:
        lines.append(f"{trace.file}: {_finding(trace)}")
    lines += [f"{file}: deleted" for file in proof.deleted]
    lines += [
        f"{name}: {', '.join(map(repr, levels))} is no level any more"
        for name, levels in proof.levels.items()
    ]
    lines += [
        f"{file}: of an earlier store; nobody reads it, so it may have the rows in"
        " pieces: delete it"
        for file in proof.put_away
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in proof.notes)])


def _finding(trace: Trace) -> str:
    if not (trace.ids or trace.found):
        return "not found"
    parts = [f"row {id_}" for id_ in trace.ids]
    parts += [
        f"{value.name} of row {value.id}" + (f" in {part}" if part else "")
        for value, part in trace.found
    ]
    more = ", ..." if len(parts) > 8 else ""
    return f"FOUND {', '.join(parts[:8])}{more}"


def _message_of(proof: Proof) -> str:
    if not proof.is_gone:
        return "not all is gone: see the lines above, and run it again"
    n = len(proof.removed)
    if proof.has_finished and not n:
        return "the run that was interrupted is finished: no file has these rows"
    if not (n or proof.levels or proof.deleted):
        return "nothing is left to do: no file has these rows"
    learned = any(trace.found for trace in proof.traces)
    rest = "; what fit learned has some of their values" if learned else ""
    return f"{n} rows are gone from every file{rest}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

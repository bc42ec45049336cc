"""Results of commands, messages, and one sentence for a mistake."""

from __future__ import annotations

import functools
import json
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from tabr.errors import TabrError


class Mistake(click.ClickException):
    """What the user can mend, in one sentence."""


class Interrupted(click.ClickException):
    """What ctrl-c has left, in one sentence."""


class Result(NamedTuple):
    """What a command returns, and `common` writes."""

    record: dict[str, Any]  # all that --json prints
    text: str = ""  # for stdout otherwise
    message: str = ""  # for stderr otherwise
    code: int = 0


def say(text: str) -> None:
    """Write a message to stderr."""
    click.echo(f"tabr: {' '.join(text.split())}", err=True)


def show(text: str) -> None:
    """Write text to stdout, in plainer characters where it cannot show blocks."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = text.translate(str.maketrans("█▉▊▋▌▍▎▏▓▒░…", "####==--%+.~"))
    click.echo(text)


def terminal_width() -> int:
    """Return how many characters a line may have."""
    return max(60, min(120, shutil.get_terminal_size().columns))


def _outcome(error: Exception, with_traceback: bool) -> tuple[str, int]:
    """Return the sentence and the exit code for an error."""
    if isinstance(error, Interrupted):
        return error.format_message(), 130
    if isinstance(error, click.Abort):
        return "interrupted", 130
    if isinstance(error, click.UsageError) and error.ctx is not None:
        text = error.format_message().rstrip(".")
        return f"{text}; see {error.ctx.command_path} --help", 2
    if isinstance(error, click.ClickException):
        return error.format_message(), 2
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out of memory; lower --param batch_size=N or choose another --device", 2
    if isinstance(error, TabrError | OSError):
        return str(error), 2
    if with_traceback:
        traceback.print_exception(error)
    hint = "" if with_traceback else "; rerun with --debug to see where, and report it"
    return f"unexpected {type(error).__name__}: {error}{hint}", 1


_WATCHED = "tabr.watched"  # in a context: the files that the command may write


def watch(path: Path) -> None:
    """Remember how a file is, so that ctrl-c can tell whether it was written."""
    watched = click.get_current_context().meta.setdefault(_WATCHED, {})
    watched.setdefault(path, _stamp(path))


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what differs when a file is replaced."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns


def _interruption() -> str:
    """Return what was written until now, as far as that is known."""
    watched = click.get_current_context().meta.get(_WATCHED, {})
    written = [str(path) for path, was in watched.items() if _stamp(path) != was]
    if written:
        return f"interrupted after {' and '.join(written)} was written, whole"
    return "interrupted; nothing was written" if watched else "interrupted"


class Commands(click.Group):
    """A group whose commands end in one sentence when they fail."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which the commands were added."""
        return list(self.commands)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **more: Any) -> Any:
        """Run a command and exit."""
        arguments = list(sys.argv[1:] if args is None else args)
        more = {"prog_name": "tabr", **more, "standalone_mode": False}
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *where: say(str(message))
                code = super().main(arguments, *rest, **more) or 0
        except Exception as error:
            text, code = _outcome(error, "--debug" in arguments)
            say(text)
        sys.exit(code)


def debug(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option --debug."""
    text = "Show where an unexpected error came from."
    option = click.option("--debug", is_flag=True, expose_value=False, help=text)
    return option(command)


def common(command: Callable[..., Result]) -> Callable[..., Any]:
    """Give a command the options that all have, and write its result."""

    @functools.wraps(command)
    def write_result(as_json: bool, **values: Any) -> int:
        try:
            record, text, message, code = command(**values)
        except KeyboardInterrupt:
            raise Interrupted(_interruption()) from None
        if as_json:
            from tabr.text import plain_tree  # which brings pandas with it

            plain = plain_tree(record)
            click.echo(json.dumps(plain, allow_nan=False, ensure_ascii=False))
            return code
        if text:
            show(text)
        if message:
            say(message)
        return code

    text = "Print one JSON object instead of text."
    option = click.option("--json", "as_json", is_flag=True, help=text)
    return option(debug(write_result))

"""Command line of the trials: each command attacks, counts, and keeps the counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from reliability.page import write_page
from reliability.trials import RESULTS, Trial, keep

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(context_settings={"max_content_width": 88})
def main() -> None:
    """Attack model files and services that these commands make themselves."""


@main.command()
def page() -> None:
    """Write docs/reliability.md from the kept trials."""
    write_page()


def number(
    name: str, default: int, text: str, least: int = 1
) -> Callable[[Command], Command]:
    """Return an option that is a whole number."""
    kind = click.IntRange(least)
    return click.option(name, type=kind, default=default, show_default=True, help=text)


rounds = number("--rounds", 60, "How often.")
clients = number("--clients", 4, "How many, half of them with keys.")
seed = number("--seed", 0, "Of all that is random.", least=0)
out = click.option("--out", type=click.Path(path_type=Path), default=RESULTS)


@main.command()
@number("--count", 20_000, "How many files.")
@seed
@number("--workers", 2, "Processes that load files.")
@out
def files(count: int, seed: int, workers: int, out: Path) -> None:
    """Load crafted model files, and count what came of them."""
    from reliability.model_files import run

    trial = run(count, seed, workers, lambda text: click.echo(text, err=True))
    finish("files", [trial], out)


@main.command()
@rounds
@clients
@out
def kills(rounds: int, clients: int, out: Path) -> None:
    """Kill services at random moments, and fill their disk."""
    from reliability.kills import run

    finish("kills", run(rounds, clients), out)


@main.command()
@rounds
@clients
@out
def cuts(rounds: int, clients: int, out: Path) -> None:
    """Cut services off from their PostgreSQL at commits and at random moments."""
    from reliability.cuts import run

    finish("cuts", run(rounds, clients), out)


@main.command()
@number("--rounds", 20, "How often.")
@clients
@out
def backup(rounds: int, clients: int, out: Path) -> None:
    """Back a service up under load, and restore it."""
    from reliability.backups import run

    finish("backup", run(rounds, clients), out)


@main.command()
@out
def pages(out: Path) -> None:
    """Let foreign pages in Chromium try to read from a service and to change it."""
    from reliability.foreign_pages import trials

    finish("pages", trials(), out)


@main.command()
@number("--seconds", 40, "Of each attack.")
@out
def sockets(seconds: int, out: Path) -> None:
    """Hold a service up by connections that are idle, slow, large or unread."""
    from reliability.sockets import trials

    finish("sockets", trials(seconds), out)


@main.command()
@number("--count", 10_000, "How many bodies.")
@seed
@out
def bodies(count: int, seed: int, out: Path) -> None:
    """Send a service crafted bodies, and count what happens."""
    from reliability.bodies import run

    finish("bodies", [run(count, seed)], out)


@main.command()
@number("--versions", 300, "Of each model.")
@seed
@out
def bits(versions: int, seed: int, out: Path) -> None:
    """Ask versions of models for rows in many ways, and compare the bits."""
    from reliability.bits import run

    finish("bits", run(versions, seed), out)


def finish(name: str, trials: Sequence[Trial], out: Path) -> None:
    """Print the trials and keep them; exit with 1 if one did not hold."""
    for trial in trials:
        click.echo(f"{trial.title}: {'held' if trial.held else 'DID NOT HOLD'}")
        for key, value in trial.counts.items():
            click.echo(f"  {key}: {value}")
    keep(name, trials, out)
    if not all(trial.held for trial in trials):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

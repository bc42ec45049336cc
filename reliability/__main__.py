"""Command line of the trials: each command attacks, counts, and keeps the counts."""

from __future__ import annotations

import click

from reliability import foreign_pages
from reliability import sockets as connections
from reliability.page import write_page
from reliability.trials import keep


@click.group(context_settings={"max_content_width": 88})
def main() -> None:
    """Attack model files and services that these commands make themselves."""


@main.command()
def page() -> None:
    """Write docs/reliability.md from the kept trials."""
    write_page()


@main.command()
def pages() -> None:
    """Let foreign pages in Chromium try to read from a service and to change it."""
    keep("pages", foreign_pages.trials())


@main.command()
@click.option("--seconds", default=40.0, help="Of each attack.")
def sockets(seconds: float) -> None:
    """Hold a service up by connections that are idle, slow, large or unread."""
    keep("sockets", connections.trials(seconds))


if __name__ == "__main__":
    main()

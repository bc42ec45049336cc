"""Command line of the trials: each command attacks, counts, and keeps the counts."""

from __future__ import annotations

import click

from reliability.bodies import bodies
from reliability.page import write_page


@click.group(context_settings={"max_content_width": 88})
def main() -> None:
    """Attack model files and services that these commands make themselves."""


@main.command()
def page() -> None:
    """Write docs/reliability.md from the kept trials."""
    write_page()


main.add_command(bodies)

if __name__ == "__main__":
    main()

"""Command line of the trials: each command attacks, counts, and keeps the counts."""

from __future__ import annotations

import time
from pathlib import Path

import click

from reliability.page import write_page
from reliability.trials import RESULTS, keep


@click.group(context_settings={"max_content_width": 88})
def main() -> None:
    """Attack model files and services that these commands make themselves."""


@main.command()
@click.option("--count", type=click.IntRange(1), default=20_000, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
def files(count: int, seed: int, workers: int, out: Path) -> None:
    """Load crafted model files, and count what came of them."""
    from reliability.model_files import run

    start = time.perf_counter()
    trial = run(count, seed, workers, lambda text: click.echo(text, err=True))
    rate = count / (time.perf_counter() - start)
    click.echo(f"{keep('files', [trial], out)}: {rate:.0f} files a second", err=True)
    for name, value in trial.counts.items():
        click.echo(f"{value:>8}  {name}")
    raise SystemExit(not trial.held)


@main.command()
def page() -> None:
    """Write docs/reliability.md from the kept trials."""
    write_page()


if __name__ == "__main__":
    main()

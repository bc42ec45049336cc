"""Run the command line as `python -m tabr`."""

from tabr.cli import main

main()

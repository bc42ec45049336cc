"""The paper, run again: its tables and figures, the studies, and their pages.

In: files of runs, which `fold` puts into the tables of `reproduction/results`, and the
published figures there. Out: the pages of `docs/results`, the figures of the README.
Run `python -m reproduction --help` in a checkout; it is no part of the package.
"""

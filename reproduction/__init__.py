"""The paper, run again: its tables and figures, the studies, and their pages.

In: the results in `reproduction/results`. Out: pages under `docs`, as CSV too.
Run `python -m reproduction --help` in a checkout; it is no part of the package.
"""

"""Measurements of speed, memory and the audit, a command each.

In: random rows, or the tables of a folder. Out: files in `benchmarks/results`, from
which `benchmarks.report` and `benchmarks.audit page` fill the tables of the docs.
"""

"""Attacks on model files, on the service and on its store, as commands.

In: a model that a command fits, and counts of attempts. Out: a file of counts for each
command in `reliability/results`, and docs/reliability.md, which is made from them.
"""

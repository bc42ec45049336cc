"""Rows are erased from all files around a model, and it is shown that they are.

In: a model file, its store, and ids. Out: the files without the rows, and what a search
of all files has found.
"""

"""Rows and labels become fitted networks, within a plan of memory.

In: configs, labelled rows, a score of the validation rows. Out: networks with the best
epoch's weights, and their histories.
"""

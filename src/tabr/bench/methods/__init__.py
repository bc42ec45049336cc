"""The systems that the paper compares, and some since, behind one interface.

In: the training and validation part of a table, a setting, a seed and parameters. Out:
a fitted `Method` that predicts values, or probabilities of classes.
"""

from tabr.bench.methods.base import Method, Setting
from tabr.bench.methods.registry import METHODS, Entry

__all__ = ["METHODS", "Entry", "Method", "Setting"]

"""Every system that the paper compares with, and some since, behind one interface."""

from tabr.bench.methods.base import Method, Setting
from tabr.bench.methods.registry import METHODS, Entry

__all__ = ["METHODS", "Entry", "Method", "Setting"]

"""Exact search: the m best candidates of each query, under a rule."""

from tabr.search.exact import Allowed, Neighbors, top

__all__ = ["Allowed", "Neighbors", "top"]

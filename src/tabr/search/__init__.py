"""Search: the m best candidates of each query, under a rule; exact unless asked."""

from tabr.search.approximate import best_of_bins, n_bins_for
from tabr.search.exact import Neighbors, top
from tabr.search.filter import Allowed, Filter

__all__ = ["Allowed", "Filter", "Neighbors", "best_of_bins", "n_bins_for", "top"]

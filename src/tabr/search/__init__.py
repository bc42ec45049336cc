"""Search: the m best candidates of each query, under a rule, exactly.

In: queries, the candidates' vectors and offsets, a filter. Out: the positions of
neighbours, best first.
"""

from tabr.search.exact import Neighbors, top
from tabr.search.filter import Allowed, Filter

__all__ = ["Allowed", "Filter", "Neighbors", "top"]

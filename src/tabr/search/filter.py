"""Filter of a search: which candidates each row may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

# Which candidates a slice of the queries may take out of a slice of the candidates.
Allowed = Callable[[slice, slice], Tensor]  # -> bool (queries, candidates)


class Filter(NamedTuple):
    """Who may take whom, in conjunctive normal form.

    A row may take a candidate if in every group one line holds: the candidate's code
    lies within the row's [low, high], or outside of it. A line may also be a function.

    Attributes:
        codes: (c, n) int32, one line for each interval.
        low: (c, b) int32.
        high: (c, b) int32.
        outside: Bit c: line c holds outside.
        ends: Bit c: line c is the last of its group.
        functions: For lines that are functions: their numbers and what they allow.
    """

    codes: Tensor
    low: Tensor
    high: Tensor
    outside: int
    ends: int
    functions: tuple[tuple[int, Allowed], ...] = ()

    def allowed(self, rows: slice, part: slice) -> Tensor:
        """Tell (b, n) which candidates of a slice the rows of a slice may take."""
        functions = dict(self.functions)
        every: Tensor | None = None
        one: Tensor | None = None
        for line in range(len(self.codes)):
            if line in functions:
                holds = functions[line](rows, part)
            else:
                code = self.codes[line, part]
                low, high = (x[line, rows, None] for x in (self.low, self.high))
                holds = (code >= low) & (code <= high)
            if self.outside >> line & 1:
                holds = ~holds
            one = holds if one is None else one | holds
            if self.ends >> line & 1:
                every = one if every is None else every & one
                one = None
        assert every is not None
        return every

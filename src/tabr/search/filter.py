"""The filter of a search: which candidates each query may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

# From slices of the queries and of the candidates to bool (queries, candidates).
Allowed = Callable[[slice, slice], Tensor]


class Filter(NamedTuple):
    """What a search knows of a rule: conditions in conjunctive normal form.

    A query may take a candidate if in each clause one condition holds at least. A
    condition says that the candidate's code lies within the query's [low, high], or
    outside of it; or it is a function.

    Attributes:
        codes: (c, n) int32, the candidates' codes for each condition.
        low: (c, b) int32.
        high: (c, b) int32.
        outside: Bit i is set if condition i holds outside of the interval.
        ends: Bit i is set if condition i is the last of its clause.
        functions: The conditions that are functions, with their numbers.
    """

    codes: Tensor
    low: Tensor
    high: Tensor
    outside: int
    ends: int
    functions: tuple[tuple[int, Allowed], ...] = ()

    def of(self, rows: Tensor) -> Filter:
        """Return that of some of the queries; it has no functions."""
        return self._replace(low=self.low[:, rows], high=self.high[:, rows])

    def allowed(self, rows: slice, part: slice) -> Tensor:
        """Return bool (r, c): whether queries of a slice may take candidates of one."""
        functions = dict(self.functions)
        conjunction: Tensor | None = None
        clause: Tensor | None = None
        for number in range(len(self.codes)):
            if number in functions:
                holds = functions[number](rows, part)
            else:
                code = self.codes[number, part]
                low, high = (x[number, rows, None] for x in (self.low, self.high))
                holds = (code >= low) & (code <= high)
            if self.outside >> number & 1:
                holds = ~holds
            clause = holds if clause is None else clause | holds
            if self.ends >> number & 1:
                conjunction = clause if conjunction is None else conjunction & clause
                clause = None
        assert conjunction is not None
        return conjunction


def unlimited() -> Filter:
    """Return the filter without a condition."""
    nothing = torch.empty(0, 0, dtype=torch.int32)
    return Filter(nothing, nothing, nothing, 0, 0)


def among(flags: Tensor, rules: Filter | None, b: int) -> Filter:
    """Return the rules with one more: a candidate's flag must be one."""
    codes, one = flags[None], flags.new_ones(1, b)
    if rules is None:
        return Filter(codes, one, one, 0, 1)
    return rules._replace(
        codes=torch.cat([rules.codes, codes]),
        low=torch.cat([rules.low, one]),
        high=torch.cat([rules.high, one]),
        ends=rules.ends | 1 << len(rules.codes),
    )

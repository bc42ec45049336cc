"""Filter on a device: candidates' codes, and rows tagged by what they may take."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tabr.candidates.rule_codes import Function, Tags
from tabr.candidates.rules import BoundRule
from tabr.search import Allowed, Filter
from tabr.tables.frame import random_rows
from tabr.text import percent

_MANY_ALONE = 0.5  # of the candidates: a rule that leaves more alone is told
_LOOKED_AT = 500  # candidates, among all others
_AT_A_TIME = 1 << 14


class RuleIndex:
    """A rule with its candidates, on a device."""

    def __init__(self, bound: BoundRule, device: torch.device) -> None:
        """Move the candidates' codes to the device."""
        self.bound, self.device = bound, device
        self.codes = torch.from_numpy(bound.codes).to(device)

    def tag(self, frame: pd.DataFrame) -> TaggedRows:
        """Return rows with what they need to be compared with the candidates."""
        return TaggedRows(self, self.bound.tags(frame))


class TaggedRows:
    """What a rule allows the rows of a table.

    Attributes:
        captures: Whether a CUDA graph can hold it: no function asks the host.
    """

    def __init__(self, index: RuleIndex, tags: Tags) -> None:
        """Move the rows' intervals to the device."""
        self.index, self.values = index, tags.values
        self.low, self.high = (
            torch.from_numpy(part).to(index.device) for part in (tags.low, tags.high)
        )
        self.captures = all(values is None for values in tags.values)

    def rules(self, batch: Tensor | slice) -> Filter:
        """Return the rules of the rows at batch."""
        low, high = (part[:, batch].contiguous() for part in (self.low, self.high))
        bound = self.index.bound
        functions = () if self.captures else tuple(self._functions(batch))
        return Filter(self.index.codes, low, high, bound.outside, bound.ends, functions)

    def _functions(self, batch: Tensor | slice) -> list[tuple[int, Allowed]]:
        index: Any = batch.cpu().numpy() if isinstance(batch, Tensor) else batch
        functions = []
        for line, values in enumerate(self.values):
            part = self.index.bound.lines[line]
            if values is not None and isinstance(part, Function):
                of_rows = {name: column[index] for name, column in values.items()}
                functions.append((line, self._allowed(part, of_rows)))
        return functions

    def _allowed(
        self, function: Function, of_rows: dict[str, NDArray[Any]]
    ) -> Callable[[slice, slice], Tensor]:
        device = self.index.device

        def allowed(rows: slice, part: slice) -> Tensor:
            chosen = {name: column[rows] for name, column in of_rows.items()}
            return torch.tensor(function(chosen, part), device=device)

        return allowed


def warn_of_lonely(bound: BoundRule, frame: pd.DataFrame, stacklevel: int) -> None:
    """Warn of a rule under which most candidates have no neighbour among the others.

    Args:
        bound: The rule with its candidates.
        frame: The candidates.
        stacklevel: Whose line the warning names, as seen from here.
    """
    share = lonely_share(bound, frame)
    if share > _MANY_ALONE:
        warnings.warn(
            f"under {bound.rule!r:.120} {percent(share)} of the candidates have no "
            "neighbour among the others, so that they teach no retrieval: mend the "
            "rule, unless this is meant",
            stacklevel=stacklevel + 1,
        )


def lonely_share(bound: BoundRule, frame: pd.DataFrame) -> float:
    """Return the share of candidates that may have no other one as a neighbour.

    Of many candidates it is told by some.
    """
    chosen = random_rows(bound.n, _LOOKED_AT)
    cpu = torch.device("cpu")
    tagged = RuleIndex(bound, cpu).tag(frame.iloc[chosen].reset_index(drop=True))
    rows = slice(0, len(chosen))
    rules, own = tagged.rules(rows), torch.from_numpy(chosen)
    alone = torch.ones(len(chosen), dtype=torch.bool)
    for start in range(0, bound.n, _AT_A_TIME):
        part = slice(start, min(start + _AT_A_TIME, bound.n))
        others = torch.arange(part.start, part.stop) != own[:, None]
        alone &= ~(rules.allowed(rows, part) & others).any(1)
        if not alone.any():
            break
    return float(np.mean(alone.numpy()))

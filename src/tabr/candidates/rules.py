"""Rules: who may be whose neighbour, in training and in prediction alike.

A rule compares columns of a row with those of a candidate. Rules are joined by `&`, `|`
and `~`. Their columns need not be features.

Most rules say that a code of the candidate lies within an interval of the row, or
outside of it: times are numbered in their order, groups as they come. That is quick to
check wherever candidates are searched. `Where` may say anything.

`Rule.bind` fixes the candidates and gives a `BoundRule`; its `tags` are what rows need
to be compared with them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr.candidates.rule_codes import (
    Codes,
    Columns,
    Function,
    Groups,
    Periods,
    Tags,
    Times,
    places,
    read_cells,
    read_times,
    read_values,
)
from tabr.config.checks import check_file
from tabr.errors import DataError, ParameterTypeError
from tabr.tables.samples import Split

_MOST_LINES = 62  # of a rule in a file; searches keep a bit for each

Compared = Times | Groups | Periods | Function  # rows with candidates


class Rule(ABC):
    """Who may be whose neighbour; the base of all rules."""

    def __and__(self, other: Rule) -> Rule:
        """Allow whom both rules allow."""
        return _Joined((self, _checked(other)), "&")

    def __or__(self, other: Rule) -> Rule:
        """Allow whom one of the rules allows."""
        return _Joined((self, _checked(other)), "|")

    def __invert__(self) -> Rule:
        """Allow whom the rule does not."""
        return _Inverted(self)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The rules that it is made of."""
        return tuple(dict.fromkeys(leaf for part in self.normal() for leaf, _ in part))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that it reads."""
        return tuple(dict.fromkeys(c for leaf in self.leaves for c in leaf.needs))

    @abstractmethod
    def normal(self, inverted: bool = False) -> list[list[tuple[Leaf, bool]]]:
        """Return it as groups of leaves, each as it is or inverted.

        A candidate is allowed if in every group one leaf allows it.
        """

    def bind(self, candidates: pd.DataFrame) -> BoundRule:
        """Fix the candidates that rows are compared with."""
        parts = {leaf: leaf.over(candidates) for leaf in self.leaves}
        return BoundRule(self, parts, len(candidates))


def _checked(rule: object) -> Rule:
    if not isinstance(rule, Rule):
        raise ParameterTypeError(
            f"rules are joined with rules, however {rule!r:.60} came: wrap a function "
            "in Where"
        )
    return rule


@dataclass(frozen=True)
class _Joined(Rule):
    parts: tuple[Rule, Rule]
    by: str

    def normal(self, inverted: bool = False) -> list[list[tuple[Leaf, bool]]]:
        first, second = (part.normal(inverted) for part in self.parts)
        if (self.by == "&") != inverted:
            return first + second
        return [[*a, *b] for a in first for b in second]

    def __repr__(self) -> str:
        return f"({self.parts[0]!r} {self.by} {self.parts[1]!r})"


@dataclass(frozen=True)
class _Inverted(Rule):
    part: Rule

    def normal(self, inverted: bool = False) -> list[list[tuple[Leaf, bool]]]:
        return self.part.normal(not inverted)

    def __repr__(self) -> str:
        return f"~{self.part!r}"


class Leaf(Rule):
    """A rule that is not made of others."""

    @property
    @abstractmethod
    def needs(self) -> tuple[str, ...]:
        """The columns that it reads."""

    def normal(self, inverted: bool = False) -> list[list[tuple[Leaf, bool]]]:
        """Return one group of one leaf."""
        return [[(self, inverted)]]

    @abstractmethod
    def over(self, candidates: pd.DataFrame) -> Compared:
        """Return what compares rows with these candidates."""


@dataclass(frozen=True)
class PastOnly(Leaf):
    """Candidates from before the row: their time is less, not equal.

    A row without a time may have no neighbour, and a candidate without one is nobody's.

    Attributes:
        column: Times: dates, ISO texts or numbers.
        window: How far back candidates may lie; None is no limit.
        gap: How much time must lie between: labels that become known late.
            Both are numbers where times are, else spans with a unit: "30D", "12h" or
            a timedelta.
    """

    column: str
    window: Any = None
    gap: Any = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The column of times."""
        return (self.column,)

    def over(self, candidates: pd.DataFrame) -> Times:
        """Number the candidates' times in their order."""
        cells = read_cells(candidates, self.column, in_fit=True)
        is_date = cells.kind == "date"
        window = self._span("window", is_date)
        gap = self._span("gap", is_date) or 0
        numbers = read_times(cells, is_date)
        times = np.unique(numbers[~np.isnan(numbers)])
        return Times(
            self.column,
            is_date,
            window,
            gap,
            times,
            places(numbers, times),
        )

    def _span(self, name: str, is_date: bool) -> float | None:
        """Return a span in the unit of times: microseconds for dates."""
        value = getattr(self, name)
        if value is None:
            return None
        span = _microseconds(value) if is_date else _number(value)
        if not span >= 0:
            wanted, times, remedy = "a number", "numbers", "give it in their unit"
            if is_date:
                wanted, times = "a span with its unit, such as '30D'", "dates"
                number = _bare(value)
                days = abs(number) if np.isfinite(number) else 30
                remedy = f"write '{days:g}D' for {days:g} days"
            raise DataError(
                f"{name} of PastOnly({self.column!r}) must be {wanted}, of zero or "
                f"more, as the times are {times}, however {value!r:.60} came: {remedy}"
            )
        return span


def _microseconds(value: object) -> float:
    """Return a span of time; nan if it is none, or a number without a unit."""
    if _bare(value) == 0:
        return 0.0  # of any unit
    # pandas reads a bare number as nanoseconds, and "0,5D" as five days.
    unclear = not np.isnan(_bare(value)) or (isinstance(value, str) and "," in value)
    if isinstance(value, bool | np.bool_) or unclear:
        return np.nan
    try:
        return float(pd.Timedelta(value) / pd.Timedelta(1, "us"))  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        return np.nan


def _number(value: object) -> float:
    """Return a span that is a number; nan if it is none."""
    return float(value) if _is_number(value) else np.nan  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    """Whether it is one; numpy says so of its times and flags too."""
    no_numbers = bool | np.bool_ | np.timedelta64
    return isinstance(value, Real) and not isinstance(value, no_numbers)


def _bare(value: object) -> float:
    """Return a number without a unit, or a text that is one; nan for all else."""
    if not (_is_number(value) or isinstance(value, str)):
        return np.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except ValueError:
        return np.nan


@dataclass(frozen=True)
class SameGroup(Leaf):
    """Candidates of the row's own group; a missing group is nobody's."""

    column: str

    @property
    def needs(self) -> tuple[str, ...]:
        """The column of groups."""
        return (self.column,)

    def over(self, candidates: pd.DataFrame) -> Groups:
        """Number the candidates' groups."""
        codes, levels = read_cells(candidates, self.column, in_fit=True).levels
        number_of = {level: number for number, level in enumerate(levels)}
        return Groups(self.column, number_of, codes.astype(np.int32))


@dataclass(frozen=True)
class NotSameGroup(Rule):
    """Candidates of other groups; a row without a group may have any neighbour."""

    column: str

    def normal(self, inverted: bool = False) -> list[list[tuple[Leaf, bool]]]:
        """Return it as what it inverts."""
        return [[(SameGroup(self.column), not inverted)]]


@dataclass(frozen=True)
class SamePeriod(Leaf):
    """Candidates of the row's own period; a missing time is of none.

    Attributes:
        column: Times, as those of `PastOnly`.
        n_periods: Into how many periods of as many candidates each it is parted.
    """

    column: str
    n_periods: int

    @property
    def needs(self) -> tuple[str, ...]:
        """The column of times."""
        return (self.column,)

    def over(self, candidates: pd.DataFrame) -> Periods:
        """Part the candidates' times."""
        cells = read_cells(candidates, self.column, in_fit=True)
        return Periods.of(cells, self.n_periods)

    def parts(self, candidates: pd.DataFrame) -> bool:
        """Whether no period has most of the candidates, as one of few times may."""
        codes = self.over(candidates).codes
        counts = np.bincount(codes[codes >= 0], minlength=1)
        return bool(2 * counts.max() <= len(codes))


@dataclass(frozen=True)
class Where(Leaf):
    """Any rule: a function of the row's and the candidate's columns.

    It is called with two mappings from columns to arrays that broadcast: those of rows
    are (b, 1), those of candidates (n,). It returns flags (b, n). A function cannot be
    stored: a loaded model needs it to be set again.

    >>> near = Where(lambda row, other: abs(row["km"] - other["km"]) < 10, ["km"])

    Attributes:
        allows: The function.
        reads: The columns it reads.
    """

    allows: Callable[[Columns, Columns], Any]
    reads: Sequence[str]

    def __post_init__(self) -> None:
        """Keep the columns hashable."""
        reads = [self.reads] if isinstance(self.reads, str) else self.reads
        object.__setattr__(self, "reads", tuple(reads))

    @property
    def needs(self) -> tuple[str, ...]:
        """The columns that the function reads."""
        return tuple(self.reads)

    def over(self, candidates: pd.DataFrame) -> Function:
        """Keep the candidates' columns."""
        return Function(self.allows, self.needs, read_values(candidates, self.needs))


class _Lost:
    """Stands for a function that a file could not hold."""

    def __call__(self, row: Columns, other: Columns) -> Any:
        """Refuse to guess."""
        raise DataError(
            "a rule Where holds a function, which no file can hold, however it is "
            "needed here: call restrict_candidates with the rule again"
        )


def pack_rule(rule: Rule) -> dict[str, Any]:
    """Return a rule as JSON holds it; the function of Where is left out."""
    values: dict[str, Any]
    if isinstance(rule, _Joined):
        values = {"by": rule.by, "parts": [pack_rule(part) for part in rule.parts]}
    elif isinstance(rule, _Inverted):
        values = {"part": pack_rule(rule.part)}
    elif isinstance(rule, PastOnly):
        values = {"column": rule.column, "window": _plain(rule.window)}
        values["gap"] = _plain(rule.gap)
    elif isinstance(rule, Where):
        values = {"reads": list(rule.reads)}
    else:
        assert isinstance(rule, SameGroup | NotSameGroup)
        values = {"column": rule.column}
    return {"rule": type(rule).__name__.lstrip("_"), **values}


def unpack_rule(values: Mapping[str, Any]) -> Rule:
    """Return the rule that `pack_rule` packed."""
    rule = _unpacked(values)
    n_lines = _size(rule)[1]
    check_file(n_lines <= _MOST_LINES, f"its rule is {n_lines} rules, joined")
    return rule


def in_nanoseconds(values: Any) -> Any:
    """Return a packed rule whose bare spans have the unit that they had between dates.

    So earlier versions read them.
    """
    if isinstance(values, list):
        return [in_nanoseconds(value) for value in values]
    if not isinstance(values, Mapping):
        return values
    spans = {
        name: f"{values[name]:.0f}ns"
        for name in ("window", "gap")
        if isinstance(values.get(name), float)
    }
    return {name: in_nanoseconds(value) for name, value in values.items()} | spans


def _size(rule: Rule, inverted: bool = False) -> tuple[int, int]:
    """Return how many groups, and leaves in all, `normal` would return."""
    if isinstance(rule, _Inverted):
        return _size(rule.part, not inverted)
    if not isinstance(rule, _Joined):
        return 1, 1
    (m, first), (n, second) = (_size(part, inverted) for part in rule.parts)
    if (rule.by == "&") != inverted:
        return m + n, first + second
    return m * n, first * n + second * m


def _unpacked(values: Mapping[str, Any]) -> Rule:
    fields = dict(values)
    name = fields.pop("rule")
    if name == "Joined":
        first, second = map(_unpacked, fields["parts"])
        return first & second if fields["by"] == "&" else first | second
    if name == "Inverted":
        return ~_unpacked(fields["part"])
    if name == "Where":
        return Where(_Lost(), [str(column) for column in fields["reads"]])
    kinds: dict[str, type[PastOnly | SameGroup | NotSameGroup]]
    kinds = {cls.__name__: cls for cls in (PastOnly, SameGroup, NotSameGroup)}
    return kinds[name](**fields)


def _plain(span: Any) -> Any:
    """Return a span as JSON holds it."""
    if span is None or isinstance(span, str):
        return span
    if _is_number(span):
        return float(span)
    return str(pd.Timedelta(span))


class BoundRule:
    """A rule with its candidates.

    Attributes:
        lines: What allows a candidate, and whether it is inverted.
        outside: Bit c: line c is inverted.
        ends: Bit c: line c is the last of its group; in every group one must hold.
        codes: (c, n) of the candidates.
    """

    def __init__(
        self,
        rule: Rule,
        parts: Mapping[Leaf, Compared],
        n: int,
    ) -> None:
        """Lay the leaves of all groups out in lines."""
        self.rule, self.parts, self.n = rule, dict(parts), n
        groups = rule.normal()
        self.lines = [self.parts[leaf] for group in groups for leaf, _ in group]
        inverted = [flag for group in groups for _, flag in group]
        last = np.cumsum([len(group) for group in groups]) - 1
        self.outside = sum(1 << i for i, flag in enumerate(inverted) if flag)
        self.ends = sum(1 << int(i) for i in last)

    @property
    def codes(self) -> Codes:
        """The candidates' codes (c, n)."""
        nothing = np.zeros(self.n, dtype=np.int32)
        return np.stack(
            [nothing if isinstance(x, Function) else x.codes for x in self.lines]
        )

    def tags(self, frame: pd.DataFrame) -> Tags:
        """Return what these rows need to be compared."""
        check_columns(frame, self.rule)
        of_part: dict[int, tuple[Codes, Codes, dict[str, NDArray[Any]] | None]] = {}
        nothing = np.zeros(len(frame), dtype=np.int32)
        for part in self.parts.values():
            if isinstance(part, Function):
                of_part[id(part)] = nothing, nothing, part.of(frame)
            else:
                of_part[id(part)] = *part.intervals(frame), None
        tags_of_lines = [of_part[id(part)] for part in self.lines]
        low, high, values = zip(*tags_of_lines, strict=True)
        return Tags(np.stack(low), np.stack(high), values)

    def extended(self, frame: pd.DataFrame) -> BoundRule:
        """Return it with further candidates."""
        check_columns(frame, self.rule)
        parts = {leaf: part.extended(frame) for leaf, part in self.parts.items()}
        return BoundRule(self.rule, parts, self.n + len(frame))

    def taken(self, index: NDArray[np.int64]) -> BoundRule:
        """Return it with the candidates at index."""
        parts = {leaf: part.taken(index) for leaf, part in self.parts.items()}
        return BoundRule(self.rule, parts, len(index))


class Rules(NamedTuple):
    """Who may be whose neighbour; None allows all.

    Attributes:
        in_training: Holds for training rows.
        afterwards: Holds for all others, and in the fitted model.
    """

    in_training: Rule | None
    afterwards: Rule | None


def check_rule(rule: object) -> None:
    """Refuse what is no rule."""
    if rule is not None and not isinstance(rule, Rule):
        raise ParameterTypeError(
            "candidates must be a rule such as PastOnly, NotSameGroup or Where, "
            f"however: {rule!r:.60}"
        )


def check_columns(frame: pd.DataFrame, rule: Rule) -> None:
    """Refuse a table that lacks columns of a rule."""
    absent = [name for name in rule.columns if name not in frame.columns]
    if absent:
        raise DataError(
            f"the columns of {rule!r:.80} must be in the table, however {absent} are "
            f"absent: add them, the table has {list(frame.columns)[:20]}"
        )


def split_by(rule: Rule | None, frame: pd.DataFrame) -> Split | None:
    """Return what rows must be held out by, so that validation follows the rule."""
    if rule is None:
        return None
    check_columns(frame, rule)
    leaves = [part[0] for part in rule.normal() if len(part) == 1]
    for leaf, inverted in leaves:
        if isinstance(leaf, PastOnly) and not inverted:
            cells = read_cells(frame, leaf.column, in_fit=True)
            times = read_times(cells, cells.kind == "date")
            return Split("time", np.where(np.isnan(times), -np.inf, times))
    for leaf, inverted in leaves:
        if isinstance(leaf, SameGroup) and inverted:
            codes = read_cells(frame, leaf.column, in_fit=True).levels[0]
            alone = codes.max(initial=0) + 1 + np.arange(len(codes))
            return Split("group", np.where(codes < 0, alone, codes).astype(np.float64))
    return None

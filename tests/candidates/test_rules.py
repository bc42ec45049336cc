"""Rules: who may be whose neighbour, against a slow transcription in words."""

from __future__ import annotations

import datetime
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from tabr import DataError, NotSameGroup, PastOnly, SameGroup, Where
from tabr.candidates.device_rules import RuleIndex, lonely_share
from tabr.candidates.rules import Rule, SamePeriod, pack_rule, split_by, unpack_rule

CPU = torch.device("cpu")


def table(n: int, seed: int) -> pd.DataFrame:
    """Times with ties and gaps, groups, and some of both missing."""
    rng = np.random.default_rng(seed)
    days = rng.integers(0, 12, n).astype(float)
    days[rng.random(n) < 0.1] = np.nan
    group = rng.choice(["a", "b", "c", None], n, p=[0.4, 0.3, 0.2, 0.1])
    return pd.DataFrame({
        "day": days,
        "on": pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D"),
        "group": group,
        "km": rng.normal(size=n),
    })  # fmt: skip


def flags(
    rule: Rule, rows: pd.DataFrame, candidates: pd.DataFrame
) -> NDArray[np.bool_]:
    rules = RuleIndex(rule.bind(candidates), CPU).tag(rows).rules(slice(0, len(rows)))
    whole = rules.allowed(slice(0, len(rows)), slice(0, len(candidates))).numpy()
    parts = [
        [rules.allowed(r, c).numpy() for c in (slice(0, 7), slice(7, len(candidates)))]
        for r in (slice(0, 3), slice(3, len(rows)))
    ]
    assert np.array_equal(np.block(parts), whole)  # chunks change nothing
    return whole


def past(r, c, window=None, gap=0.0) -> bool:
    if np.isnan(r.day) or np.isnan(c.day):
        return False
    age = r.day - c.day
    return (age >= gap if gap else age > 0) and (window is None or age <= window)


def same(r, c) -> bool:
    return isinstance(r.group, str) and r.group == c.group


near = Where(lambda row, other: abs(row["km"] - other["km"]) < 0.5, ["km"])

CASES = [
    (PastOnly("day"), past),
    (PastOnly("on"), past),
    (PastOnly("on", window="3D"), lambda r, c: past(r, c, window=3)),
    (PastOnly("day", window=3), lambda r, c: past(r, c, window=3)),
    (PastOnly("on", gap="2D"), lambda r, c: past(r, c, gap=2)),
    (PastOnly("on", "5D", "48h"), lambda r, c: past(r, c, 5, 2)),
    (SameGroup("group"), same),
    (NotSameGroup("group"), lambda r, c: not same(r, c)),
    (~NotSameGroup("group"), same),
    (~PastOnly("day"), lambda r, c: not past(r, c)),
    (
        PastOnly("on") & NotSameGroup("group"),
        lambda r, c: past(r, c) and not same(r, c),
    ),
    (PastOnly("on") | SameGroup("group"), lambda r, c: past(r, c) or same(r, c)),
    (
        ~(PastOnly("day") & SameGroup("group")) | near,
        lambda r, c: not (past(r, c) and same(r, c)) or abs(r.km - c.km) < 0.5,
    ),
    (near & PastOnly("day"), lambda r, c: abs(r.km - c.km) < 0.5 and past(r, c)),
    (
        (PastOnly("day") & near) | (SameGroup("group") & ~near),
        lambda r, c: past(r, c) if abs(r.km - c.km) < 0.5 else same(r, c),
    ),
]


# Not their words: those of a function name its place in memory.
@pytest.mark.parametrize(("rule", "slow"), CASES, ids=map(str, range(len(CASES))))
def test_a_rule_allows_what_its_words_say(rule: Rule, slow) -> None:
    rows, candidates = table(25, 0), table(40, 1)
    expected = [
        [bool(slow(r, c)) for c in candidates.itertuples()] for r in rows.itertuples()
    ]
    assert np.array_equal(flags(rule, rows, candidates), np.array(expected))


@pytest.mark.parametrize(
    "rule", [rule for rule, _ in CASES], ids=map(str, range(len(CASES)))
)
def test_candidates_that_come_and_go_are_compared_as_if_they_had_been_there(
    rule: Rule,
) -> None:
    first, late = table(30, 2), table(15, 3)
    late.loc[len(late)] = [99.0, pd.Timestamp("2025-01-01"), "new group", 0.0]
    every = pd.concat([first, late], ignore_index=True)
    rows = table(10, 4)
    grown = rule.bind(first).extended(late)
    kept = np.arange(0, len(every), 2)

    def allowed(bound) -> NDArray[np.bool_]:
        rules = RuleIndex(bound, CPU).tag(rows).rules(slice(0, 10))
        return rules.allowed(slice(0, 10), slice(0, bound.n)).numpy()

    assert np.array_equal(allowed(grown), flags(rule, rows, every))
    assert np.array_equal(allowed(grown.taken(kept)), allowed(grown)[:, kept])


@pytest.mark.parametrize("column", ["day", "on"])
@pytest.mark.parametrize("n_periods", [1, 2, 5])
def test_rows_and_candidates_of_a_period_find_one_another(
    column: str, n_periods: int
) -> None:
    rows, candidates = table(30, 0), table(60, 1)
    known = np.sort(candidates.day.dropna())
    edges = np.quantile(known, np.arange(1, n_periods) / n_periods)

    def period(row) -> int | None:
        return None if np.isnan(row.day) else int((row.day >= edges).sum())

    def same_period(r, c) -> bool:
        return period(r) is not None and period(r) == period(c)

    expected = np.array([
        [same_period(r, c) for c in candidates.itertuples()] for r in rows.itertuples()
    ])  # fmt: skip
    rule = SamePeriod(column, n_periods)
    assert np.array_equal(flags(rule, rows, candidates), expected)
    assert np.array_equal(flags(~rule, rows, candidates), ~expected)


def test_candidates_added_later_fall_into_the_periods_of_the_first() -> None:
    first, late, rows = table(30, 2), table(15, 3), table(10, 4)
    every = pd.concat([first, late], ignore_index=True)
    edge = first.day.dropna().median()
    grown, kept = SamePeriod("day", 2).bind(first).extended(late), np.arange(0, 45, 2)

    def allowed(bound) -> NDArray[np.bool_]:
        rules = RuleIndex(bound, CPU).tag(rows).rules(slice(0, 10))
        return rules.allowed(slice(0, 10), slice(0, bound.n)).numpy()

    sides = [np.where(t.day.isna(), np.nan, t.day >= edge) for t in (rows, every)]
    expected = sides[0][:, None] == sides[1]
    assert np.array_equal(allowed(grown), expected)
    assert np.array_equal(allowed(grown.taken(kept)), expected[:, kept])


def test_times_may_be_written_as_text_with_or_without_zones() -> None:
    texts = pd.DataFrame({"on": ["2024-03-01", "2024-03-02T12:00", "2024-03-05"]})
    rows = pd.DataFrame({"on": pd.to_datetime(["2024-03-02 13:00+00:00"])})
    assert flags(PastOnly("on"), rows, texts).tolist() == [[True, True, False]]


def test_groups_are_compared_as_categories_are() -> None:
    candidates = pd.DataFrame({"shop": ["1", "2", "3"]})
    rows = pd.DataFrame({"shop": [1.0, 9.0]})
    assert flags(SameGroup("shop"), rows, candidates).tolist() == [
        [True, False, False],
        [False, False, False],
    ]


def test_rules_are_joined_only_with_rules() -> None:
    with pytest.raises(TypeError, match="wrap a function in Where"):
        PastOnly("on") & (lambda row, other: True)


@pytest.mark.parametrize(
    ("column", "how"),
    [("on", {"window": "soon"}), ("on", {"gap": "-1D"}), ("day", {"window": "3D"})],
)
def test_a_span_that_does_not_fit_its_times_is_refused(column: str, how) -> None:
    with pytest.raises(DataError, match=rf"of PastOnly\('{column}'\) must be a"):
        PastOnly(column, **how).bind(table(5, 0))


BARE = [365, 365.0, np.int64(365), np.float32(365), "365", " 365 ", "3e2"]
NO_SPAN = [*BARE, "0,5D", True, np.inf, np.nan, "", b"30D"]


@pytest.mark.parametrize("name", ["window", "gap"])
@pytest.mark.parametrize("value", NO_SPAN, ids=repr)
def test_a_number_without_a_unit_is_no_span_between_dates(name: str, value) -> None:
    frame = table(5, 0)
    for dates in (frame, frame.assign(on=frame.on.astype(str))):
        with pytest.raises(DataError, match=r"the times are dates.*write '\d+D' for"):
            PastOnly("on", **{name: value}).bind(dates.dropna())
    if value in BARE[:5]:
        with pytest.raises(DataError, match="write '365D' for 365 days"):
            PastOnly("on", **{name: value}).bind(frame)


@pytest.mark.parametrize(
    "value",
    [
        "5",
        "5D",
        pd.Timedelta(5, "D"),
        datetime.timedelta(5),
        np.timedelta64(5, "D"),
        True,
    ],
    ids=repr,
)
def test_a_text_or_a_time_is_no_span_between_numbers(value) -> None:
    with pytest.raises(DataError, match=r"must be a number.*times are numbers"):
        PastOnly("day", value).bind(table(5, 0))


FIVE = pd.Timedelta(5, "D"), datetime.timedelta(5), np.timedelta64(5, "D")


@pytest.mark.parametrize(
    "value", ["5D", "120h", "P5D", *FIVE, pd.offsets.Day(5)], ids=repr
)
def test_spans_with_a_unit_are_the_same_however_written(value) -> None:
    rows, candidates = table(25, 0), table(40, 1)
    expected = flags(PastOnly("day", window=5), rows, candidates)
    for rule in (PastOnly("on", value), unpack_rule(pack_rule(PastOnly("on", value)))):
        assert np.array_equal(flags(rule, rows, candidates), expected)


def test_zero_is_the_same_span_in_any_unit() -> None:
    rows, candidates = table(25, 0), table(40, 1)
    expected = flags(PastOnly("on"), rows, candidates)
    assert np.array_equal(flags(PastOnly("on", gap=0), rows, candidates), expected)


def share_alone(rule: Rule, frame: pd.DataFrame) -> float:
    return lonely_share(rule.bind(frame), frame)


@pytest.mark.parametrize(("rule", "slow"), CASES, ids=map(str, range(len(CASES))))
def test_the_share_of_candidates_without_any_other_is_counted(rule, slow) -> None:
    frame = table(30, 6)
    rows = list(frame.itertuples())
    alone = [not any(slow(r, c) for c in rows if c is not r) for r in rows]
    assert share_alone(rule, frame) == pytest.approx(np.mean(alone))


def test_of_many_candidates_the_last_ones_may_be_the_only_neighbours() -> None:
    frame = pd.DataFrame({"t": np.r_[np.ones(20_000), 0.0]})
    assert share_alone(PastOnly("t"), frame) == 0
    assert share_alone(PastOnly("t", window=0.5), frame) == 1
    assert share_alone(SameGroup("t"), frame) < 0.01  # the last one has only itself


def test_an_absent_column_is_named() -> None:
    bound = PastOnly("on").bind(table(5, 0))
    with pytest.raises(DataError, match=r"\['on'\] are absent"):
        bound.tags(table(3, 1).drop(columns="on"))


def test_a_function_must_return_flags() -> None:
    wrong = Where(lambda row, other: row["km"] - other["km"], ["km"])
    with pytest.raises(DataError, match="must return flags of shape"):
        flags(wrong, table(8, 0), table(9, 1))


def test_stored_rules_come_back_and_functions_ask_to_be_set_again() -> None:
    rows, candidates = table(9, 0), table(12, 1)
    for rule, _ in CASES:
        again = unpack_rule(pack_rule(rule))
        if "km" in rule.columns:
            with pytest.raises(DataError, match="call restrict_candidates"):
                flags(again, rows, candidates)
        else:
            expected = flags(rule, rows, candidates)
            assert np.array_equal(flags(again, rows, candidates), expected)


def test_validation_rows_are_the_latest_or_whole_groups() -> None:
    frame = table(50, 5)
    time = split_by(PastOnly("on") & NotSameGroup("group"), frame)
    assert time is not None and time.by == "time"
    group = split_by(NotSameGroup("group"), frame)
    assert group is not None and group.by == "group"
    for rule in (None, SameGroup("group"), near, PastOnly("on") | near):
        assert split_by(rule, frame) is None
    pairs = itertools.combinations(range(50), 2)
    for i, j in pairs:
        both = frame.group[i], frame.group[j]
        alike = isinstance(both[0], str) and both[0] == both[1]
        assert (group.values[i] == group.values[j]) == alike

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import expon
from sklearn.datasets import load_breast_cancer, load_digits

from tabr import TabRClassifier, cli
from tabr.audit import AuditReport, Finding, audit
from tabr.audit.attention import falls_on_one, without_self
from tabr.audit.drift import column_shifts
from tabr.audit.exact_copies import find_exact
from tabr.audit.labels import Labels
from tabr.audit.significance import beyond_usual, judge
from tabr.errors import DataError
from tabr.prediction.explanation import NeighborTable


def houses(n: int = 600, seed: int = 0) -> pd.DataFrame:
    """Rows of numbers and categories in which nobody copies anybody."""
    rng = np.random.default_rng(seed)
    numbers = {f"n{k}": rng.normal(size=n) for k in range(6)}
    town, kind = rng.choice(list("abcdef"), n), rng.choice(list("uvw"), n)
    return pd.DataFrame({**numbers, "town": town, "kind": kind})


def halves(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    n = 2 * len(frame) // 3
    train, test = frame.iloc[:n], frame.iloc[n:]
    return train.reset_index(drop=True), test.reset_index(drop=True)


def with_copies(
    train: pd.DataFrame, test: pd.DataFrame, who: np.ndarray, noise: float
) -> pd.DataFrame:
    copies = test.iloc[who].copy()
    rng = np.random.default_rng(1)
    for name in copies.select_dtypes("number"):
        copies[name] += rng.normal(0, noise, len(who)) * train[name].std()
    return pd.concat([train, copies], ignore_index=True)


def finding(report: AuditReport, kind: str) -> Finding:
    return next(f for f in report.findings if f.kind == kind)


def kinds(report: AuditReport) -> list[str]:
    return [f.kind for f in report.findings]


# --- exact copies -------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), min_size=2),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), min_size=2),
)
def test_exact_copies_are_those_that_comparing_all_pairs_finds(
    train: list[tuple[int, str]], test: list[tuple[int, str]]
):
    exact = find_exact(pd.DataFrame(train), pd.DataFrame(test))
    assert exact.is_copy.tolist() == [row in train for row in test]
    assert exact.in_train.tolist() == [train.count(row) > 1 for row in train]
    for row, place in zip(test, exact.first, strict=True):
        assert place < 0 or train[place] == row


def test_expected_copies_are_the_mean_over_random_splits():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(0, 60, 200)})
    counts, expected = [], 0.0
    for _ in range(300):
        order = rng.permutation(200)
        exact = find_exact(frame.iloc[order[60:]], frame.iloc[order[:60]])
        counts.append(exact.is_copy.sum())
        expected, spread = exact.expected, exact.spread
    assert np.mean(counts) == pytest.approx(expected, rel=0.02)
    assert np.std(counts) < 1.5 * spread


@pytest.mark.parametrize("value", [np.nan, None, "x", 0.5, True])
def test_a_cell_of_any_type_equals_itself(value: object):
    frame = pd.DataFrame({"a": pd.Series([value, "y", value], dtype=object)})
    assert find_exact(frame.iloc[:1], frame.iloc[1:]).is_copy.tolist() == [False, True]


def test_types_of_the_two_parts_may_differ():
    train = pd.DataFrame({"a": [1, 2], "b": pd.Categorical(["u", "v"])})
    test = pd.DataFrame({"a": [2.0, 1.0], "b": ["v", "v"]})
    assert find_exact(train, test).is_copy.tolist() == [True, False]


def test_a_leak_of_exact_copies_is_called_one_and_its_labels_are_compared():
    train, test = halves(houses())
    who = np.arange(20)
    leaky = with_copies(train, test, who, 0.0)
    y = np.r_[np.zeros(len(train)), np.ones(20)]
    y_test = np.r_[np.ones(15), np.zeros(len(test) - 15)]
    report = audit(leaky, y, test, y_test)
    copies = finding(report, "exact copies")
    assert report.verdict == copies.gravity == "leak"
    assert copies.rows.tolist() == who.tolist()
    assert copies.partners.tolist() == (who + len(train)).tolist()
    assert "15 of their labels agree, 5 contradict" in copies.sentence


def test_natural_repeats_are_described_and_not_accused():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 3, (1500, 5)))
    report = audit(frame, rng.integers(0, 2, 1500))
    copies = finding(report, "exact copies")
    assert copies.gravity == "warning"
    assert "repeats are usual in this table" in copies.sentence
    assert finding(report, "contradicting labels").count > 100
    assert report.verdict != "leak"


def test_repeats_beyond_the_usual_ones_are_accused_nevertheless():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 7, (900, 4)))
    train, test = halves(frame)
    assert audit(train, X_test=test).verdict != "leak"
    leaky = pd.concat([train, test.iloc[:150]], ignore_index=True)
    assert finding(audit(leaky, X_test=test), "exact copies").gravity == "leak"


# --- near copies --------------------------------------------------------------


@pytest.mark.parametrize("share", [0.03, 0.3])
def test_near_copies_are_found_and_others_are_not(share: float):
    train, test = halves(houses(1500))
    who = np.random.default_rng(2).choice(500, round(share * 500), replace=False)
    report = audit(with_copies(train, test, who, 1e-3), X_test=test)
    near = finding(report, "near copies")
    hits = np.intersect1d(near.rows, who)
    assert near.gravity == "leak"
    assert len(hits) >= 0.95 * len(who)
    assert len(hits) >= 0.95 * len(near.rows)
    partner = dict(zip(near.rows.tolist(), near.partners.tolist(), strict=True))
    assert all(partner[row] == len(train) + who.tolist().index(row) for row in hits)


def test_a_changed_category_hides_no_copy():
    train, test = halves(houses(1500))
    who = np.arange(50)
    leaky = with_copies(train, test, who, 1e-3)
    leaky.loc[len(train) :, "town"] = "z"
    near = finding(audit(leaky, X_test=test), "near copies")
    assert len(np.intersect1d(near.rows, who)) >= 48
    assert near.count <= 52


def test_one_grossly_changed_number_hides_no_copy():
    train, test = halves(houses(1500))
    who = np.arange(50)
    leaky = with_copies(train, test, who, 1e-3)
    leaky.loc[len(train) :, "n3"] += 2.5
    near = finding(audit(leaky, X_test=test), "near copies")
    assert len(np.intersect1d(near.rows, who)) >= 45
    assert near.count <= 52


def test_units_do_not_matter():
    train, test = halves(houses(900))
    leaky = with_copies(train, test, np.arange(30), 1e-3)
    scale = {"n0": 1e6, "n1": 1e-5}
    scaled = [
        f.assign(**{k: f[k] * v for k, v in scale.items()}) for f in (leaky, test)
    ]
    one = finding(audit(leaky, X_test=test), "near copies")
    two = finding(audit(scaled[0], X_test=scaled[1]), "near copies")
    assert set(one.rows.tolist()) == set(two.rows.tolist())


@pytest.mark.parametrize("load", [load_breast_cancer, load_digits])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_clean_split_of_a_real_table_is_not_accused(load: object, seed: int):
    X, y = load(return_X_y=True, as_frame=True)
    report = audit(X, y, random_state=seed)
    assert report.verdict != "leak"
    assert all(f.share < 0.01 for f in report.findings if f.kind == "near copies")


def test_groups_of_almost_equal_rows_are_told_though_no_leak():
    # As many training rows have a sibling as test rows: a random split of groups.
    base = houses(800)
    both = with_copies(base, base, np.arange(40), 1e-3)
    report = audit(both, random_state=3)
    assert finding(report, "near copies in training").count > 20
    assert report.verdict != "leak"


def test_a_sample_is_announced_and_still_finds_the_leak():
    train, test = halves(houses(9000))
    leaky = with_copies(train, test, np.arange(600), 1e-3)
    report = audit(leaky, X_test=test, max_pairs=1)
    assert any("a sample of 2000 of 3000 test rows" in note for note in report.notes)
    assert finding(report, "near copies").gravity == "leak"


def test_the_same_seed_gives_the_same_report():
    texts = [str(audit(houses(), random_state=5)) for _ in range(2)]
    assert texts[0] == texts[1]


def test_few_rows_are_audited_without_near_copies():
    report = audit(houses(12))
    assert any("near copies were not looked for" in note for note in report.notes)


def test_columns_that_number_the_rows_are_left_out():
    train, test = halves(houses())
    leaky = with_copies(train, test, np.arange(20), 0.0)
    frames = [
        f.assign(id=range(len(f)), name=f"r{k}") for k, f in enumerate((leaky, test))
    ]
    frames[0]["name"] = [f"x{k}" for k in range(len(leaky))]
    report = audit(frames[0], X_test=frames[1])
    assert finding(report, "exact copies").count == 20
    assert any("'id'" in note and "'name'" in note for note in report.notes)


# --- calibration --------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_scores_of_one_distribution_show_no_excess(seed: int):
    scores, usual = expon.rvs(size=(2, 3000), random_state=seed)
    verdict = judge(scores, usual)
    assert not verdict.is_excess
    assert verdict.named.mean() < 0.002


def test_the_share_of_false_ones_is_kept():
    false = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scores, usual = rng.standard_t(3, 2000), rng.standard_t(3, 4000)
        scores[:100] += 25
        named = scores >= beyond_usual(scores, usual)
        false.append(named[100:].sum() / max(1, named.sum()))
    assert np.mean(false) < 0.03


def test_an_excess_among_usual_copies_is_still_seen():
    rng = np.random.default_rng(0)
    scores, usual = rng.exponential(size=(2, 4000))
    scores[:200] += 20
    usual[:40] += 20  # copies are not unknown within training either
    verdict = judge(scores, usual)
    assert verdict.is_excess
    assert verdict.named[:200].all()
    assert verdict.excess == pytest.approx(0.04, abs=0.005)


# --- drift --------------------------------------------------------------------


def test_the_column_that_moved_comes_first():
    train, test = halves(houses(900))
    test["n2"] += 1.0
    test.loc[:200, "town"] = "a"
    table = column_shifts(train, test, np.random.default_rng(0))
    assert table["column"][:2].tolist() == ["town", "n2"]
    moved = finding(audit(train, X_test=test), "columns that moved")
    assert moved.count == 2
    assert "'n2'" in moved.sentence


def test_a_random_split_moves_no_column():
    for seed in range(3):
        assert "columns that moved" not in kinds(audit(houses(seed=seed)))


# --- with a model -------------------------------------------------------------


class Nearest:
    """A model whose neighbours are the Euclidean ones, itself included."""

    def __init__(self, frame: pd.DataFrame, y: np.ndarray, m: int = 12) -> None:
        ids = 1000 + np.arange(len(frame))  # ids are not positions
        self.candidates_ = SimpleNamespace(ids=ids, frame=frame, y=y)
        self.m = m

    def neighbors(self, X: pd.DataFrame) -> NeighborTable:
        own = self.candidates_.frame.to_numpy(float)
        square = ((X.to_numpy(float)[:, None] - own) ** 2).sum(-1)
        order = np.argsort(square, 1, kind="stable")[:, : self.m]
        near = np.take_along_axis(square, order, 1)
        weights = np.exp(-200 * (near - near[:, :1]))
        weights /= weights.sum(1, keepdims=True)
        return NeighborTable(self.candidates_.ids[order], weights, np.sqrt(near))


@pytest.fixture
def points() -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    frame = houses(1500)[[f"n{k}" for k in range(3)]]
    train, test = halves(frame)
    return train, test, np.where(train["n0"] > 0, "high", "low")


def test_a_row_is_dropped_from_its_own_neighbours_by_id():
    table = NeighborTable(
        np.array([[5, 7, 9], [7, 5, 9]]),
        np.array([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]]),
        np.arange(6.0).reshape(2, 3),
    )
    rest = without_self(table, np.array([7, 8]))
    assert rest.ids.tolist() == [[5, 9], [7, 5]]
    assert np.allclose(rest.weights.sum(1), 1)
    assert rest.distances.tolist() == [[0, 2], [3, 4]]


def test_attention_that_falls_on_a_copy_is_seen(points):
    train, test, y = points
    leaky = with_copies(train, test, np.arange(60), 1e-3)
    model = Nearest(leaky, np.r_[y, ["low"] * 60])
    report = audit(leaky, X_test=test, model=model)
    seen = finding(report, "attention on one copy")
    assert seen.gravity == "leak"
    assert len(np.intersect1d(seen.rows, np.arange(60))) >= 55
    partner = dict(zip(seen.rows.tolist(), seen.partners.tolist(), strict=True))
    assert all(partner[k] == 1000 + len(train) + k for k in range(60) if k in partner)
    clean = audit(train, X_test=test, model=Nearest(train, y))
    assert clean.verdict != "leak"


def test_attention_needs_weight_and_nearness():
    weights = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.3]])
    distances = np.array([[0.1, 1.0], [0.9, 1.0], [0.1, 1.0]])
    table = NeighborTable(np.zeros((3, 2), int), weights, distances)
    assert falls_on_one(table).tolist() == [True, False, False]


@pytest.mark.parametrize("as_numbers", [False, True])
def test_planted_wrong_labels_are_named(points, as_numbers: bool):
    train, test, y = points
    labels = train["n0"].to_numpy() * 10 if as_numbers else y.copy()
    # Far from the border of classes, where neighbours agree.
    wrong = np.flatnonzero(np.abs(train["n0"]).between(0.8, 1.5))[:6]
    flipped = {"high": "low", "low": "high"}
    labels[wrong] = (
        -10 * labels[wrong] if as_numbers else [flipped[v] for v in labels[wrong]]
    )
    report = audit(train, X_test=test, model=Nearest(train, labels))
    named = finding(report, "labels against neighbours")
    assert set((1000 + wrong).tolist()) <= set(named.rows.tolist())
    assert named.count < len(wrong) + 0.03 * len(train)


def test_weights_sum_over_rows_and_unused_candidates_are_named(points):
    train, test, y = points
    model = Nearest(train, y)
    report = audit(train, X_test=test, model=model)
    table = model.neighbors(test)
    heavy = finding(report, "influential candidates")
    best = heavy.rows[0]
    assert heavy.scores[0] == pytest.approx(table.weights[table.ids == best].sum())
    unused = finding(report, "candidates never used")
    assert not set(unused.rows.tolist()) & set(table.ids.ravel().tolist())
    assert unused.count + len(np.unique(table.ids)) == len(train)


def test_rows_far_from_the_memory_are_told(points):
    train, test, y = points
    model = Nearest(train, y)
    assert (
        finding(audit(train, X_test=test, model=model), "far from the memory").gravity
        == "note"
    )
    far = finding(audit(train, X_test=test + 2.0, model=model), "far from the memory")
    assert far.gravity == "warning"
    assert far.share > 0.3


def test_labels_are_numbers_or_classes_by_their_values():
    assert Labels(np.arange(50)).are_numbers
    assert Labels(np.array([0.5, 1.5] * 9)).are_numbers
    assert not Labels(np.array([0, 1] * 9)).are_numbers
    assert not Labels(np.array(["a", "b"])).are_numbers
    assert not Labels(np.array([True, False])).are_numbers


# --- the report ---------------------------------------------------------------


def test_findings_come_gravest_first_and_the_report_is_plain_data():
    train, test = halves(houses())
    leaky = with_copies(train, test, np.arange(30), 1e-3)
    report = audit(leaky, np.zeros(len(leaky)), test, np.zeros(len(test)))
    order = ["leak", "warning", "note"]
    ranks = [order.index(f.gravity) for f in report.findings]
    assert ranks == sorted(ranks)
    assert dataclasses.is_dataclass(report)
    json.dumps(report.to_dict())
    frame = report.to_frame()
    assert len(frame) == sum(len(f.rows) for f in report.findings)
    text = str(report)
    assert all(f.sentence in text for f in report.findings)
    assert "test row" in text


def test_nothing_found_is_said():
    report = AuditReport((), (), (), 3, 2)
    assert "nothing was found" in str(report)
    assert report.to_frame().empty


def test_mistakes_are_named():
    frame = houses()
    with pytest.raises(DataError, match="no \\['town'\\]"):
        audit(frame, X_test=frame.drop(columns="town"))
    with pytest.raises(DataError, match="one label"):
        audit(frame, [1, 2])
    with pytest.raises(ValueError, match="leave one out"):
        audit(frame, X_test=frame, test_rows=[0])
    with pytest.raises(DataError, match="both parts need rows"):
        audit(frame, test_rows=np.zeros(len(frame), bool))
    with pytest.raises(DataError, match="no \\['nobody'\\]"):
        audit(frame, ignore=["nobody"])
    with pytest.raises(ValueError, match="test_fraction"):
        audit(frame, test_fraction=1.5)


# --- the command --------------------------------------------------------------


def run(*args: object) -> Result:
    return CliRunner().invoke(cli.main, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("audit")
    train, test = halves(houses(300).assign(price=np.arange(300) / 7))
    leaky = with_copies(train, test, np.arange(25), 0.0)
    leaky.to_csv(path / "train.csv", index=False)
    test.to_csv(path / "test.csv", index=False)
    parts = [leaky.assign(part="train"), test.assign(part="test")]
    pd.concat(parts).to_csv(path / "both.csv", index=False)
    return path


def test_command_reports_the_leak_of_a_test_table(folder: Path):
    result = run(
        "audit",
        folder / "train.csv",
        "--target",
        "price",
        "--test",
        folder / "test.csv",
    )
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "225 training rows, 100 test rows"
    assert lines[3].split()[:3] == ["leak", "exact", "copies"]
    assert "a fitted model would add" in result.stdout


def test_a_split_column_gives_the_same_findings_by_position(folder: Path):
    args = ("audit", folder / "both.csv", "--target", "price", "--split", "part")
    report = json.loads(run(*args, "--json").stdout)
    assert report["verdict"] == "leak"
    assert report["findings"][0]["rows"] == list(range(225, 250))
    assert report["findings"][0]["partners"] == list(range(200, 225))


def test_findings_are_written_as_a_table(folder: Path, tmp_path: Path):
    out = tmp_path / "f.csv"
    args = ("audit", folder / "both.csv", "--target", "price", "--split", "part")
    assert run(*args, "-o", out).exit_code == 0
    frame = pd.read_csv(out)
    assert (frame["finding"] == "exact copies").sum() == 25


def test_command_asks_a_model(folder: Path, tmp_path: Path):
    frame = pd.read_csv(folder / "train.csv")
    model = TabRClassifier(width=8, context_size=6, max_epochs=2, random_state=0)
    model.fit(frame.drop(columns="price"), frame["price"] > 14)
    model.save(tmp_path / "m.tabr")
    result = run(
        "audit",
        folder / "train.csv",
        "--target",
        "price",
        "--model",
        tmp_path / "m.tabr",
    )
    assert result.exit_code == 0, result.stderr
    assert "influential candidates" in result.stdout
    assert "would add" not in result.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "--target must name"),
        (["--target", "prise"], "has no column 'prise'"),
        (["--target", "price", "--split", "town"], "'train' and another value"),
        (["--target", "price", "--test", "T", "--split", "town"], "leave one out"),
        (["--target", "price", "-o", "x.txt"], "must end in one of"),
        (["--target", "price", "--ignore", "nobody"], "has no column 'nobody'"),
    ],
)
def test_mistakes_on_the_command_line_are_one_sentence(
    folder: Path, args: list[str], words: str
):
    named = [str(folder / "test.csv") if arg == "T" else arg for arg in args]
    result = run("audit", folder / "train.csv", *named)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1

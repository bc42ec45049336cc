"""The commands about a model's candidates: rules, add, remove, explain."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tabr import TabRRegressor
from tests.cli.test_cli import TINY, refuse, succeed


def sales(n: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    area = rng.uniform(30, 200, n).round(1)
    days = pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    return pd.DataFrame({
        "area": area,
        "town": rng.choice(["Aix", "Bonn", "Cork"], n),
        "sold": (pd.Timestamp("2024-01-01") + days).strftime("%Y-%m-%d"),
        "seller": rng.choice(list("abcdefgh"), n),
        "price": (area * 3 + rng.normal(0, 5, n)).round(2),
    })  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table and a model whose neighbours come from the past."""
    path = tmp_path_factory.mktemp("memory")
    sales().to_csv(path / "sales.csv", index=False)
    sales(8, seed=1).to_csv(path / "new.csv", index=False)
    succeed(
        "fit", path / "sales.csv", "--target", "price", "-o", path / "m.tabr", *TINY,
        "--past-only", "sold", "--gap", "1D", "--not-same-group", "seller",
        "--ignore", "seller", "--refit-candidates", "--quiet",
    )  # fmt: skip
    return path


def test_options_become_a_rule(folder: Path) -> None:
    model = TabRRegressor.load(folder / "m.tabr")
    assert model.candidates.columns == ("sold", "seller")
    assert "seller" not in model.preprocessor_.feature_names
    assert len(model.candidates_) == 60
    rows = sales(20, seed=2)
    for row, ids in zip(rows.itertuples(), model.neighbors(rows).ids, strict=True):
        near = model.candidates_.look_up(ids[ids >= 0])
        assert (near.sold < row.sold).all() and (near.seller != row.seller).all()


def test_spans_need_times(folder: Path) -> None:
    fit = "fit", folder / "sales.csv", "--target", "price", "-o", folder / "x.tabr"
    assert "--window and --gap need --past-only" in refuse(*fit, "--window", "30D")
    assert "no column 'when'" in refuse(*fit, "--past-only", "when")
    for option in ("--window", "--gap"):
        told = refuse(*fit, "--past-only", "sold", option, "365", *TINY)
        assert "write '365D' for 365 days" in told
        assert "must be a number" in refuse(*fit, "--past-only", "area", option, "1D")
    assert not (folder / "x.tabr").exists()


def test_a_window_without_neighbours_is_told(folder: Path, tmp_path: Path) -> None:
    told = succeed(
        "fit", folder / "sales.csv", "--target", "price", "-o", tmp_path / "m.tabr",
        "--past-only", "sold", "--window", "1min", *TINY,
    ).stderr  # fmt: skip
    assert "tabr: under PastOnly(column='sold', window='1min'" in told


def test_rows_are_added_and_removed_again(folder: Path, tmp_path: Path) -> None:
    more, less = tmp_path / "more.tabr", tmp_path / "less.tabr"
    args = "add", folder / "m.tabr", folder / "new.csv", "-o", more
    result = succeed(*args)
    assert "added 8 rows with ids 60 to 67" in result.stderr
    assert len(TabRRegressor.load(more).candidates_) == 68
    pd.DataFrame({"id": range(60, 68)}).to_csv(tmp_path / "ids.csv", index=False)
    removed = succeed(
        "remove", more, "--from", tmp_path / "ids.csv", "-o", less, "--json"
    )
    assert json.loads(removed.stdout)["removed"] == 8
    rows, models = sales(9, seed=3), [folder / "m.tabr", less]
    first, last = (TabRRegressor.load(path).predict(rows) for path in models)
    np.testing.assert_allclose(first, last, rtol=1e-6)


def test_labels_far_beyond_those_of_fit_are_told(folder: Path, tmp_path: Path) -> None:
    rows = tmp_path / "far.csv"
    sales(8, seed=1).assign(price=1e6).to_csv(rows, index=False)
    result = succeed("add", folder / "m.tabr", rows, "-o", tmp_path / "x.tabr")
    assert "tabr: 8 labels lie far beyond those that fit saw" in result.stderr
    assert "added 8 rows" in result.stderr


def test_without_an_output_the_model_itself_changes(
    folder: Path, tmp_path: Path
) -> None:
    model = tmp_path / "m.tabr"
    model.write_bytes((folder / "m.tabr").read_bytes())
    result = succeed("add", model, folder / "new.csv", "--target", "price", "--json")
    about = json.loads(result.stdout)
    assert about["added"] == 8 and about["first_id"] == 60
    succeed("remove", model, "--ids", "60,61")
    assert len(TabRRegressor.load(model).candidates_) == 66


def test_nothing_but_the_target_of_fit_is_taken_for_labels(
    folder: Path, tmp_path: Path
) -> None:
    model = tmp_path / "m.tabr"
    model.write_bytes((folder / "m.tabr").read_bytes())
    before = model.read_bytes()
    table = tmp_path / "customers.csv"
    rows = sales(8, seed=1).drop(columns="price").assign(customer=range(8))
    rows.to_csv(table, index=False)
    for command in (("add",), ("evaluate",), ("report", "-o", tmp_path / "r.html")):
        sentence = refuse(command[0], model, table, *command[1:])
        assert "must have the target 'price'" in sentence
        assert "--target" in sentence
    assert "no column 'prise'" in refuse("add", model, table, "--target", "prise")
    assert model.read_bytes() == before
    assert [path.name for path in tmp_path.glob("*.html")] == []


def test_other_columns_beside_the_target_are_named_and_not_read(
    folder: Path, tmp_path: Path
) -> None:
    table, more = tmp_path / "new.csv", tmp_path / "more.tabr"
    new = sales(8, seed=1)
    new.assign(customer=range(8), note="x").to_csv(table, index=False)
    result = succeed("add", folder / "m.tabr", table, "-o", more)
    assert "does not know them: 'customer', 'note'" in result.stderr
    candidates = TabRRegressor.load(more).candidates_
    assert candidates.y_of(np.arange(60, 68)).tolist() == new["price"].tolist()
    assert "customer" not in candidates.columns
    found = succeed("evaluate", folder / "m.tabr", table, "--json").stdout
    plain = succeed("evaluate", folder / "m.tabr", folder / "new.csv", "--json").stdout
    assert found == plain
    renamed = new.rename(columns={"price": "paid"})
    renamed.to_csv(table, index=False)
    args = "evaluate", folder / "m.tabr", table, "--target", "paid", "--json"
    assert json.loads(succeed(*args).stdout)["model"] == json.loads(plain)["model"]


def test_a_model_whose_target_has_no_name_needs_one(
    folder: Path, tmp_path: Path
) -> None:
    rows = sales()
    model = TabRRegressor(n_members=1, width=8, context_size=4, max_epochs=1)
    model.fit(rows.drop(columns="price"), rows["price"].to_numpy())
    model.save(tmp_path / "m.tabr")
    args = tmp_path / "m.tabr", folder / "new.csv"
    assert "does not know what its target" in refuse("evaluate", *args)
    succeed("evaluate", *args, "--target", "price")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "give either --ids or --from"),
        (("--ids", "1;2"), "--ids must be like 3,17,18"),
        (("--ids", "1,999"), "no candidate has these ids: [999]; nothing was removed"),
    ],
)
def test_who_cannot_be_removed_is_named(folder: Path, args, words: str) -> None:
    before = (folder / "m.tabr").read_bytes()
    assert words in refuse("remove", folder / "m.tabr", *args)
    assert (folder / "m.tabr").read_bytes() == before


def test_a_bad_row_leaves_the_model_as_it_was(folder: Path, tmp_path: Path) -> None:
    bad = sales(3, seed=1).assign(price=["1", "2", "dear"])
    bad.to_csv(tmp_path / "bad.csv", index=False)
    before = (folder / "m.tabr").read_bytes()
    refuse("add", folder / "m.tabr", tmp_path / "bad.csv")
    assert (folder / "m.tabr").read_bytes() == before


def test_explain_shows_effects_and_corrected_labels(folder: Path) -> None:
    args = "explain", folder / "m.tabr", folder / "new.csv", "--rows", "1,3", "-m", "3"
    text = succeed(*args).stdout
    assert text.count("from retrieval") == 2
    assert "e-" not in text and "e+" not in text  # powers of ten are hard to compare
    for word in ("weight", "effect", "label", "corrected", "without neigh"):
        assert word in text
    assert any(column in text for column in ("area", "town", "sold"))
    rows = json.loads(succeed(*args, "--json").stdout)["rows"]
    assert [row["row"] for row in rows] == [1, 3]
    assert {"effect", "correction", "weight"} <= set(rows[0]["neighbors"][0])


def test_explanations_are_written_as_a_table(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "why.csv"
    succeed("explain", folder / "m.tabr", folder / "new.csv", "--rows", "2", "-o", out)
    found = pd.read_csv(out)
    assert set(found.row) == {2}
    assert list(found.columns[:4]) == ["row", "neighbor", "weight", "effect"]


def test_a_row_without_neighbours_is_shown_beside_others(
    folder: Path, tmp_path: Path
) -> None:
    rows = sales(2, seed=4).assign(sold=["2023-01-01", "2024-12-31"])
    rows.to_csv(tmp_path / "rows.csv", index=False)
    first, second = succeed(
        "explain", folder / "m.tabr", tmp_path / "rows.csv"
    ).stdout.split("\n\n")
    assert len(first.splitlines()) == 3  # a title, a header, the row
    assert len(second.splitlines()) > 3
    assert first.splitlines()[1] == second.splitlines()[1]
    rows.head(1).to_csv(tmp_path / "early.csv", index=False)
    assert (
        "this row"
        in succeed("neighbors", folder / "m.tabr", tmp_path / "early.csv").stdout
    )

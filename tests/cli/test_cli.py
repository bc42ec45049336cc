import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from tabr import TabRRegressor, cli
from tabr.estimators import load_model
from tabr.tables import files
from tabr.tables.csv import to_csv
from tabr.text import percent

TINY = ["--param", "width=8", "--param", "context_size=4", "--max-epochs", "2"]
TINY += ["--members", "1"]


def run(*args: object) -> Result:
    return CliRunner().invoke(cli.main, [str(arg) for arg in args])


def succeed(*args: object) -> Result:
    result = run(*args)
    assert result.exit_code == 0, result.stderr
    return result


def refuse(*args: object) -> str:
    """Run a command that must fail in one sentence, and return the sentence."""
    result = run(*args)
    lines = [x for x in result.stderr.splitlines() if not x.startswith("tabr: fitting")]
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert lines[-1].startswith("tabr: ")
    assert "Traceback" not in result.stderr
    return lines[-1]


def houses(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    area = rng.uniform(30, 200, n).round(1)
    town = rng.choice(["Aix", "Bonn", "Cork"], n)
    garden = rng.random(n) < 0.5
    price = (area * 3 + 50 * garden + rng.normal(0, 5, n)).round(2)
    dear = np.where(price > np.median(price), "dear", "cheap")
    return pd.DataFrame(
        {"area": area, "town": town, "garden": garden, "price": price, "class": dear}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, a regressor and a classifier."""
    path = tmp_path_factory.mktemp("cli")
    houses().to_csv(path / "houses.csv", index=False)
    fit = ("fit", path / "houses.csv", *TINY, "--quiet")
    succeed(*fit, "--target", "price", "--ignore", "class", "-o", path / "price.tabr")
    succeed(*fit, "--target", "class", "--ignore", "price", "-o", path / "class.tabr")
    return path


# --- fit ----------------------------------------------------------------------


def test_fit_says_what_it_did(folder: Path, tmp_path: Path):
    model = tmp_path / "m.tabr"
    result = succeed(
        "fit", folder / "houses.csv", "--target", "price", "-o", model, *TINY
    )
    assert model.exists()
    for words in (
        "regression of 'price'",
        "60, those to stop early by included",
        "1 numeric, 2 binary, 1 categorical",
        "RMSE",
        "best epoch",
        "kB",
    ):
        assert words in result.stdout
    assert "--task classification" in result.stderr


def test_fit_prints_one_json_object(folder: Path, tmp_path: Path):
    table, model = folder / "houses.csv", tmp_path / "m.tabr"
    args = ("--target", "class", "-o", model, *TINY, "--members", 2, "--json")
    summary = json.loads(succeed("fit", table, *args).stdout)
    assert summary["task"] == "classification"
    assert summary["rows"] == 60  # each is held out by one of the members
    assert summary["validation_rows"] is None
    assert summary["recipes"] == {"default": 1.0}
    assert summary["bytes"] == model.stat().st_size
    assert len(summary["best_epoch"]) == 2
    assert summary["validation_score"]["name"] == "log-loss"
    assert 0 <= summary["validation_score"]["value"] <= 1


def test_fit_stops_by_the_score_that_is_named(folder: Path, tmp_path: Path):
    table, model = folder / "houses.csv", tmp_path / "m.tabr"
    held_out = tmp_path / "held-out.csv"
    houses().tail(30).to_csv(held_out, index=False)
    args = ("fit", table, "--target", "class", "--ignore", "price", "-o", model, *TINY)
    for name, label in (
        ("roc-auc", "ROC AUC"),
        ("average_precision", "average precision"),
        ("f1_macro", "f1_macro"),  # any scorer of scikit-learn
    ):
        options = ("--scoring", name, "--validation", held_out, "--json")
        score = json.loads(succeed(*args, *options).stdout)["validation_score"]
        assert score["name"] == label
        if name != "f1_macro":
            about = (model, held_out, "--target", "class", "--json")
            scores = json.loads(succeed("evaluate", *about).stdout)["model"]
            assert score["value"] == pytest.approx(scores[label])


def test_quiet_fit_says_nothing_on_stderr(folder: Path, tmp_path: Path):
    args = ("--target", "price", "-o", tmp_path / "m.tabr", *TINY, "--quiet")
    assert succeed("fit", folder / "houses.csv", *args).stderr == ""


def test_validation_rows_and_weights_are_used(folder: Path, tmp_path: Path):
    houses().assign(w=[0, 2] * 30).to_csv(tmp_path / "w.csv", index=False)
    args = ("--target", "price", "-o", tmp_path / "m.tabr", *TINY, "--json")
    more = ("--weight", "w", "--validation", folder / "houses.csv")
    summary = json.loads(succeed("fit", tmp_path / "w.csv", *args, *more).stdout)
    assert (summary["rows"], summary["validation_rows"]) == (30, 60)
    assert summary["columns"] == {"numeric": 1, "binary": 2, "categorical": 1}


def test_rows_of_weight_zero_are_counted_nowhere(tmp_path: Path):
    houses().assign(w=[0, 2] * 30).to_csv(tmp_path / "w.csv", index=False)
    args = ("--target", "price", "-o", tmp_path / "m.tabr", *TINY, "--json")
    summary = json.loads(
        succeed("fit", tmp_path / "w.csv", *args, "--weight", "w").stdout
    )
    assert (summary["rows"], summary["validation_rows"]) == (30, None)
    kept_out = ("--weight", "w", "--no-refit-candidates")
    summary = json.loads(succeed("fit", tmp_path / "w.csv", *args, *kept_out).stdout)
    assert (summary["rows"], summary["validation_rows"]) == (24, 6)


def test_kind_of_a_column_can_be_chosen(folder: Path, tmp_path: Path):
    args = ("--target", "price", "-o", tmp_path / "m.tabr", *TINY, "--json")
    kinds = ("--kind", "area=categorical", "--ignore", "class")
    summary = json.loads(succeed("fit", folder / "houses.csv", *args, *kinds).stdout)
    assert summary["columns"] == {"binary": 1, "categorical": 2}


def test_a_parameter_that_is_false_is_false(folder: Path, tmp_path: Path):
    model = tmp_path / "m.tabr"
    args = ("fit", folder / "houses.csv", "--target", "price", "-o", model, *TINY)
    succeed(*args, "--param", "record_context=False")
    assert "context_change" not in TabRRegressor.load(model).history_


def test_validation_rows_that_became_candidates_are_not_counted_apart(
    folder: Path, tmp_path: Path
):
    table, model = folder / "houses.csv", tmp_path / "m.tabr"
    args = ("fit", table, "--target", "price", "-o", model, *TINY, "--refit-candidates")
    assert "60, those to stop early by included" in succeed(*args).stdout
    summary = json.loads(succeed(*args, "--json").stdout)
    assert (summary["rows"], summary["validation_rows"]) == (60, None)


def test_an_existing_model_is_replaced(folder: Path, tmp_path: Path):
    model = tmp_path / "m.tabr"
    model.write_text("old")
    succeed("fit", folder / "houses.csv", "--target", "price", "-o", model, *TINY)
    succeed("predict", model, folder / "houses.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["m.tabr"]


def test_the_input_is_never_overwritten(folder: Path, tmp_path: Path):
    table = tmp_path / "t.csv"
    houses().to_csv(table, index=False)
    before = table.read_bytes()
    link = tmp_path / "link.tabr"
    link.symlink_to(table)
    for output in (table, link):
        assert "is also the input" in refuse(
            "fit", table, "--target", "price", "-o", output, *TINY
        )
    assert "is also the input" in refuse(
        "predict", folder / "price.tabr", table, "-o", table
    )
    assert table.read_bytes() == before


def test_interrupted_training_keeps_the_best_so_far(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from tabr.training import loop as training

    rest = training._Run._reason_to_stop

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training._Run, "_reason_to_stop", interrupt)
    model = tmp_path / "m.tabr"
    fit = ("fit", folder / "houses.csv", "--target", "price", "-o", model, *TINY)
    result = run(*fit)
    assert result.exit_code == 130
    assert "the best epoch so far is kept" in result.stderr
    monkeypatch.setattr(training._Run, "_reason_to_stop", rest)
    succeed("predict", model, folder / "houses.csv")


def test_interruption_before_the_first_epoch_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tabr.estimators.TabRRegressor.fit", interrupt)
    model = tmp_path / "m.tabr"
    result = run("fit", folder / "houses.csv", "--target", "price", "-o", model)
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "tabr: interrupted; nothing was written"
    assert not model.exists()


def test_interruption_after_a_file_was_written_says_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    save = TabRRegressor.save

    def save_late(self: TabRRegressor, path: Path) -> None:
        save(self, path)
        raise KeyboardInterrupt

    model = tmp_path / "m.tabr"
    model.write_bytes((folder / "price.tabr").read_bytes())
    args = ("add", model, folder / "houses.csv")
    with monkeypatch.context() as patch:
        patch.setattr("tabr.estimators.TabRRegressor.save", save_late)
        result = run(*args)
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == (
        f"tabr: interrupted after {model} was written, whole"
    )
    assert len(TabRRegressor.load(model).candidates_) == 120

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    before = model.read_bytes()
    monkeypatch.setattr("tabr.estimators.TabRRegressor.save", interrupt)
    assert "interrupted; nothing was written" in run(*args).stderr
    assert model.read_bytes() == before
    monkeypatch.setattr("tabr.estimators.TabRRegressor.predict", interrupt)
    result = run("predict", model, folder / "houses.csv")
    assert result.stderr.splitlines()[-1] == "tabr: interrupted"


def test_ctrl_c_tells_what_is_there(folder: Path, tmp_path: Path):
    model = tmp_path / "m.tabr"
    command = [sys.executable, "-m", "tabr", "fit", folder / "houses.csv"]
    options = ["--target", "price", "-o", model, "--max-epochs", "1000000"]
    process = subprocess.Popen(
        [*map(str, [*command, *options])], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "fitting on" in line:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in errors
    assert ("nothing was written" in errors) == (not model.exists())


# --- tables -------------------------------------------------------------------


@pytest.mark.parametrize("suffix", files.SUFFIXES)
def test_every_format_gives_back_what_was_written(suffix: str, tmp_path: Path):
    path = tmp_path / f"t{suffix}"
    files.write_table(houses(), path)
    pd.testing.assert_frame_equal(files.read_table(path), houses())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_separator_is_found(separator: str, packed: bool, tmp_path: Path):
    lines = [f'"a,;,;\t,x"{separator}b', f"1{separator}2.5"]
    text = ("\ufeff" + "\n".join(lines)).encode()
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    path.write_bytes(gzip.compress(text, mtime=0) if packed else text)
    frame = files.read_table(path)
    assert frame.columns.tolist() == ["a,;,;\t,x", "b"]
    assert frame.to_numpy().tolist() == [[1, 2.5]]


def test_a_decimal_comma_is_read_beside_semicolons(tmp_path: Path):
    (tmp_path / "t.csv").write_text("a;b\n1,5;x\n2;y\n")
    assert files.read_table(tmp_path / "t.csv")["a"].tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.xlsx", b"", "must end in one of .csv"),
        ("t.csv", b"", "cannot be read as csv"),
        ("t.csv", b"a,b\n", "is empty: 0 rows and 2 columns"),
        ("t.csv", b"a,b\n1,2\n1,2,3\n", "cannot be read as csv"),
        ("t.csv", b"a,b\n1,2,3\n", "cannot be read as csv"),
        ("t.csv", b"a,b\n1,2\n1\n", "line 3 has 1"),
        ("t.csv", b"a,b,a\n1,2,3\n", "['a'] came more than once"),
        ("t.tsv", b"a\tb\n1\t2\na\tb\n", "line 3 is the header again"),
        ("t.csv", b"caf\xe9,b\n1,2\n", "cannot be read as csv: text must be UTF-8"),
        ("t.csv.gz", b"a,b\n1,2\n", "cannot be read as csv.gz"),
        (
            "t.csv.gz",
            gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:20],
            "cannot be read as",
        ),
        ("t.parquet", b"a,b\n1,2\n", "cannot be read as parquet"),
        ("t.feather", b"a,b\n1,2\n", "cannot be read as feather"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_sentence(
    name: str, content: bytes, words: str, tmp_path: Path
):
    (tmp_path / name).write_bytes(content)
    args = ("--target", "a", "-o", tmp_path / "m.tabr")
    assert words in refuse("fit", tmp_path / name, *args)


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_a_column_that_is_twice_in_a_table_is_refused(suffix: str, tmp_path: Path):
    column, path = pa.array([1, 2]), tmp_path / f"t.{suffix}"
    table = pa.Table.from_arrays([column] * 3, names=["a", "b", "a"])
    (pq.write_table if suffix == "parquet" else pa.feather.write_feather)(table, path)
    args = ("--target", "b", "-o", tmp_path / "m.tabr")
    assert "['a'] came more than once" in refuse("fit", path, *args)


def test_texts_that_look_like_numbers_are_kept_from_fit_on(tmp_path: Path):
    codes = ["01", "1", "001", "NA"] * 15
    table, model = tmp_path / "t.csv", tmp_path / "m.tabr"
    frame = houses().assign(zip=codes, kind=["07", "9"] * 30)[["area", "zip", "kind"]]
    frame.to_csv(table, index=False)
    fit = ("fit", table, "--target", "kind", "-o", model, *TINY)
    result = succeed(*fit)
    assert "'zip' has leading zeros ('01')" in result.stderr
    assert "'kind' has leading zeros ('07')" in result.stderr
    fit = (*fit, "--kind", "zip=categorical", "--task", "classification")
    result = succeed(*fit, "--validation", table)
    assert "leading zeros" not in result.stderr
    fitted = load_model(model)
    assert fitted.classes_.tolist() == ["07", "9"]
    assert fitted.preprocessor_.known_texts["zip"] == ("001", "01", "1")
    assert fitted.candidates_.frame["zip"].isna().sum() == 15  # as they were in fit
    rows = frame.head(8).replace({"zip": {"NA": None}})
    expected = fitted.predict_proba(rows[["area", "zip"]])
    rows = frame.head(8)
    rows.to_csv(tmp_path / "new.csv", index=False)
    args = ("predict", model, tmp_path / "new.csv", "--proba", "--json")
    found = json.loads(succeed(*args).stdout)["probabilities"]
    np.testing.assert_array_equal(np.transpose([*found.values()]), expected)


def test_a_cell_that_is_no_number_is_named_with_its_line(folder: Path, tmp_path: Path):
    lines = (folder / "houses.csv").read_text().splitlines()
    lines[3] = "large," + lines[3].partition(",")[2]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    for command in ("predict", "evaluate", "neighbors", "explain"):
        sentence = refuse(command, folder / "price.tabr", tmp_path / "t.csv")
        assert "t.csv cannot be read as csv: column 'area'" in sentence
        assert "line 4 holds 'large'" in sentence


def test_predictions_that_are_written_are_no_formulas(tmp_path: Path):
    table, model = tmp_path / "t.csv", tmp_path / "m.tabr"
    label = np.where(houses()["price"] > 350, "=cmd|' /C calc'!A0", "-1")
    houses().assign(label=label)[["area", "town", "label"]].to_csv(table, index=False)
    succeed("fit", table, "--target", "label", "-o", model, *TINY, "--quiet")
    proba = succeed("predict", model, table, "--proba").stdout
    assert proba.splitlines()[0] == "-1,'=cmd|' /C calc'!A0"
    output = tmp_path / "p.csv"
    succeed("predict", model, table, "-o", output)
    cells = set(output.read_text().splitlines()[1:])
    assert cells <= {"-1", "'=cmd|' /C calc'!A0"}
    succeed("predict", model, table, "-o", tmp_path / "p.parquet")
    raw = files.read_table(tmp_path / "p.parquet")["prediction"]
    assert set(raw) <= set(label)
    # The model knows the class without the apostrophe: as a label it is the same.
    rows = houses()[["area", "town"]].assign(label=raw)
    (tmp_path / "back.csv").write_text(to_csv(rows))
    args = ("evaluate", model, tmp_path / "back.csv", "--json")
    found = json.loads(succeed(*args).stdout)
    assert found["model"]["accuracy"] == 1


# --- predict, evaluate, neighbors ---------------------------------------------


def test_predictions_keep_the_order_of_rows(folder: Path, tmp_path: Path):
    first = pd.read_csv(folder / "houses.csv")
    first.iloc[::-1].to_csv(tmp_path / "reversed.csv", index=False)
    outputs = [
        succeed("predict", folder / "price.tabr", path).stdout.splitlines()
        for path in (folder / "houses.csv", tmp_path / "reversed.csv")
    ]
    assert outputs[0][0] == "prediction"
    forward, backward = (np.array(lines[1:], dtype=float) for lines in outputs)
    np.testing.assert_allclose(forward, backward[::-1], rtol=1e-5)


def test_target_column_makes_no_difference_to_predictions(folder: Path, tmp_path: Path):
    houses()[["garden", "town", "area"]].to_csv(tmp_path / "bare.csv", index=False)
    outputs = [
        succeed("predict", folder / "price.tabr", path).stdout
        for path in (folder / "houses.csv", tmp_path / "bare.csv")
    ]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".feather"])
def test_predictions_go_to_a_file(suffix: str, folder: Path, tmp_path: Path):
    output = tmp_path / f"p{suffix}"
    args = ("predict", folder / "class.tabr", folder / "houses.csv", "-o", output)
    assert succeed(*args).stdout == ""
    written = files.read_table(output)
    assert written.columns.tolist() == ["prediction"]
    assert len(written) == 60
    assert set(written["prediction"]) <= {"cheap", "dear"}


def test_probabilities_have_a_column_for_each_class(folder: Path):
    args = ("predict", folder / "class.tabr", folder / "houses.csv", "--proba")
    columns = json.loads(succeed(*args, "--json").stdout)["probabilities"]
    np.testing.assert_allclose(np.add(columns["cheap"], columns["dear"]), 1)
    assert succeed(*args).stdout.splitlines()[0] == "cheap,dear"
    sentence = refuse(
        "predict", folder / "price.tabr", folder / "houses.csv", "--proba"
    )
    assert "predicts numbers" in sentence


def test_evaluate_agrees_with_the_predictions(folder: Path):
    table, model = folder / "houses.csv", folder / "price.tabr"
    predicted = json.loads(succeed("predict", model, table, "--json").stdout)
    error = houses()["price"] - predicted["prediction"]
    args = ("evaluate", model, table, "--target", "price")
    found = json.loads(succeed(*args, "--json").stdout)
    assert found["rows"] == 60
    assert found["model"]["RMSE"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-5)
    assert found["model"]["MAE"] == pytest.approx(error.abs().mean(), rel=1e-5)
    assert found["constant"]["R2"] <= 0
    assert "RMSE" in succeed(*args).stdout


def test_evaluate_knows_the_target_of_fit(folder: Path):
    result = succeed("evaluate", folder / "class.tabr", folder / "houses.csv", "--json")
    found = json.loads(result.stdout)
    assert found["target"] == "class"
    assert "does not know them: 'price'" in result.stderr
    names = ["accuracy", "balanced accuracy", "log-loss", "ROC AUC"]
    assert list(found["model"]) == [*names, "average precision"]
    assert found["constant"]["ROC AUC"] == 0.5


def test_evaluate_refuses_classes_that_fit_did_not_see(folder: Path, tmp_path: Path):
    houses().assign(**{"class": "new"}).to_csv(tmp_path / "t.csv", index=False)
    args = ("evaluate", folder / "class.tabr", tmp_path / "t.csv", "--target", "class")
    assert "'new'" in refuse(*args)


def test_a_score_without_meaning_is_null(folder: Path, tmp_path: Path):
    houses().head(1).to_csv(tmp_path / "t.csv", index=False)
    args = ("evaluate", folder / "price.tabr", tmp_path / "t.csv", "--target", "price")
    assert json.loads(succeed(*args, "--json").stdout)["model"]["R2"] is None


def test_neighbors_are_training_rows_with_their_labels(folder: Path):
    args = ("neighbors", folder / "price.tabr", folder / "houses.csv", "--rows", "5,0")
    rows = json.loads(succeed(*args, "-m", 3, "--json").stdout)["rows"]
    table = houses()
    assert [row["row"] for row in rows] == [5, 0]
    for row in rows:
        weights = [n["weight"] for n in row["neighbors"]]
        assert len(weights) == 3
        assert weights == sorted(weights, reverse=True)
        for n in row["neighbors"]:
            assert n["label"] == table["price"][n["id"]]
            assert (
                n["columns"] == table.loc[n["id"], ["area", "town", "garden"]].to_dict()
            )


def test_a_class_has_its_probability(folder: Path):
    table, model = folder / "houses.csv", folder / "class.tabr"
    proba = json.loads(succeed("predict", model, table, "--proba", "--json").stdout)
    for command in ("neighbors", "explain"):
        args = (command, model, table, "--rows", "4")
        (row,) = json.loads(succeed(*args, "--json").stdout)["rows"]
        likeliest = proba["probabilities"][row["prediction"]][4]
        assert row["probability"] == pytest.approx(likeliest, rel=1e-4)
        assert f"prediction {row['prediction']} ({percent(likeliest)})" in (
            succeed(*args).stdout
        )


def test_neighbors_fit_80_columns(folder: Path):
    args = ("neighbors", folder / "class.tabr", folder / "houses.csv", "--rows", "1")
    lines = succeed(*args).stdout.splitlines()
    assert lines[0].startswith("row 1: prediction ")
    assert lines[1].split()[:3] == ["weight", "distance", "label"]
    assert len(lines) == 3 + 4  # a title, a header, the row, its context of 4
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("rows", ["60", "-1", "x", ""])
def test_rows_outside_the_table_are_refused(rows: str, folder: Path):
    table = folder / "houses.csv"
    assert "--rows" in refuse("neighbors", folder / "price.tabr", table, "--rows", rows)


# --- mistakes -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--target", "prise"], "no column 'prise'; the closest are 'price'"),
        (["--target", "price", "--ignore", "twon"], "the closest are 'town'"),
        (["--target", "price", "--weight", "no"], "no column 'no'"),
        (["--target", "price", "--weight", "town"], "weights must be numbers"),
        (["--target", "price", "--kind", "area"], "COL=KIND"),
        (["--target", "price", "--kind", "area=fast"], "a kind must be one of"),
        (["--target", "price", "--param", "widht=8"], "the closest are 'width'"),
        (["--target", "price", "--param", "width=wide"], "must be of type int"),
        (["--target", "price", "--param", "width=-1"], "`width > 0` must hold"),
        (["--target", "price", "--param", "record_context=no"], "be of type bool"),
        (["--target", "price", "--param", "n_members=2"], "use --members"),
        (["--target", "price", "--scoring", "r3"], "the closest are 'r2'"),
        (["--target", "price", "--scoring", "roc-auc"], "a score of numbers must be"),
        (["--target", "price", "--param", "scoring=r2"], "own: use --scoring"),
        (["--target", "price", "--device", "abacus"], "device must be one"),
        (["--target", "price", "--members", "0"], "--members"),
        (["--target", "town", "--task", "regression"], "must be numeric"),
        (["--target", "price", "--task", "classification"], "continuous"),
        ([], "Missing option '--target'"),
    ],
)
def test_a_mistake_in_fit_is_one_sentence(
    args: list[str], words: str, folder: Path, tmp_path: Path
):
    model = tmp_path / "m.tabr"
    sentence = refuse("fit", folder / "houses.csv", "-o", model, *args)
    assert words in sentence
    assert not model.exists()


def test_an_output_that_cannot_be_written_is_refused_before_fitting(folder: Path):
    args = ("fit", folder / "houses.csv", "--target", "price", "-o")
    assert "cannot be written" in refuse(*args, folder / "none" / "m.tabr")
    assert "cannot be written" in refuse(*args, folder)


def test_other_mistakes_are_one_sentence(folder: Path, tmp_path: Path):
    table, model = folder / "houses.csv", folder / "price.tabr"
    assert "does not exist" in refuse("predict", model, folder / "none.csv")
    assert "does not exist" in refuse("predict", folder / "none.tabr", table)
    assert "houses.csv" in refuse("predict", table, table)
    assert "No such command" in refuse("prdict")
    (tmp_path / "t.csv").write_text("area,garden\n1,True\n")
    assert "'town'" in refuse("predict", model, tmp_path / "t.csv")
    (tmp_path / "u.csv").write_text("other\n1\n")
    assert "'town'" in refuse("predict", model, tmp_path / "u.csv")


def test_nested_cells_are_one_sentence(tmp_path: Path):
    table = tmp_path / "t.parquet"
    houses().assign(nested=[[1, 2]] * 60).to_parquet(table)
    args = ("--target", "price", "-o", tmp_path / "m.tabr", *TINY)
    assert "'nested'" in refuse("fit", table, *args)


def test_a_bug_shows_its_traceback_only_with_debug(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(*args: object) -> None:
        np.zeros(3).reshape(2, 2)

    monkeypatch.setattr("tabr.estimators.load_model", broken)
    args = ("predict", folder / "price.tabr", folder / "houses.csv")
    short, long = run(*args), run(*args, "--debug")
    assert short.exit_code == long.exit_code == 1
    assert "Traceback" not in short.stderr
    assert "rerun with --debug" in short.stderr
    assert "Traceback" in long.stderr


def test_running_out_of_memory_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def hungry(*args: object, **more: object) -> None:
        raise MemoryError

    monkeypatch.setattr("tabr.estimators.load_model", hungry)
    args = ("predict", folder / "price.tabr", folder / "houses.csv")
    assert "out of memory" in refuse(*args)


# --- the program --------------------------------------------------------------


def program(*args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tabr", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )


def test_program_shows_help_and_version():
    assert program("--version").stdout.startswith("tabr ")
    help_text = program().stdout
    commands = [
        line.split()[0] for line in help_text.split("Commands:")[1].splitlines() if line
    ]
    assert commands[:4] == ["fit", "predict", "evaluate", "neighbors"]
    assert commands[-1] == "demo"


def test_program_keeps_stdout_for_results(folder: Path):
    done = program("predict", folder / "class.tabr", folder / "houses.csv", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["prediction"]) == 60
    failed = program("predict", folder / "class.tabr", folder / "none.csv")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("tabr: ")


def test_command_line_itself_imports_nothing_slow():
    code = (
        "import sys, types; sys.modules['tabr'] = p = types.ModuleType('tabr');"
        f"p.__path__ = [{str(Path(cli.__file__).parents[1])!r}]; p.__version__ = '0';"
        "import tabr.cli; print(*{'torch', 'pandas', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")

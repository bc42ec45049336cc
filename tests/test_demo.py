import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn import metrics

from tabr import cli, demo
from tabr.estimators import TabRClassifier

TINY = {"width": 8, "context_size": 8, "max_epochs": 2}


@pytest.fixture(scope="module")
def diabetes() -> demo.Result:
    return demo.run("diabetes", 2, **TINY)


@pytest.fixture(scope="module")
def digits() -> demo.Result:
    return demo.run("digits", 1, **TINY)


def test_command_line_names_every_table():
    assert tuple(demo.TABLES) == cli.DEMO_TABLES


@pytest.mark.parametrize("name", demo.TABLES)
def test_tables_have_readable_columns_and_labels(name: str):
    frame, y = demo.TABLES[name].load()
    assert len(frame) == len(y)
    assert all(column.replace("/", "_").isidentifier() for column in frame.columns)
    assert str(y.name).isidentifier()
    assert demo.TABLES[name].about.split()[0].replace(",", "") == str(len(frame))


def test_split_is_the_same_each_time_and_parts_share_no_row():
    train, test, y_train, y_test = demo.split("wine")
    assert train.equals(demo.split("wine")[0])
    assert not set(train.index) & set(test.index)
    assert len(test) == len(y_test) == 36
    assert set(y_train) == set(y_test)


def test_scores_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    y, values = rng.normal(size=20), rng.normal(size=20)
    found = demo.value_scores(y, values)
    assert found["RMSE"] == pytest.approx(metrics.root_mean_squared_error(y, values))
    assert found["MAE"] == pytest.approx(metrics.mean_absolute_error(y, values))
    assert found["R2"] == pytest.approx(metrics.r2_score(y, values))
    codes, proba = np.arange(20) % 3 // 2, rng.dirichlet([1, 1], 20)
    found, likeliest = demo.class_scores(codes, proba), proba.argmax(1)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(codes, likeliest))
    balanced = metrics.balanced_accuracy_score(codes, likeliest)
    assert found["balanced accuracy"] == pytest.approx(balanced)
    assert found["log-loss"] == pytest.approx(metrics.log_loss(codes, proba))
    assert found["ROC AUC"] == pytest.approx(metrics.roc_auc_score(codes, proba[:, 1]))


def test_demo_scores_tabr_beside_both_baselines(diabetes: demo.Result):
    names = list(diabetes.scores)
    assert names[:2] == ["TabR, 2 members", "gradient boosting"]
    assert names[2].startswith("nearest neighbours, k = ")
    assert all(list(s) == ["RMSE", "R2", "seconds"] for s in diabetes.scores.values())
    assert (diabetes.n_train, diabetes.n_test) == (353, 89)


def test_cases_are_the_first_test_rows_and_come_from_training_rows(
    diabetes: demo.Result,
):
    train, test, y_train, y_test = demo.split("diabetes")
    assert [case.row for case in diabetes.cases] == test.index[:3].tolist()
    assert [case.truth for case in diabetes.cases] == y_test.iloc[:3].tolist()
    for case in diabetes.cases:
        assert len(case.neighbors) == 5
        for n in case.neighbors:  # an id is a position in the table of fit
            assert n.columns == train.iloc[n.id].to_dict()
            assert n.label == y_train.iloc[n.id]


def test_text_fits_80_columns(diabetes: demo.Result, digits: demo.Result):
    for result in (diabetes, digits):
        text = demo.render(result, 80)
        assert max(map(len, text.splitlines())) <= 80
        assert "tabr fit your.csv --target COL -o model.tabr" in text


def test_tables_are_aligned(diabetes: demo.Result):
    lines = demo.case_lines(diabetes.cases, diabetes.ranked, 80)
    ends = {len(line) for line in lines if line.startswith("  ")}
    assert len(ends) == 1
    assert "progression" not in lines[2]


def test_narrow_terminals_get_fewer_columns(diabetes: demo.Result):
    lines = demo.case_lines(diabetes.cases, diabetes.ranked, 40)
    assert max(map(len, lines)) <= 40


def test_digits_are_drawn(digits: demo.Result):
    lines = demo.render(digits, 80).splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("row "))
    picture = lines[first + 1 : first + 9]
    assert set("".join(picture)) <= set(demo.SHADES)
    assert lines[first + 9].startswith("this row     weight ")
    assert lines[first + 10].count("label") == 5


def test_ink_becomes_darker_characters():
    blank, full = ({str(k): ink for k in range(64)} for ink in (0, 16))
    assert demo._picture(blank) == [" " * 11] * 8
    assert demo._picture(full) == ["█" * 11] * 8


def test_columns_that_differ_come_first():
    rng = np.random.default_rng(0)
    # Labels follow `near`, whose neighbours are close; `far` is noise.
    frame = pd.DataFrame({"near": rng.normal(size=90), "far": rng.choice([*"abc"], 90)})
    y = frame["near"] > 0
    model = TabRClassifier(width=8, context_size=4, max_epochs=2, random_state=0)
    model.fit(frame, y)
    cases = demo.make_cases(model, frame, [0, 1], 3)
    exchanged = [
        dataclasses.replace(case, columns={**case.columns, "near": 99.0})
        for case in cases
    ]
    assert demo.telling_columns(model, exchanged) == ["near", "far"]
    alike = [
        dataclasses.replace(
            case,
            neighbors=[
                dataclasses.replace(
                    n, columns={**n.columns, "near": case.columns["near"]}
                )
                for n in case.neighbors
            ],
        )
        for case in cases
    ]
    other = [
        dataclasses.replace(case, columns={**case.columns, "far": "d"})
        for case in alike
    ]
    assert demo.telling_columns(model, other) == ["far", "near"]


def test_values_are_written_shortly():
    written = [demo.cell(v) for v in (1.0, 0.123456, 123456.7, float("nan"), None, "x")]
    assert written == ["1", "0.1235", "123457", "-", "-", "x"]
    assert demo.cell(pd.Timestamp("2021-05-05")) == "2021-05-05"
    assert len(demo.cell("long" * 9)) == 18


def test_time_limit_is_kept_and_told():
    result = demo.run("wine", 1, seconds=1e-6, width=8, context_size=8)
    assert next(iter(result.scores)) == "TabR (out of time)"


def test_command_prints_text_or_one_json_object(
    diabetes: demo.Result, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(demo, "run", lambda *args, **more: diabetes)
    text = CliRunner().invoke(cli.main, ["demo"]).stdout
    assert text == demo.render(diabetes, 80) + "\n"
    found = json.loads(CliRunner().invoke(cli.main, ["demo", "--json"]).stdout)
    assert found["scores"] == diabetes.scores
    assert [case["row"] for case in found["cases"]] == [c.row for c in diabetes.cases]


def test_text_becomes_plain_where_blocks_cannot_be_shown(
    diabetes: demo.Result, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(demo, "run", lambda *args, **more: diabetes)
    result = CliRunner(charset="ascii").invoke(cli.main, ["demo"])
    assert result.exit_code == 0, result.stderr
    assert "#" in result.stdout

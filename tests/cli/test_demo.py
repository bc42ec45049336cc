import json

import pytest
from click.testing import CliRunner

from tabr import cli
from tabr.cli import demo, neighbor_view

TINY = {"width": 8, "context_size": 8, "max_epochs": 2}


@pytest.fixture(scope="module")
def diabetes() -> demo.Comparison:
    return demo.run("diabetes", 2, **TINY)


@pytest.fixture(scope="module")
def digits() -> demo.Comparison:
    return demo.run("digits", 1, **TINY)


@pytest.mark.parametrize("name", demo.TABLES)
def test_tables_have_readable_columns_and_labels(name: str):
    frame, y = demo.load(name)
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


def test_demo_scores_tabr_beside_both_baselines(diabetes: demo.Comparison):
    names = list(diabetes.scores)
    assert names[:2] == ["TabR, 2 members", "gradient boosting"]
    assert names[2].startswith("nearest neighbours, k = ")
    assert all(list(s) == ["RMSE", "R2", "seconds"] for s in diabetes.scores.values())
    assert (diabetes.n_train, diabetes.n_test) == (353, 89)


def test_cases_are_the_first_test_rows_and_come_from_training_rows(
    diabetes: demo.Comparison,
):
    train, test, y_train, y_test = demo.split("diabetes")
    assert [case.row for case in diabetes.cases] == test.index[:3].tolist()
    assert [case.truth for case in diabetes.cases] == y_test.iloc[:3].tolist()
    for case in diabetes.cases:
        assert len(case.neighbors) == 5
        for n in case.neighbors:  # an id is a position in the table of fit
            assert n.columns == train.iloc[n.id].to_dict()
            assert n.label == y_train.iloc[n.id]


def test_text_fits_80_columns(diabetes: demo.Comparison, digits: demo.Comparison):
    for result in (diabetes, digits):
        text = demo.render(result, 80)
        assert max(map(len, text.splitlines())) <= 80
        assert "tabr fit your.csv --target COL -o model.tabr" in text


def test_tables_are_aligned(diabetes: demo.Comparison):
    lines = neighbor_view.case_lines(diabetes.cases, diabetes.columns, 80)
    ends = {len(line) for line in lines if line.startswith("  ")}
    assert len(ends) == 1
    assert "progression" not in lines[2]


def test_narrow_terminals_get_fewer_columns(diabetes: demo.Comparison):
    lines = neighbor_view.case_lines(diabetes.cases, diabetes.columns, 40)
    assert max(map(len, lines)) <= 40


def test_digits_are_drawn(digits: demo.Comparison):
    lines = demo.render(digits, 80).splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("row "))
    picture = lines[first + 1 : first + 9]
    assert set("".join(picture)) <= set(neighbor_view.SHADES)
    assert lines[first + 9].startswith("this row     weight ")
    assert lines[first + 10].count("label") == 5


def test_time_limit_is_kept_and_told():
    result = demo.run("wine", 1, seconds=1e-6, width=8, context_size=8)
    assert next(iter(result.scores)) == "TabR (out of time)"


def test_command_prints_text_or_one_json_object(
    diabetes: demo.Comparison, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(demo, "run", lambda *args, **more: diabetes)
    text = CliRunner().invoke(cli.main, ["demo"]).stdout
    assert text == demo.render(diabetes, 80) + "\n"
    found = json.loads(CliRunner().invoke(cli.main, ["demo", "--json"]).stdout)
    assert found["scores"] == diabetes.scores
    assert [case["row"] for case in found["cases"]] == [c.row for c in diabetes.cases]


def test_text_becomes_plain_where_blocks_cannot_be_shown(
    diabetes: demo.Comparison, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(demo, "run", lambda *args, **more: diabetes)
    result = CliRunner(charset="ascii").invoke(cli.main, ["demo"])
    assert result.exit_code == 0, result.stderr
    assert "#" in result.stdout

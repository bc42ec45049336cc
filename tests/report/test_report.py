"""The page about a model: what it says, what it leaves out, and that it is one file."""

from __future__ import annotations

import copy
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tabr import NotSameGroup, PastOnly, TabRClassifier, TabRRegressor, Where
from tabr.metrics import class_scores, value_scores
from tabr.report import evaluation as evaluation_module
from tabr.report import report, save_report
from tabr.report.attention import measure_attention
from tabr.report.baselines import score_methods
from tabr.report.columns import compare_columns
from tabr.report.evaluation import evaluate, share_from_retrieval
from tabr.report.examples import choose_rows, make_examples
from tabr.report.page import rule_text
from tabr.report.reliability import (
    measure_confusion,
    measure_coverage,
    measure_reliability,
)
from tabr.text import percent, score
from tests.cli.test_cli import houses, refuse, succeed

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

SMALL: dict[str, Any] = {"width": 8, "context_size": 8, "random_state": 0}
EVIL = "<script>alert('$a$')</script>"


def towns(n: int = 120, seed: int = 0) -> pd.DataFrame:
    """Rows on a map with gaps, a category, a date and a name that attacks."""
    rng = np.random.default_rng(seed)
    area = rng.uniform(30, 200, n)
    frame = pd.DataFrame(
        {
            "area": np.where(rng.random(n) < 0.1, np.nan, area),
            "Latitude": rng.uniform(40, 42, n),
            "Longitude": rng.uniform(-75, -72, n),
            EVIL: rng.normal(size=n),
            "town": rng.choice(["Aix", "Bonn", "Cork"], n),
            "sold": pd.Timestamp("2024-01-01")
            + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
            "seller": rng.choice(list("abcdefgh"), n),
        }
    )
    frame["price"] = area * 3 + rng.normal(0, 5, n)
    frame["class"] = np.where(frame["price"] > 350, "dear", "<b>cheap</b>")
    return frame


def features(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns=["price", "class"])


@pytest.fixture(scope="module")
def regressor() -> TabRRegressor:
    rows = towns()
    model = TabRRegressor(n_members=2, max_epochs=3, record_context=True, **SMALL)
    return model.fit(features(rows), rows["price"])


@pytest.fixture(scope="module")
def classifier() -> TabRClassifier:
    rows = towns()
    plain = features(rows).drop(columns=["Latitude", "Longitude"])
    return TabRClassifier(n_members=1, max_epochs=3, **SMALL).fit(plain, rows["class"])


@pytest.fixture(scope="module")
def new() -> pd.DataFrame:
    return towns(60, seed=1)


@pytest.fixture(scope="module")
def number_page(regressor: TabRRegressor, new: pd.DataFrame) -> str:
    return report(regressor, features(new), new["price"])


@pytest.fixture(scope="module")
def class_page(classifier: TabRClassifier, new: pd.DataFrame) -> str:
    return report(classifier, features(new), new["class"], title="Dear & <cheap>")


@pytest.fixture(params=["number_page", "class_page"])
def page(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="(\w+)">', page)


def text_of(page: str) -> str:
    """What a reader sees, on one line."""
    tree = ElementTree.fromstring(page.partition("<!DOCTYPE html>")[2])
    return " ".join(" ".join(tree.find("body").itertext()).split())  # type: ignore[union-attr]


# --- the file -----------------------------------------------------------------


class Resources(HTMLParser):
    """Collects all that a browser would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "iframe", "img", "object", "embed", "base"):
            self.found.append(tag)
        for name, value in attrs:
            outside = name in ("src", "href", "xlink:href", "action", "data")
            if (outside and not str(value).startswith("#")) or name.startswith("on"):
                self.found.append(f"{name}={value}")
            if name == "id":
                self.ids.append(str(value))


def test_a_page_fetches_and_runs_nothing(page: str) -> None:
    parser = Resources()
    parser.feed(page)
    assert parser.found == []
    assert "http://" not in page and "https://" not in page and "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_a_page_is_well_formed_and_its_ids_differ(page: str) -> None:
    assert page.lstrip().startswith("<!DOCTYPE html>")
    text_of(page)  # also parses as XML: every tag is closed
    parser = Resources()
    parser.feed(page)
    assert len(parser.ids) == len(set(parser.ids))
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert links <= set(parser.ids)


def test_users_text_is_text(number_page: str, class_page: str) -> None:
    for page in (number_page, class_page):
        assert "<script" not in page and "<b>cheap" not in page
        assert "&lt;script&gt;" in page
    assert "&lt;b&gt;cheap&lt;/b&gt;" in class_page
    assert "<h1>Dear &amp; &lt;cheap&gt;</h1>" in class_page


def test_broken_texts_do_not_break_the_page(new: pd.DataFrame) -> None:
    rows = features(new).rename(columns={"town": "to\x00wn\x1b $x$ $"})
    fit = TabRRegressor(max_epochs=1, **SMALL).fit(rows, new["price"])
    labels = new["price"].rename("pri$ce$\x07")
    text = text_of(report(fit, rows, labels, title="half a \ud800 pair"))
    assert "town $x$ $" in text and "true pri$ce$" in text
    assert "half a ? pair" in text


def test_a_page_is_written_whole_or_not_at_all(
    regressor: TabRRegressor, new: pd.DataFrame, tmp_path: Path
) -> None:
    place = tmp_path / "page.html"
    place.write_text("old")
    with pytest.raises(ValueError):
        save_report(regressor, features(new), new["price"].head(3), place)
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    assert place.read_text() == "old"
    model = tmp_path / "m.tabr"
    regressor.save(model)
    save_report(regressor, features(new), new["price"], place, model_file=model)
    assert re.search(r"File [\d.]+ [kM]B", text_of(place.read_text("utf-8")))


def test_other_models_are_refused(new: pd.DataFrame) -> None:
    from sklearn.linear_model import Ridge

    with pytest.raises(TypeError, match="however Ridge came"):
        report(Ridge(), features(new), new["price"])  # type: ignore[arg-type]


# --- the sections ---------------------------------------------------------------


def test_a_section_is_there_when_its_data_are(
    number_page: str, class_page: str
) -> None:
    common = ["data", "training", "scores", "trust", "attention", "examples"]
    assert sections(number_page) == [*common, "map"]
    assert sections(class_page) == common
    assert "Delta-context" in number_page and "Delta-context" not in class_page
    assert "True and predicted classes" in class_page
    assert "True and predicted classes" not in number_page


def test_the_head_tells_the_model_and_three_figures(
    regressor: TabRRegressor, new: pd.DataFrame, number_page: str
) -> None:
    text = text_of(number_page)
    found = evaluate(regressor, features(new), new["price"])
    scores = value_scores(new["price"].to_numpy(), regressor.predict(features(new)))
    assert f"{score(scores['RMSE'])} RMSE of the model" in text
    trees = score_methods(found)[-1]
    assert f"{score(trees.scores['RMSE'])} RMSE of boosted trees" in text
    share = regressor.explain(features(new)).share.mean()
    assert f"{percent(float(share))} of predictions from retrieval" in text
    assert "Networks 2" in text and "price, a number" in text
    assert "File" not in text  # nobody named one


def test_scores_are_the_estimators_own(
    classifier: TabRClassifier, new: pd.DataFrame, class_page: str
) -> None:
    codes = (new["class"] == "dear").to_numpy(int)
    scores = class_scores(codes, classifier.predict_proba(features(new)))
    for value in scores.values():
        assert f"{score(value)}" in text_of(class_page)
    found = score_methods(evaluate(classifier, features(new), new["class"]))
    assert found[0].scores == scores
    names = ["TabR", "constant", "10 nearest neighbours", "boosted trees"]
    assert [method.name for method in found] == names
    for method in found:
        assert np.isfinite(list(method.scores.values())).all()


def test_coverage_is_that_of_the_estimators(
    regressor: TabRRegressor, classifier: TabRClassifier, new: pd.DataFrame
) -> None:
    rows = features(new)
    low, high = regressor.predict_interval(rows, 0.9).T
    inside = (new["price"] >= low) & (new["price"] <= high)
    found = measure_coverage(evaluate(regressor, rows, new["price"]))
    assert found is not None and found.at == pytest.approx(inside.mean())
    assert found.size == pytest.approx(np.median(high - low))
    chosen = classifier.predict_set(rows, 0.9)
    codes = (new["class"] == "dear").to_numpy(int)
    found = measure_coverage(evaluate(classifier, rows, new["class"]))
    assert found is not None and found.size == pytest.approx(chosen.sum(1).mean())
    assert found.at == pytest.approx(chosen[np.arange(len(codes)), codes].mean())


def test_too_few_held_out_rows_give_no_intervals(new: pd.DataFrame) -> None:
    rows = features(new)
    few = rows.head(5), new["price"].head(5)
    model = TabRRegressor(max_epochs=1, **SMALL)
    model.fit(rows, new["price"], eval_set=few)
    assert measure_coverage(evaluate(model, rows, new["price"])) is None
    assert "No intervals: too few rows" in text_of(report(model, rows, new["price"]))


def test_confusion_counts_every_row_once(
    classifier: TabRClassifier, new: pd.DataFrame
) -> None:
    found = evaluate(classifier, features(new), new["class"])
    counts = np.array(measure_confusion(found).counts)
    assert counts.sum() == len(new)
    right = (classifier.predict(features(new)) == new["class"]).sum()
    assert np.trace(counts) == right
    reliable = measure_reliability(found)
    assert reliable.counts.sum() == len(new)
    assert 0 <= reliable.gap <= 1


def test_many_classes_share_a_line(new: pd.DataFrame) -> None:
    rows = towns(400, seed=2)
    labels = pd.Series(np.arange(400) % 20).astype(str)
    model = TabRClassifier(max_epochs=1, **SMALL).fit(features(rows), labels)
    found = measure_confusion(evaluate(model, features(rows), labels))
    assert len(found.names) == 12 and found.names[-1] == "9 others"
    assert np.sum(found.counts) == 400


def test_attention_is_that_of_the_neighbours(
    regressor: TabRRegressor, new: pd.DataFrame, number_page: str
) -> None:
    evaluation = evaluate(regressor, features(new), new["price"])
    found = measure_attention(evaluation)
    table = regressor.neighbors(features(new))
    row = table.weights[7] / table.weights[7].sum()
    slow = np.exp(-sum(w * np.log(w) for w in row if w > 0))
    assert found.effective[7] == pytest.approx(slow)
    assert (found.effective >= 1 - 1e-9).all() and (found.effective <= 8 + 1e-9).all()
    used = set(table.ids[table.ids >= 0].tolist())
    assert found.n_used == len(used)
    assert found.n_never == len(regressor.candidates_) - len(used)
    assert found.most_used[0].id in used
    far = regressor.typicality(features(new)) < 0.01
    assert found.n_far == far.sum()
    assert found.entropy <= found.uniform + 1e-9
    text = text_of(number_page)
    assert f"{found.n_never} in none of these rows" in text
    assert f"{found.n_far} of 60 have a typicality below 0.01" in text  # 200 held out


def test_few_rows_that_were_held_out_tell_nothing_of_far_ones(class_page: str) -> None:
    text = "not known: to tell, at least 100 rows must have been held out"
    assert text in text_of(class_page)


def test_rows_far_from_all_candidates_are_listed(regressor: TabRRegressor) -> None:
    model = copy.copy(regressor)
    seen, far = towns(150, seed=7), towns(40, seed=8)
    model.calibrate(features(seen), seen["price"])
    far.loc[3, ["area", "Latitude", "Longitude", EVIL]] = [1e4, 80.0, 80.0, 1e4]
    found = measure_attention(evaluate(model, features(far), far["price"]))
    assert 3 in [row.row for row in found.far]
    assert found.n_far == (model.typicality(features(far)) < 0.01).sum()
    text = text_of(report(model, features(far), far["price"]))
    assert f"{found.n_far} of 40 have a typicality below 0.01" in text
    assert "The farthest rows" in text


def test_rows_without_a_neighbour_are_counted() -> None:
    rows = towns()
    rule = PastOnly("sold", gap="1D") & NotSameGroup("seller")
    model = TabRRegressor(candidates=rule, max_epochs=1, ignore=["seller"], **SMALL)
    model.fit(features(rows), rows["price"])
    early = towns(30, seed=3)
    early.loc[:4, "sold"] = pd.Timestamp("2023-01-01")
    text = text_of(report(model, features(early), early["price"]))
    assert "Rows without a neighbour 5: the rule allows them none" in text
    assert "must come before the row in 'sold', with a gap of 1D, and differ" in text
    assert "know nothing of the rule" in text


def test_examples_are_telling_rows_with_their_neighbours(
    regressor: TabRRegressor, new: pd.DataFrame
) -> None:
    found = evaluate(regressor, features(new), new["price"])
    errors = np.abs(new["price"] - regressor.predict(features(new))).to_numpy()
    rows = choose_rows(found)
    assert rows["Best"] == errors.argmin() and rows["Worst"] == errors.argmax()
    assert len(set(rows.values())) == len(rows)
    for example in make_examples(found):
        told = regressor.explain(features(new).iloc[[example.row]])
        assert [x.id for x in example.lines] == told.table.ids[0, :6].tolist()
        assert example.lines[0].weight == percent(float(told.table.weights[0, 0]))
        assert float(example.prediction) == pytest.approx(told.predictions[0], abs=1)
        for line in example.lines:
            row = features(new).iloc[example.row]
            other = regressor.candidates_.look_up([line.id]).iloc[0]
            apart = line.cells[example.columns.index("town")].apart
            assert (apart == 2) == (row["town"] != other["town"])


def test_a_shift_of_a_column_is_seen_and_chance_is_not(
    regressor: TabRRegressor,
) -> None:
    same, moved = towns(400, seed=5), towns(400, seed=6)
    moved["area"] += 150
    moved["town"] = "Cork"
    lines = [
        {
            line.name: line
            for line in compare_columns(evaluate(regressor, features(t), t["price"]))
        }
        for t in (same, moved)
    ]
    assert list(lines[0]) == list(regressor.preprocessor_.kinds_)
    assert not any(line.is_shifted for line in lines[0].values())
    assert [name for name, x in lines[1].items() if x.is_shifted] == ["area", "town"]
    area = lines[1]["area"]
    assert area.missing[1] == pytest.approx(moved["area"].isna().mean())
    assert sum(area.candidates) == pytest.approx(1)
    assert sum(area.rows) == pytest.approx(1)


def test_rows_without_a_place_are_left_off_the_map() -> None:
    rows, new = towns(80), towns(30, seed=4)
    model = TabRRegressor(max_epochs=1, **SMALL).fit(features(rows), rows["price"])
    new.loc[1:, ["Latitude", "Longitude"]] = np.nan
    new.loc[2, ["Latitude", "Longitude"]] = 41.0, -73.0
    page = report(model, features(new), new["price"])
    assert "map" in sections(page) and "NaN" not in page and "nan" not in page


def test_rules_are_told_in_words() -> None:
    rule = (PastOnly("t", window=30) | ~NotSameGroup("g")) & Where(min, ["km", "h"])
    assert rule_text(rule) == (
        "A neighbour must either come before the row in 't', at most 30.0 back, or not"
        " differ from the row in 'g', and be allowed by a function of 'km', 'h'."
    )


def test_a_nameless_fit_and_one_row_make_a_page() -> None:
    rows = towns()
    values = rows[["Latitude", "Longitude", "price"]].to_numpy()
    model = TabRRegressor(max_epochs=1, **SMALL).fit(values[:, :2], values[:, 2])
    text = text_of(report(model, values[:1, :2], values[:1, 2]))
    assert "x0" in text and "the target, a number" in text and "Best: row 0" in text


def test_very_many_rows_are_sampled(
    regressor: TabRRegressor, new: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_module, "MOST_ROWS", 25)
    monkeypatch.setattr(evaluation_module, "EXPLAINED", 10)
    found = evaluate(regressor, features(new), new["price"])
    assert len(found) == 25 and found.n_table == 60
    assert share_from_retrieval(found)[1] == 10
    expected = regressor.predict(features(new).iloc[found.positions])
    np.testing.assert_allclose(found.prediction, expected, rtol=1e-5)
    text = text_of(report(regressor, features(new), new["price"]))
    assert "All figures are of 25 of these rows" in text


def test_an_audit_is_shown_when_asked_for(
    regressor: TabRRegressor, new: pd.DataFrame, number_page: str
) -> None:
    pytest.importorskip("tabr.audit")
    leaked = pd.concat([new, towns().head(40)], ignore_index=True)
    page = report(regressor, features(leaked), leaked["price"], audit=True)
    assert "audit" in sections(page) and "audit" not in sections(number_page)
    assert "exact copies" in text_of(page)


# --- in a browser ---------------------------------------------------------------


OVERFLOWING = """() => [...document.querySelectorAll("main *")]
  .filter(e => !e.closest(".box") && !e.closest("svg"))
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.outerHTML.slice(0, 80))"""

# Brightness of the text against that of the paper, as WCAG has it.
CONTRAST = """() => {
  const light = color => {
    const parts = color.match(/[\\d.]+/g).slice(0, 3).map(c => c / 255)
      .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const all = [...document.querySelectorAll("p, th, td, dt, dd, figcaption, a")];
  const colors = all.map(e => getComputedStyle(e).color);
  for (const e of document.querySelectorAll("figure svg text"))
    colors.push(getComputedStyle(e).fill);
  return Math.min(...colors.map(c => ratio(light(c), paper)));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_reads_well_without_a_network(
    browser: Any, page: str, width: int, scheme: str, tmp_path: Path
) -> None:
    place = tmp_path / "page.html"
    place.write_text(page, encoding="utf-8")
    viewport = {"width": width, "height": 900}
    context = browser.new_context(viewport=viewport, color_scheme=scheme, offline=True)
    tab, troubles, requests = context.new_page(), [], []
    tab.on("console", lambda message: troubles.append(message.text))
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on("requestfailed", lambda request: troubles.append(request.url))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(place.as_uri())
    tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert troubles == [] and requests == [place.as_uri()]
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate(OVERFLOWING) == []
    assert tab.evaluate(CONTRAST) >= 4.5
    pictures = tab.locator("figure svg")
    assert pictures.count() >= 5
    sizes = [pictures.nth(k).bounding_box() for k in range(pictures.count())]
    assert all(size["width"] > 200 and size["height"] > 100 for size in sizes)
    context.close()


# --- the command ----------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table and a model of its prices."""
    path = tmp_path_factory.mktemp("report")
    rows = houses().drop(columns="class")
    rows.to_csv(path / "houses.csv", index=False)
    model = TabRRegressor(max_epochs=2, **SMALL)
    model.fit(rows.drop(columns="price"), rows["price"]).save(path / "m.tabr")
    return path


def test_the_command_writes_a_page(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    args = "report", folder / "m.tabr", folder / "houses.csv", "-o", page
    result = succeed(*args)
    assert "wrote a page about 60 rows" in result.stderr
    assert "How price is predicted" in text_of(page.read_text("utf-8"))
    more = "--target", "price", "--title", "Homes", "--audit"
    told = succeed(*args, *more, "--json").stdout
    assert '"rows": 60' in told and '"target": "price"' in told
    assert "<title>Homes</title>" in page.read_text("utf-8")
    assert "audit" in sections(page.read_text("utf-8"))


def test_the_command_refuses_before_the_work(folder: Path, tmp_path: Path) -> None:
    args = "report", folder / "m.tabr", folder / "houses.csv"
    assert "Missing option '-o'" in refuse(*args)
    assert "must end in .html" in refuse(*args, "-o", tmp_path / "page.pdf")
    wrong = refuse(*args, "-o", tmp_path / "page.html", "--target", "pric")
    assert "no column 'pric'" in wrong
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("preset", "scoring", "name"),
    [
        ("default", None, "validation log-loss"),
        ("paper", None, "validation accuracy"),
        ("default", "roc_auc", "validation ROC AUC"),
        ("default", "average-precision", "validation average precision"),
    ],
)
def test_training_is_drawn_in_the_score_that_stopped_it(
    monkeypatch: pytest.MonkeyPatch, preset: str, scoring: str | None, name: str
) -> None:
    from sklearn.datasets import load_breast_cancer

    from tabr.report import charts, page
    from tabr.report.evaluation import evaluate

    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    params = {"width": 8, "context_size": 8, "max_epochs": 3, "random_state": 0}
    model = TabRClassifier(**params, preset=preset, scoring=scoring).fit(X, y)
    drawn = {}
    real = charts.training

    def watched(history: pd.DataFrame, best: Any, column: str, name: str) -> Any:
        drawn[name] = history[column]
        return real(history, best, column, name)

    monkeypatch.setattr(charts, "training", watched)
    page._training(evaluate(model, X.head(40), y.head(40)))
    assert (drawn[name] > 0).all()  # none of them is shown with its sign turned
    assert drawn[name].abs().tolist() == model.history_.score.abs().tolist()

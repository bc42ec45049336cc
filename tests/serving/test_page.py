"""The page of the service, in a browser: what a person sees and can do."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from tabr import TabRClassifier, TabRRegressor
from tests.serving.conftest import SMALL, houses

pytest.importorskip("uvicorn", reason="pip install 'tabr[serve]'")

EVIL = "<img src=x onerror=alert(1)>"
WRITE, READ = "write-token-of-the-test", "read-token-of-the-test"
PHONE = {"width": 360, "height": 740}
DOCS = Path(__file__).parents[2] / "docs"


# --- models and services --------------------------------------------------------


def homes() -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Houses on streets, which have many names and one that attacks."""
    frame, price = houses()
    rng = np.random.default_rng(1)
    streets = [EVIL, *(f"Street {k}" for k in range(30))]
    return frame.assign(street=rng.choice(streets, len(frame))), price


@pytest.fixture(scope="module")
def homes_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "homes.tabr"
    TabRRegressor(**SMALL, device="cpu").fit(*homes()).save(path)
    return path


@pytest.fixture(scope="module")
def diabetes_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sklearn.datasets import load_diabetes

    path = tmp_path_factory.mktemp("page") / "diabetes.tabr"
    table = load_diabetes(scaled=False, as_frame=True)
    model = TabRRegressor(
        n_members=1,
        width=16,
        context_size=32,
        max_epochs=4,
        random_state=0,
        device="cpu",
    )
    model.fit(table.data, table.target.rename("progression")).save(path)
    return path


class Service(NamedTuple):
    """A service that runs: where, and what it remembers."""

    url: str
    served: Any

    def frame(self, rows: list[dict[str, Any]]) -> pd.DataFrame:
        """Rows of a request as a table; the test's own reading of them."""
        candidates: pd.DataFrame = self.served.model.candidates_.frame
        table = pd.DataFrame(rows)
        table = table[[name for name in candidates.columns if name in table]]
        for name, dtype in candidates[table.columns].dtypes.items():
            if dtype.kind == "M":
                table[name] = pd.to_datetime(table[name])
            elif dtype.kind in "iuf":
                table[name] = table[name].astype(float)
        return table


@contextmanager
def serving(file: Path, folder: Path, **tokens: str) -> Iterator[Service]:
    """Run the service of a copy of a model, in a thread of its own."""
    import uvicorn

    from tabr.serving.access.tokens import Tokens
    from tabr.serving.app import create_app
    from tabr.serving.served_model import ServedModel
    from tabr.serving.service import Compacting

    path = folder / file.name
    path.write_bytes(file.read_bytes())
    served = ServedModel(path, folder / "store", "cpu")
    app = create_app(served, Tokens(**tokens), compacting=Compacting(at_end=False))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Service(f"http://127.0.0.1:{port}", served)
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def changing(homes_file: Path, tmp_path: Path) -> Iterator[Service]:
    """A service for a test that changes its memory."""
    with serving(homes_file, tmp_path) as service:
        yield service


@pytest.fixture(scope="module")
def resting(
    homes_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """The same for tests that only read."""
    with serving(homes_file, tmp_path_factory.mktemp("resting")) as service:
        yield service


@pytest.fixture(scope="module")
def diabetes(
    diabetes_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """Likewise, of patients."""
    with serving(diabetes_file, tmp_path_factory.mktemp("diabetes")) as service:
        yield service


@pytest.fixture(scope="module")
def classes(
    classifier_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """Likewise, of classes."""
    with serving(classifier_file, tmp_path_factory.mktemp("classes")) as service:
        yield service


# --- the page -------------------------------------------------------------------


class Page:
    """A tab with the page, and what was asked and answered last."""

    def __init__(self, tab: Any, url: str) -> None:
        self.tab, self.url = tab, url
        self.troubles: list[str] = []
        self.requests: list[Any] = []
        tab.set_default_timeout(10_000)
        tab.on("console", lambda message: self.troubles.append(message.text))
        tab.on("pageerror", lambda error: self.troubles.append(str(error)))
        tab.on("request", lambda request: self.requests.append(request))

    def __getitem__(self, selector: str) -> Any:
        return self.tab.locator(selector)

    def open(self) -> Page:
        self.tab.goto(self.url)
        self["#neighbors tbody tr >> nth=1"].wait_for()
        return self

    def during(self, action: Callable[[], object]) -> tuple[dict[str, Any], Any]:
        """Do something that asks the server; return the row and the explanation."""
        with self.tab.expect_response("**/v1/explain") as response:
            action()
        answer = response.value.json()["explanations"][0]
        self.tab.wait_for_function("!document.querySelector('main').ariaBusy")
        return response.value.request.post_data_json["rows"][0], answer

    def field(self, name: str) -> Any:
        return self.tab.get_by_label(name, exact=True)

    def number(self, selector: str = "#answer") -> float:
        return number(self[selector].inner_text())

    def ids(self) -> list[int]:
        lines = self["#neighbors tr[data-id]"]
        return [int(line.get_attribute("data-id")) for line in lines.all()]

    def asked(self, path: str) -> list[Any]:
        return [r for r in self.requests if r.url.endswith(path)]


def number(text: str) -> float:
    """Read a number as the page writes it."""
    return float(text.replace("\N{MINUS SIGN}", "-").replace(",", "").rstrip("%"))


Opening = Callable[..., AbstractContextManager[Page]]


@pytest.fixture
def opening(browser: Any) -> Opening:
    """Open pages that must end without a trouble, and ask no other host."""

    @contextmanager
    def opened(url: str, allowed: str = "^$", **settings: Any) -> Iterator[Page]:
        context = browser.new_context(**settings)
        page = Page(context.new_page(), url)
        yield page
        assert [t for t in page.troubles if not re.search(allowed, t)] == []
        assert all(request.url.startswith(url) for request in page.requests)
        context.close()

    return opened


# --- what is seen ---------------------------------------------------------------


def test_each_column_has_a_field_of_its_kind(
    resting: Service, opening: Opening
) -> None:
    with opening(resting.url) as page:
        page.open()
        sorts = {
            "size": "number",
            "rooms": "number",
            "built": "date",
            "street": "text",
        }
        for name, sort in sorts.items():
            assert page.field(name).get_attribute("type") == sort
        assert page.field("rooms").get_attribute("step") == "1"
        towns = page.field("town").locator("option").all_inner_texts()
        assert sorted(towns) == ["Bonn", "Köln", "Ulm", "unknown"]
        assert page["fieldset:has-text('garden') input[type=radio]"].count() == 2
        assert page["datalist option"].count() == 31
        assert page["#fields .field"].count() == 8  # nothing reads the constant
        assert "usually" in page["#fields .field:has-text('size') .hint"].inner_text()
        assert page["#title"].inner_text() == "Predict price"


def test_the_prediction_and_its_neighbours_are_those_of_the_model(
    diabetes: Service, opening: Opening
) -> None:
    model = diabetes.served.model
    with opening(diabetes.url) as page:
        row, _ = page.during(page.open)
        frame = diabetes.frame([row])
        assert page.number() == pytest.approx(model.predict(frame)[0], abs=0.51)
        ends = page["#span"].inner_text().split(" 90%")[0].split(" to ")
        interval = model.predict_interval(frame, 0.9)[0]
        assert list(map(number, ends)) == pytest.approx(interval, abs=0.51)
        explanation = model.explain(frame)
        assert page.ids() == explanation.table.ids[0, :12].tolist()
        cells = page["#neighbors tr[data-id] .amount"].all_inner_texts()
        weights, effects = cells[::2], cells[1::2]
        assert [number(w) / 100 for w in weights] == pytest.approx(
            explanation.table.weights[0, :12], abs=6e-4
        )
        largest = np.abs(explanation.effects[0, :12]).max()
        assert [number(e) for e in effects] == pytest.approx(
            explanation.effects[0, :12], abs=0.06 * largest
        )
        last = page["#neighbors tfoot"].inner_text()
        assert "20 others" in last and page["#steps .dot"].count() == 24


def test_a_changed_value_is_asked_for_once_and_moves_the_prediction(
    diabetes: Service, opening: Opening
) -> None:
    with opening(diabetes.url) as page:
        page.open()
        before = page.number()
        page.during(lambda: page.field("bmi").fill(""))
        n_asked = len(page.asked("/v1/explain"))
        row, _ = page.during(lambda: page.field("bmi").press_sequentially("38.5"))
        assert row["bmi"] == 38.5
        assert len(page.asked("/v1/explain")) - n_asked <= 2  # and not at each key
        predicted = diabetes.served.model.predict(diabetes.frame([row]))[0]
        assert page.number() == pytest.approx(predicted, abs=0.51) != before
        assert f"{page['#answer'].inner_text()}" in page["#spoken"].inner_text()
        row, _ = page.during(lambda: page.field("bmi").fill(""))
        assert row["bmi"] is None


def test_an_answer_to_an_older_question_is_dropped(
    diabetes: Service, opening: Opening
) -> None:
    with opening(diabetes.url) as page:
        page.open()
        held: list[Any] = []
        page.tab.route("**/v1/explain", lambda route: held.append(route))
        for value in ("20", "40"):
            page.field("bmi").fill(value)
            while len(held) < (1 if value == "20" else 2):
                page.tab.wait_for_timeout(20)
        newer = page.during(held[1].continue_)[0]
        assert newer["bmi"] == 40
        shown = page.number()
        page.tab.wait_for_timeout(50)
        predicted = diabetes.served.model.predict(diabetes.frame([newer]))[0]
        assert page.number() == shown == pytest.approx(predicted, abs=0.51)


def test_columns_that_differ_most_come_first_and_are_marked(
    diabetes: Service, opening: Opening
) -> None:
    with opening(diabetes.url) as page:
        page.open()
        page.during(lambda: page.field("s5").fill("2"))
        heads = page["#neighbors thead th"].all_inner_texts()
        columns = heads[5:]  # two sexes may lie as far apart as anything can
        assert "s5" in columns[:2] and len(columns) == 10
        cells = page["#neighbors tr[data-id] >> nth=0"].locator("td.value")
        first = cells.nth(columns.index("s5"))
        assert "far" in first.get_attribute("class")
        value, difference = first.inner_text().split("\n")
        assert difference.startswith("▲")
        assert number(value) - 2 == pytest.approx(number(difference[2:]), abs=0.011)


def test_a_row_unlike_all_others_is_called_a_guess(
    diabetes: Service, opening: Opening
) -> None:
    with opening(diabetes.url) as page:
        page.open()
        assert "guess" not in page["#typical"].inner_text()
        for name in ("bmi", "bp", "s1", "s2"):
            page.during(lambda name=name: page.field(name).fill("9000"))
        assert "Unlike anything the model remembers" in page["#typical"].inner_text()
        assert "never seen" in page[".field:has-text('bmi') .hint"].inner_text()


def test_classes_are_bars_with_the_set_marked(
    classes: Service, opening: Opening
) -> None:
    model = classes.served.model
    with opening(classes.url) as page:
        row, answer = page.during(page.open)
        frame = classes.frame([row])
        assert page["#answer"].inner_text() == model.predict(frame)[0]
        shares = dict(zip(model.classes_, model.predict_proba(frame)[0], strict=True))
        lines = page["#bars li"].all_inner_texts()
        bars = [line.replace("✓", " ✓ ").split() for line in lines]
        assert len(bars) == len(shares)
        marked = set(answer["set"])
        for name, *mark, share in bars:
            assert number(share) / 100 == pytest.approx(shares[name], abs=0.006)
            assert (mark == ["✓"]) == (name in marked)
        with_label = page["#neighbors tr[data-id] td:nth-child(2)"].all_inner_texts()
        labels = model.explain(frame).labels[0]
        assert with_label == labels[: len(with_label)].tolist()


def test_the_map_has_north_up_and_a_true_scale(
    resting: Service, opening: Opening
) -> None:
    with opening(resting.url) as page:
        row, answer = page.during(page.open)
        ruler = page["#map .ruler"].evaluate("e => e.getBBox().width")
        km = number(page["#map text.small"].text_content().split()[0])
        centre = page["#map .here"].evaluate(
            "e => { const box = e.getBBox();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; }"
        )
        n_seen = 0
        for neighbor in answer["neighbors"]:
            dot = page[f"#map [data-id='{neighbor['id']}']"]
            if "away" in dot.get_attribute("class"):
                continue
            n_seen += 1
            x, y = (float(dot.get_attribute(name)) for name in ("cx", "cy"))
            north = (neighbor["row"]["latitude"] - row["latitude"]) * 111.32
            east = (neighbor["row"]["longitude"] - row["longitude"]) * 111.32
            east *= np.cos(np.radians(row["latitude"]))
            place = (x - centre[0]) * km / ruler, (centre[1] - y) * km / ruler
            assert place == pytest.approx((east, north), abs=0.01 * km)
        assert n_seen >= 6


# --- what can be done -----------------------------------------------------------


def test_an_example_fills_the_form_and_finds_itself(
    resting: Service, opening: Opening
) -> None:
    with opening(resting.url) as page:
        page.open()
        select = page["#example"]
        value = select.locator("optgroup option >> nth=3").get_attribute("value")
        row, _ = page.during(lambda: select.select_option(value))
        candidate = resting.served.model.candidates_.look_up([int(value)]).iloc[0]
        assert row["town"] == candidate["town"] and row["garden"] == candidate["garden"]
        assert pd.Timestamp(row["built"]) == candidate["built"]
        assert page[".badge"].inner_text() == "the same"
        same = page.tab.locator("tr", has=page[".badge"]).get_attribute("data-id")
        assert same == value and "finds itself" in page["#example-note"].inner_text()
        page.during(lambda: page.field("rooms").press("ArrowUp"))
        assert page[".badge"].count() == 0
        assert select.evaluate("e => e.value") == "own"


def test_an_added_row_becomes_a_neighbour_and_can_be_taken_back(
    changing: Service, opening: Opening
) -> None:
    served = changing.served
    n, new = len(served.model.candidates_), served.model.candidates_.next_id
    with opening(changing.url) as page:
        page.open()
        before = page.number()
        page["#label-field input"].fill("99000")
        page.during(lambda: page["#add-button"].click())
        page["#done >> text=Remembered"].wait_for()
        assert page.ids()[0] == new and page[".badge"].inner_text() == "added"
        assert len(served.model.candidates_) == n + 1
        assert served.model.candidates_.y_of(np.array([new])).tolist() == [99000]
        assert f"{n + 1} remembered" in page["#about"].inner_text()
        assert page.number() != before
        page.during(lambda: page["#undo"].click())
        page["#done >> text=forgotten again"].wait_for()
        assert new not in page.ids() and page.number() == before
        assert len(served.model.candidates_) == n


def test_whole_numbers_that_no_float_holds_stay_whole(
    tmp_path: Path, opening: Opening
) -> None:
    frame, price = houses()
    frame["account"] = np.random.default_rng(0).integers(2**60, 2**61, len(frame))
    classes = np.where(price > price.median(), 2**60 + 1, 2**60)
    file = tmp_path / "accounts.tabr"
    TabRClassifier(**SMALL, device="cpu").fit(frame, classes).save(file)
    folder = tmp_path / "service"
    folder.mkdir()
    with serving(file, folder) as service, opening(service.url) as page:
        page.open()
        page.during(lambda: page.field("account").fill(str(2**60 + 12345)))
        page["#label-field select"].select_option(str(2**60 + 1))
        page.during(lambda: page["#add-button"].click())
        page["#done >> text=Remembered"].wait_for()
        candidates = service.served.model.candidates_
        assert candidates.frame["account"].iloc[-1] == 2**60 + 12345
        assert candidates.y[-1] == 2**60 + 1


def test_a_row_without_a_label_is_not_added(
    changing: Service, opening: Opening
) -> None:
    with opening(changing.url) as page:
        page.open()
        page["#add-button"].click()
        assert "label" in page["#label-field .error"].inner_text()
        assert page.asked("/v1/candidates") == []


def test_a_neighbour_is_relabelled_and_removed_through_its_menu(
    changing: Service, opening: Opening
) -> None:
    candidates = lambda: changing.served.model.candidates_  # noqa: E731
    with opening(changing.url) as page:
        page.open()
        first, second = page.ids()[:2]
        old = candidates().y_of(np.array([first]))[0]
        page[f"[aria-label='Change row {first}']"].click()
        dialog = page["#change-dialog"]
        dialog.get_by_label("Label").fill("12345")
        page.during(lambda: dialog.locator("text=Save label").click())
        page["#done >> text=12,345"].wait_for()
        assert candidates().y_of(np.array([first]))[0] == 12345
        page.during(lambda: page["#undo"].click())
        assert candidates().y_of(np.array([first]))[0] == old

        page[f"[aria-label='Change row {second}']"].click()
        dialog.locator("text=Remove this row").click()
        dialog.locator("text=Cancel").click()
        assert second in candidates().ids
        page[f"[aria-label='Change row {second}']"].click()
        dialog.locator("text=Remove this row").click()
        page.during(lambda: dialog.locator("text=Yes, remove it").click())
        page[f"#done >> text=Row {second} is forgotten"].wait_for()
        assert second not in candidates().ids and second not in page.ids()


def test_pasted_rows_are_predicted_and_the_first_fills_the_form(
    resting: Service, opening: Opening
) -> None:
    frame, price = homes()
    part = frame.head(3).assign(price=price, note="a;b").drop(columns="town")
    with opening(resting.url) as page:
        page.open()
        page["summary"].click()
        page["#csv"].fill(part.to_csv(index=False, sep=";", decimal=","))
        row, _ = page.during(lambda: page["#read-csv"].click())
        lines = page["#batch tbody tr"]
        lines.nth(2).wait_for()
        assert row["rooms"] == frame["rooms"][0] and row["town"] is None
        assert page.field("street").input_value() == frame["street"][0]
        frame = resting.frame([{**r, "town": None} for r in part.to_dict("records")])
        predicted = resting.served.model.predict(frame)
        cells = [lines.nth(k).locator("td").all_inner_texts() for k in range(3)]
        assert [number(c[0]) for c in cells] == pytest.approx(predicted, abs=0.51)
        assert [number(c[-1]) for c in cells] == price[:3].round().tolist()
        assert page["#label-field input"].input_value() == str(price[0]).removesuffix(
            ".0"
        )
        note = page["#csv-note"].inner_text()
        assert "Left empty: town" in note and "Not used: constant, note" in note
        row, _ = page.during(lambda: lines.nth(1).locator("button").click())
        assert row["rooms"] == frame["rooms"][1]
        assert page["#batch .chosen"].inner_text().startswith("Row 2")


def test_pasted_texts_stay_as_the_model_knows_them(
    resting: Service, opening: Opening
) -> None:
    columns = [
        {"name": "code", "kind": "categorical", "levels": ["01234", "NA", " x"]},
        {"name": "town", "kind": "categorical", "levels": ["Ulm"]},
    ]
    text = "code,town\n01234,Ulm\nNA,NA\n x, Ulm\n,null\n"
    script = """async ([text, columns]) => {
      const { readTable } = await import("/static/csv.js");
      return readTable(text, columns, { name: "label" }).rows;
    }"""
    with opening(resting.url) as page:
        page.open()
        rows = page.tab.evaluate(script, [text, columns])
    assert [row["code"] for row in rows] == ["01234", "NA", " x", None]
    assert [row["town"] for row in rows] == ["Ulm", None, "Ulm", None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3,4\n5,6", "must hold column names"),
        ("size,rooms", "no row under"),
        ("size,rooms\n1,2,3", "row 1 has 3"),
        ("size,rooms\nlarge,2\n3,4", "Row 1, size"),
    ],
)
def test_a_wrong_table_is_told_in_words(
    resting: Service, opening: Opening, text: str, words: str
) -> None:
    with opening(resting.url, "422") as page:
        page.open()
        page["summary"].click()
        page["#csv"].fill(text)
        page["#read-csv"].click()
        page[f"#csv-note >> text={words}"].wait_for()
        if "large" in text:
            assert "number" in page[".field:has-text('size') .error"].inner_text()


# What has the focus, and whether one sees that.
FOCUS = """() => {
  const element = document.activeElement;
  const style = getComputedStyle(
    element.matches("[type=radio]") ? element.nextSibling : element);
  const isMarked = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return [element.id || element.outerHTML, isMarked];
}"""


def test_the_keyboard_alone_suffices(changing: Service, opening: Opening) -> None:
    with opening(changing.url) as page:
        page.open()
        keyboard = page.tab.keyboard
        reached = []

        def go_to(selector: str) -> None:
            for _ in range(40):
                keyboard.press("Tab")
                reached.append(page.tab.evaluate(FOCUS))
                if page[selector].evaluate("e => e === document.activeElement"):
                    return
            raise AssertionError(f"{selector} cannot be reached")

        go_to("#example")
        page.during(lambda: keyboard.press("ArrowDown"))
        go_to("fieldset:has-text('garden') input >> nth=0")
        row, _ = page.during(lambda: keyboard.press("ArrowRight"))
        assert row["garden"] is not None
        go_to("#label-field input >> nth=0")
        keyboard.type("5000")
        page.during(lambda: keyboard.press("Enter"))
        page["#done >> text=Remembered"].wait_for()
        go_to("#undo")
        page.during(lambda: keyboard.press("Enter"))
        page["#done >> text=forgotten"].wait_for()
        go_to("#scroll")
        go_to(".more >> nth=0")
        keyboard.press("Enter")
        assert page["#change-dialog"].is_visible()
        keyboard.press("Escape")
        assert not page["#change-dialog"].is_visible()
        assert [name for name, is_marked in reached if not is_marked] == []


def test_a_token_is_asked_for_and_kept(
    homes_file: Path, tmp_path: Path, opening: Opening
) -> None:
    tokens = {"write": WRITE, "read": READ}
    with serving(homes_file, tmp_path, **tokens) as service:
        with opening(service.url, "401") as page:
            page.tab.goto(service.url)
            for token in ("wrong", READ):
                page["#token"].fill(token)
                with page.tab.expect_response("**/v1/model"):
                    page["#token"].press("Enter")
                if token == "wrong":
                    page["text=That token was not accepted"].wait_for()
            page["#neighbors tbody tr >> nth=1"].wait_for()
            assert not page["#add"].is_visible() and page[".more"].count() == 0
            assert page["text=You may read this memory"].is_visible()
            page.open()
            assert not page["#token-dialog"].is_visible()
        with opening(service.url, "401") as page:
            page.tab.goto(service.url)
            page["text=Cancel >> visible=true"].click()
            page["#banner >> text=token"].wait_for()
            page["#retry"].click()
            page["#token"].fill(WRITE)
            page["#use-token"].click()
            page["#neighbors tbody tr >> nth=1"].wait_for()
            assert page["#add"].is_visible() and page[".more"].count() > 0
            assert not page["#banner"].is_visible()


def test_the_address_carries_the_token_and_forgets_it(
    homes_file: Path, tmp_path: Path, opening: Opening
) -> None:
    with (
        serving(homes_file, tmp_path, write=WRITE) as service,
        opening(service.url, "401") as page,
    ):
        page.tab.goto(f"{service.url}/#token={WRITE}")
        page["#neighbors tbody tr >> nth=1"].wait_for()
        assert page.tab.url == f"{service.url}/" and page["#add"].is_visible()
        assert all(WRITE not in request.url for request in page.requests)
        page.tab.goto(f"{service.url}/docs")  # the same tab has it
        page["details >> nth=0"].wait_for()
        # Another run of the service has another token: its address is opened here.
        page.tab.evaluate("sessionStorage.setItem('tabr-token', 'of the run before')")
        page.tab.goto(service.url)
        page["text=That token was not accepted"].wait_for()
        page.tab.evaluate(f"location.hash = 'token={WRITE}'")
        page["#neighbors tbody tr >> nth=1"].wait_for()
        assert page.tab.url == f"{service.url}/"


def test_the_line_with_the_address_can_be_pasted_as_the_token(
    homes_file: Path, tmp_path: Path, opening: Opening
) -> None:
    with (
        serving(homes_file, tmp_path, write=WRITE) as service,
        opening(service.url, "401") as page,
    ):
        page.tab.goto(service.url)
        assert page["text=that tabr serve printed"].is_visible()
        page["#token"].fill(f"{service.url}/#token={WRITE}  120 candidates, version 1")
        page["#token"].press("Enter")
        page["#neighbors tbody tr >> nth=1"].wait_for()


def test_programmers_can_try_each_route(
    homes_file: Path, tmp_path: Path, opening: Opening
) -> None:
    with (
        serving(homes_file, tmp_path, write=WRITE) as service,
        opening(service.url, "401") as page,
    ):
        page.tab.goto(f"{service.url}/docs")
        assert page["details"].count() == 0  # not without a token
        page["#token"].fill(WRITE)
        page["text=Use it"].click()
        route = page.tab.locator("details", has=page["code >> text=/v1/predict$/"])
        route.first.click()
        with page.tab.expect_response("**/v1/predict") as response:
            route.first.get_by_text("Try it").click()
        prediction = response.value.json()["predictions"][0]["prediction"]
        shown = route.first.locator("pre[aria-live]")
        shown.filter(has_text="200").wait_for()
        assert f"{prediction}"[:8] in shown.inner_text()
        assert page["details"].count() == len(page.tab.evaluate(
            "Array.from(document.querySelectorAll('summary code'))"
        ))  # fmt: skip


def test_trouble_is_told_where_it_is(diabetes: Service, opening: Opening) -> None:
    with opening(diabetes.url, "422|ERR_FAILED|503") as page:
        page.open()
        detail = [{"loc": ["body", "rows", 0, "bmi"], "msg": "too fat", "type": "x"}]
        wrong = {"status": 422, "json": {"detail": detail}}
        page.tab.route("**/v1/explain", lambda route: route.fulfill(**wrong))
        page.field("age").fill("41")
        page[".field:has-text('bmi') .error >> text=Too fat."].wait_for()
        assert page.field("bmi").get_attribute("aria-invalid") == "true"

        page.tab.route("**/v1/explain", lambda route: route.abort())
        page.field("age").fill("42")
        page["#banner >> text=cannot be reached"].wait_for()
        assert page["#answer"].is_visible()  # what was known stays
        page.tab.unroute("**/v1/explain")
        row, _ = page.during(lambda: page["#retry"].click())
        assert row["age"] == 42 and not page["#banner"].is_visible()
        assert page[".error >> visible=true"].count() == 0


def test_what_cells_hold_never_becomes_markup(
    changing: Service, opening: Opening
) -> None:
    with opening(changing.url) as page:
        page.open()
        page.during(lambda: page.field("street").fill(EVIL))
        page["#label-field input"].fill("1")
        page.during(lambda: page["#add-button"].click())
        page["#done >> text=Remembered"].wait_for()
        assert EVIL in page["#neighbors tbody"].inner_text()
        assert page["img"].count() == 0 and page["main [style*='url']"].count() == 0


# --- how it looks ---------------------------------------------------------------

OVERFLOWING = """() => [...document.querySelectorAll("body *")]
  .filter(e => !e.closest(".scroll, svg, .unseen, option, datalist"))
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.outerHTML.slice(0, 80))"""

# The least contrast of texts with what lies behind them, as WCAG has it.
CONTRAST = """() => {
  const parts = color => (color.match(/[\\d.]+/g) ?? []).map(Number);
  const light = color => {
    const [r, g, b] = parts(color).slice(0, 3).map(c => c / 255)
      .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (parts(color)[3] !== 0) return color;
    }
  };
  const contrasts = [];
  const compare = (e, a, b) => {
    const [dark, bright] = [light(a), light(b)].sort((a, b) => a - b);
    contrasts.push([(bright + 0.05) / (dark + 0.05), e]);
  };
  const hasText = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  for (const e of document.querySelectorAll("body *"))
    if (hasText(e) && e.checkVisibility() && !e.closest("svg"))
      compare(e, getComputedStyle(e).color, behind(e));
  for (const e of document.querySelectorAll("svg text:not(.inside)"))
    compare(e, getComputedStyle(e).fill, behind(e.closest("section")));
  contrasts.sort((a, b) => a[0] - b[0]);
  return [contrasts[0][0], contrasts[0][1].outerHTML.slice(0, 100)];
}"""


@pytest.mark.parametrize("viewport", [PHONE, {"width": 1280, "height": 900}])
@pytest.mark.parametrize("name", ["resting", "classes"])
def test_it_fits_and_reads_well(
    request: pytest.FixtureRequest,
    opening: Opening,
    name: str,
    viewport: dict[str, int],
) -> None:
    service: Service = request.getfixturevalue(name)
    with opening(service.url, viewport=viewport) as page:
        page.open()
        page["summary"].click()
        width = page.tab.evaluate("document.documentElement.scrollWidth")
        assert width == viewport["width"] and page.tab.evaluate(OVERFLOWING) == []
        papers = []
        for scheme in ("light", "dark"):
            page.tab.emulate_media(color_scheme=scheme)
            contrast, where = page.tab.evaluate(CONTRAST)
            assert contrast >= 4.5, (scheme, where)
            paper = "getComputedStyle(document.body).backgroundColor"
            papers.append(re.findall(r"\d+", page.tab.evaluate(paper)))
        assert min(map(int, papers[0])) > 200 and max(map(int, papers[1])) < 60
        first = page["#neighbors tr[data-id] th >> nth=0"]
        left = first.bounding_box()["x"]
        page["#scroll"].evaluate("e => e.scrollLeft = 200")
        assert first.bounding_box()["x"] == left  # the first column stays


def test_on_paper_only_what_was_found_is_left(
    classes: Service, opening: Opening
) -> None:
    with opening(classes.url) as page:
        page.open()
        page.tab.emulate_media(media="print")
        for selector in ("#add-button", ".more >> nth=0", "summary", "[type=range]"):
            assert not page[selector].first.is_visible()
        assert page["#answer"].is_visible() and page["#neighbors"].is_visible()


def test_nothing_moves_for_who_wants_it_calm(
    diabetes: Service, opening: Opening
) -> None:
    with opening(diabetes.url, reduced_motion="reduce") as page:
        page.open()
        page.tab.evaluate("() => { Element.prototype.animate = null; }")
        page.during(lambda: page.field("bmi").fill("50"))
        moves = "getComputedStyle(document.querySelector('.dot')).transitionDuration"
        assert page.tab.evaluate(moves) == "0s"


@pytest.mark.skipif(
    "TABR_SCREENSHOTS" not in os.environ,
    reason="set TABR_SCREENSHOTS to a table of California's houses for new pictures",
)
def test_pictures_for_the_docs(tmp_path: Path, opening: Opening) -> None:
    table = pd.read_parquet(os.environ["TABR_SCREENSHOTS"]).astype(float)
    table = table.sample(6000, random_state=0).reset_index(drop=True)
    label = table.pop("target").rename("house value")
    model = TabRRegressor(random_state=0, max_epochs=12, time_limit=50)
    model.fit(table, label).save(tmp_path / "houses.tabr")
    (tmp_path / "copy").mkdir()
    sizes = {"desktop": (1280, 1180), "phone": (390, 844)}
    with serving(tmp_path / "houses.tabr", tmp_path / "copy") as service:
        for name, (width, height) in sizes.items():
            viewport = {"width": width, "height": height}
            with opening(service.url, viewport=viewport) as page:
                page.open()
                page.during(lambda page=page: page.field("MedInc").fill("6.2"))
                page.tab.wait_for_timeout(400)
                page.tab.screenshot(path=DOCS / f"serving-{name}.png")

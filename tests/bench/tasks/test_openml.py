"""Tables from OpenML: their form, and a server on loopback that speaks like it."""

from __future__ import annotations

import hashlib
import json
import os
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest

from tabr.bench.tasks.catalog import TASKS, select
from tabr.bench.tasks.openml import (
    fetch,
    fetch_missing,
    label_check,
    split_table,
    to_table,
)
from tabr.bench.tasks.task import Origin, Task, files_of, is_present, load
from tabr.errors import DataError

RL, WINE = select(["why/rl"])[0], select(["why/wine"])[0]
SULFUR = select(["why/sulfur"])[0]


# --- form ------------------------------------------------------------------------


def test_features_have_the_types_that_tell_their_kind() -> None:
    frame = pd.DataFrame(
        {
            "small": pd.array([1, 2, 127], dtype="Int64"),
            "large": [1.0, 2.0, -40_000.0],
            "real": [0.5, 1.0, 2.0],
            "pair": pd.Categorical([0, 1, 0]),
            "flag": pd.Categorical(["TRUE", "FALSE", "TRUE"]),
            "text pair": pd.Categorical(["F", "M", "F"]),
            "other pair": pd.Categorical([0, 2, 0]),
            "kind": pd.Categorical([7, 7, 8], categories=[7, 8, 9]),
            "price": [1.5, 2.5, 3.0],
        }
    )
    table = to_table(frame, "price", SULFUR)
    assert {name: str(dtype) for name, dtype in table.dtypes.items()} == {
        "small": "int8",
        "large": "int32",
        "real": "float32",
        "pair": "bool",
        "flag": "bool",
        "text pair": "category",
        "other pair": "category",
        "kind": "category",
        "target": "float64",
    }
    assert table["pair"].tolist() == [False, True, False]
    assert table["flag"].tolist() == [True, False, True]
    assert table["kind"].tolist() == ["7", "7", "8"]
    assert table["kind"].cat.categories.tolist() == ["7", "8"]
    assert table["target"].tolist() == [1.5, 2.5, 3.0]


@pytest.mark.parametrize("value", [127, 128, -128, -129, 32_768, 2**31, 2**53, 0.1])
def test_no_number_changes_by_more_than_float32(value: float) -> None:
    frame = pd.DataFrame({"x": [0.0, value], "y": [0.0, value]})
    table = to_table(frame, "y", SULFUR)
    assert table["target"].tolist() == [0.0, value]
    whole = value == round(value) and value < 2**53
    expected = value if whole else np.float32(value)
    assert table["x"].tolist() == [0.0, expected]


def test_classes_are_numbered_in_their_order() -> None:
    ten = pd.DataFrame({"x": range(3), "y": pd.Categorical(["10", "9", "10"])})
    assert to_table(ten, "y", RL)["target"].tolist() == [1, 0, 1]
    text = pd.DataFrame({"x": range(3), "y": ["UP", "DOWN", "UP"]})
    assert to_table(text, "y", RL)["target"].tolist() == [1, 0, 1]
    assert to_table(text, "y", RL)["target"].dtype == np.int8


def test_a_number_that_comes_as_a_category_is_a_number_again() -> None:
    frame = pd.DataFrame({"x": [1, 2], "y": pd.Categorical(["2.5", "10"])})
    assert to_table(frame, "y", SULFUR)["target"].tolist() == [2.5, 10.0]


def test_rows_with_a_missing_value_are_left_out() -> None:
    frame = pd.DataFrame({"x": [1.0, np.nan, 3.0], "y": ["a", "b", "b"]})
    table = to_table(frame, "y", RL)
    assert table["x"].tolist() == [1, 3] and table["target"].tolist() == [0, 1]


def test_a_feature_must_not_take_the_labels_name() -> None:
    frame = pd.DataFrame({"target": [1, 2], "y": [1, 2]})
    with pytest.raises(DataError, match="a feature of why/rl has it"):
        to_table(frame, "y", RL)


# --- a server like OpenML ----------------------------------------------------------


@dataclass
class Shelf:
    """A table as OpenML offers it; what the server answers, by path."""

    frame: pd.DataFrame
    target: str
    number: int
    answers: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arff = self.arff()
        file = f"/data/v1/download/{self.number}/table.arff"
        description = {
            "id": str(self.number),
            "name": "a table",
            "description": "",
            "version": "3",
            "format": "ARFF",
            "status": "active",
            "url": f"https://www.openml.org{file}",
            "md5_checksum": hashlib.md5(arff).hexdigest(),
            "file_id": str(self.number),
        }
        features = [
            {
                "index": str(place),
                "name": name,
                "data_type": "numeric" if self.is_number(name) else "nominal",
                "is_target": str(name == self.target).lower(),
                "is_ignore": "false",
                "is_row_identifier": "false",
                "number_of_missing_values": "0",
            }
            for place, name in enumerate(self.frame.columns)
        ]
        n_rows = {"name": "NumberOfInstances", "value": str(len(self.frame))}
        contents = {
            "": {"data_set_description": description},
            "features/": {"data_features": {"feature": features}},
            "qualities/": {"data_qualities": {"quality": [n_rows]}},
        }
        for about, content in contents.items():
            path = f"/api/v1/json/data/{about}{self.number}"
            self.answers[path] = json.dumps(content).encode()
        self.answers[file] = arff

    def is_number(self, name: str) -> bool:
        return pd.api.types.is_numeric_dtype(self.frame[name].dtype)

    def arff(self) -> bytes:
        lines = ["@RELATION table"]
        for name in self.frame.columns:
            levels = "{" + ",".join(map(str, self.frame[name].unique())) + "}"
            kind = "NUMERIC" if self.is_number(name) else levels
            lines.append(f"@ATTRIBUTE {name} {kind}")
        rows = self.frame.to_csv(header=False, index=False, lineterminator="\n")
        return ("\n".join([*lines, "@DATA", rows])).encode()


class ToLoopback(urllib.request.BaseHandler):
    """Sends what is meant for a server with TLS to one on this machine."""

    handler_order = 100  # before the handler of https

    def __init__(self, port: int) -> None:
        self.port = port

    def https_open(self, request: urllib.request.Request) -> Any:
        path = urlsplit(request.full_url).path
        return urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """What a loopback server answers in place of OpenML, by path."""
    known: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = known.get(self.path)
            self.send_response(200 if body is not None else 412)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *arguments: object) -> None:
            pass

    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        to_loopback = ToLoopback(server.server_address[1])
        urllib.request.install_opener(urllib.request.build_opener(to_loopback))
        yield known
        server.shutdown()
    urllib.request.install_opener(None)  # the next call makes a plain one


def made_up(n: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"ph": rng.random(n), "sugar": rng.integers(0, 300, n)})
    frame["grape"] = rng.choice(["red", "green", "blue"], n)
    frame["organic"] = rng.choice(["0", "1"], n)
    frame["good"] = np.repeat(["0", "1"], n // 2)
    return frame


def offered(answers: dict[str, bytes], task: Task, **origin: Any) -> Task:
    """Put a made-up table on the shelf and return a task that expects it."""
    frame = made_up()
    answers.update(Shelf(frame, "good", number=task.origin.openml or 0).answers)
    known = Origin(len(frame), 4, task.origin.openml)
    return replace(task, origin=replace(known, **origin))


def paper_check(task: Task) -> float:
    """The label check that a made-up table passes."""
    table = to_table(made_up(), "good", task)
    test = (split_table(task, table).iloc[:, 0] == "test").to_numpy()
    return label_check(table["target"].to_numpy()[test], task.kind)


def test_a_fetched_table_can_be_loaded(
    tmp_path: Path, answers: dict[str, bytes]
) -> None:
    task = offered(answers, WINE, label_check=paper_check(WINE))
    path = fetch(task, tmp_path, tmp_path / "cache")
    assert path == tmp_path / "why" / "wine.parquet"
    assert all(is_present(task, tmp_path) for task in select(["why/wine"]))

    frame = made_up()
    table = pd.read_parquet(path)
    np.testing.assert_array_equal(table["ph"], frame["ph"].astype(np.float32))
    assert table["grape"].tolist() == frame["grape"].tolist()
    assert table["organic"].tolist() == (frame["organic"] == "1").tolist()
    assert table["target"].tolist() == (frame["good"] == "1").tolist()
    parts = load(select(["why/wine"])[3], tmp_path)
    assert [len(p.y) for p in (parts.train, parts.val, parts.test)] == [140, 18, 42]


def test_what_was_written_is_told_with_its_checksums(
    tmp_path: Path, answers: dict[str, bytes]
) -> None:
    path = fetch(offered(answers, WINE), tmp_path, tmp_path / "cache")
    about = json.loads(path.with_suffix(".json").read_text("utf-8"))
    sums = about.pop("sha256")
    assert about.pop("md5_of_source")
    assert about == {
        "source": "OpenML 44091",
        "name": "a table",
        "version": "3",
        "rows": 200,
        "features": 4,
    }
    written = sorted(file.name for file in path.parent.iterdir())
    assert written == ["wine.json", "wine.parquet", "wine.split.parquet"]
    assert sums == {
        name: hashlib.sha256((path.parent / name).read_bytes()).hexdigest()
        for name in written[1:]
    }


def test_a_table_with_a_split_of_ours_comes_alone(
    tmp_path: Path, answers: dict[str, bytes]
) -> None:
    task = offered(answers, select(["covtype"])[0])
    fetch(task, tmp_path, tmp_path / "cache")
    assert not (tmp_path / "covtype.split.parquet").exists()
    assert len(load(task, tmp_path).train.y) == 128


def test_another_table_than_the_papers_is_refused(
    tmp_path: Path, answers: dict[str, bytes]
) -> None:
    cache = tmp_path / "cache"
    right = paper_check(WINE)
    for wrong, message in (
        ({"n_rows": 201}, "must have 201 rows and 4 features .* has 200 and 4"),
        ({"n_features": 2}, "must have 200 rows and 2 features .* has 200 and 4"),
        ({"label_check": right + 1}, f"give {right + 1:.8g} .* give {right:.8g}"),
    ):
        with pytest.raises(DataError, match=message):
            fetch(offered(answers, WINE, **wrong), tmp_path, cache)
    assert not (tmp_path / "why").exists()


def test_a_damaged_download_is_refused(
    tmp_path: Path, answers: dict[str, bytes]
) -> None:
    task = offered(answers, WINE)
    path = next(path for path in answers if path.endswith(".arff"))
    answers[path] = answers[path].replace(b"red", b"rid")
    with (
        pytest.warns(RuntimeWarning, match="redownloading"),
        pytest.raises(DataError, match="checksum") as caught,
    ):
        fetch(task, tmp_path, tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "why").exists()


def test_a_number_that_openml_does_not_know_is_refused(
    tmp_path: Path, answers: dict[str, bytes]
) -> None:
    with pytest.raises(DataError, match="data_id 44091 not found"):
        fetch(WINE, tmp_path, tmp_path / "cache")


def test_a_table_is_never_written_over(
    tmp_path: Path, answers: dict[str, bytes]
) -> None:
    task = offered(answers, WINE)
    path = fetch(task, tmp_path, tmp_path / "cache")
    before = path.read_bytes()
    with pytest.raises(DataError, match="never written over"):
        fetch(task, tmp_path, tmp_path / "cache")
    assert path.read_bytes() == before


def test_what_is_there_is_not_fetched_again(
    tmp_path: Path, answers: dict[str, bytes]
) -> None:
    fetch(offered(answers, WINE), tmp_path, tmp_path / "cache")
    answers.clear()
    ((task, path),) = fetch_missing(["why/wine"], tmp_path)
    assert (task.label, path) == ("why/wine", None)


@pytest.mark.skipif("TABR_DATA" not in os.environ, reason="needs the paper's tables")
def test_the_papers_own_tables_pass_the_label_check() -> None:
    folder = Path(os.environ["TABR_DATA"])
    sets = {task.label: task for task in TASKS if task.origin.label_check}
    tasks = [task for task in sets.values() if is_present(task, folder)]
    assert tasks
    for task in tasks:
        table, split = files_of(task, folder)
        y = pd.read_parquet(table, columns=["target"])["target"].to_numpy()
        test = pd.read_parquet(split).iloc[:, 0].to_numpy(object) == "test"
        found = label_check(y[test], task.kind)
        passed = found == pytest.approx(task.origin.label_check, rel=1e-6)
        assert passed is (task.name != "black_friday"), task.label

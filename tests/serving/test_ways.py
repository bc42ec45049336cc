"""One row, one answer: as a frame, CSV, Arrow or JSON, by service or command line."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from tabr import TabRClassifier, cli
from tabr.serving.app import create_app
from tabr.serving.served_model import ServedModel

from .conftest import OWN, SMALL

CSV, ARROW = "text/csv", "application/vnd.apache.arrow.stream"
CODES = ["01234", "1234", "NA", "1e5", "100000", "True", " x", "x", "null", "=1", "'=1"]
CLASSES = np.array(["01", "1", "NA"])


def rows_of(n: int = 110, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Rows whose texts look like numbers, flags and gaps, and classes that do."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, len(CODES), n)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "h")
    frame = pd.DataFrame({
        "code": np.array(CODES)[code],
        "two": np.where(rng.random(n) < 0.5, "007", "7"),
        "size": rng.normal(size=n) * 10.0 ** rng.integers(-3, 3, n),
        "fine": rng.normal(size=n).astype(np.float32),
        "flag": rng.random(n) < 0.5,
        "day": day,
        "gap": np.where(rng.random(n) < 0.3, None, np.array(["N", "n/b"])[code % 2]),
    })  # fmt: skip
    frame.loc[::9, "size"] = np.nan
    return frame, pd.Series(CLASSES[code % 3], name="grade")


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "m.tabr"
    model = TabRClassifier(**SMALL, device="cpu", candidates=None)
    model.fit(*rows_of()).save(path)
    return path


@pytest.fixture
def model_path(model_file: Path, tmp_path: Path) -> Path:
    """A copy, as a service leaves files beside its model."""
    return Path(shutil.copy(model_file, tmp_path))


def test_a_row_has_one_answer_however_it_comes(model_path: Path, tmp_path: Path):
    model = TabRClassifier.load(model_path, "cpu")
    frame = rows_of(40, seed=1)[0]
    expected = model.predict_proba(frame)
    table = tmp_path / "rows.csv"
    frame.to_csv(table, index=False)
    command = ["predict", str(model_path), str(table), "--proba", "--json"]
    result = CliRunner().invoke(cli.main, command)
    columns = json.loads(result.stdout)["probabilities"]
    assert list(columns) == CLASSES.tolist()
    answers = {"command": np.transpose(list(columns.values()))}
    served = ServedModel(model_path, tmp_path / "store", "cpu")
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    with TestClient(create_app(served), OWN) as client:

        def ask(path: str, **body: Any) -> Any:
            answer = client.post(path, **body)
            assert answer.status_code == 200, answer.text
            return answer

        rows = {"rows": served.schema.to_rows(frame)}
        found = ask("/v1/predict", json=rows).json()["predictions"]
        answers["json"] = np.array([[*p["probabilities"].values()] for p in found])
        for media, content in ((CSV, table.read_bytes()), (ARROW, stream(arrow))):
            headers = {"content-type": media}
            body = ask("/v1/predict/table", content=content, headers=headers).content
            part = from_body(body, media).filter(like="probability of ")
            answers[media] = part.astype(float).to_numpy()
    for way, answer in answers.items():
        np.testing.assert_array_equal(answer, expected, err_msg=way)


def test_rows_are_kept_as_they_came_by_any_way(model_path: Path, tmp_path: Path):
    frame, grades = rows_of(30, seed=2)
    labelled = frame.assign(customer=range(30), grade=grades)
    table, added = tmp_path / "rows.csv", tmp_path / "added.tabr"
    labelled.to_csv(table, index=False)
    command = ["add", str(model_path), str(table), "-o", str(added), "--json"]
    result = CliRunner().invoke(cli.main, command)
    assert result.exit_code == 0, result.output
    assert "does not know them: 'customer'" in result.stderr
    ids = range(110, 140)
    by_command = TabRClassifier.load(added, "cpu").candidates_
    served = ServedModel(model_path, tmp_path / "store", "cpu")
    arrow = pa.Table.from_pandas(labelled, preserve_index=False)
    with TestClient(create_app(served), OWN) as client:
        for media, content in ((CSV, table.read_bytes()), (ARROW, stream(arrow))):
            answer = client.post(
                "/v1/candidates/table?target=grade",
                content=content,
                headers={"content-type": media},
            )
            assert answer.status_code == 201, answer.text
        by_service = served.model.candidates_
    for candidates, first in ((by_command, 110), (by_service, 110), (by_service, 140)):
        ids = np.arange(first, first + 30)
        kept = candidates.look_up(ids).reset_index(drop=True)
        assert kept["code"].tolist() == frame["code"].tolist()
        assert kept["two"].tolist() == frame["two"].tolist()
        assert kept["gap"].isna().tolist() == frame["gap"].isna().tolist()
        np.testing.assert_array_equal(kept["size"], frame["size"])
        assert candidates.y_of(ids).tolist() == grades.tolist()


def test_scores_of_a_csv_are_those_of_the_frame(model_path: Path, tmp_path: Path):
    frame, grades = rows_of(40, seed=1)
    model = TabRClassifier.load(model_path, "cpu")
    accuracy = float(np.mean(model.predict(frame) == grades))
    table = tmp_path / "rows.csv"
    frame.assign(grade=grades, note="NA").to_csv(table, index=False)
    for command in ("evaluate", "neighbors", "explain"):
        arguments = [command, str(model_path), str(table), "--json"]
        result = CliRunner().invoke(cli.main, arguments)
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        if command == "evaluate":
            assert found["model"]["accuracy"] == pytest.approx(accuracy)
        else:
            codes = [row["columns"]["code"] for row in found["rows"]]
            assert codes == frame["code"].tolist()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("code,code\n01,1\n", "came more than once"),
        ("{header}\n{row}\n{header}\n", "line 3 is the header again"),
        ("{header}\n{row}\n{text}\n", "column 'size' must hold numbers"),
        ("{header}\n{row}\nx\n", "line 3 has 1"),
    ],
)
def test_a_body_that_is_no_table_is_refused(
    model_path: Path, tmp_path: Path, content: str, words: str
):
    header, row = rows_of(1)[0].to_csv(index=False).splitlines()
    cells = row.split(",")
    text = ",".join([*cells[:2], "dear", *cells[3:]])
    body = content.format(header=header, row=row, text=text)
    served = ServedModel(model_path, tmp_path / "store", "cpu")
    with TestClient(create_app(served), OWN) as client:
        headers = {"content-type": CSV}
        answer = client.post("/v1/predict/table", content=body, headers=headers)
        assert answer.status_code == 422 and words in answer.json()["detail"]
        column = pa.array(["01"])
        twice = pa.Table.from_arrays([column, column], names=["code", "code"])
        headers = {"content-type": ARROW}
        answer = client.post(
            "/v1/predict/table", content=stream(twice), headers=headers
        )
        assert answer.status_code == 422
        assert "came more than once" in answer.json()["detail"]


def stream(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def from_body(content: bytes, media: str) -> pd.DataFrame:
    if media == CSV:
        return pd.read_csv(io.BytesIO(content), dtype=str)
    return pa.ipc.open_stream(content).read_all().to_pandas()

"""Every benchmark runs at a tiny size and writes what it promises."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import (
    curve,
    forms,
    freeze,
    memory,
    predict,
    presets,
    search,
    step,
    timing,
    train,
)
from benchmarks.timing import Size

ORIGIN = {"command", "hardware", "device", "threads", "versions"}
TIMES = {"step_ms", "search_ms", "learning_ms"}
OUR_TIMES = TIMES | {"first_search_ms"}
SMALL = "200x3x32"


def written(
    path: Path, name: str, by: str | None = None, beside: str | None = None
) -> dict[str, Any]:
    """Read a result that benchmark `by` wrote, alone or beside another."""
    names = {f"{one}-cpu.json" for one in (name, beside) if one}
    assert {file.name for file in path.iterdir()} == names
    record = json.loads((path / f"{name}-cpu.json").read_text("utf-8"))
    assert set(record) > ORIGIN
    assert record["command"].startswith(f"python -m benchmarks.{by or name}")
    assert str(path) not in record["command"]
    return record


def test_step_splits_each_form(tmp_path: Path) -> None:
    step.main(["--sizes", SMALL, "150x2x16", "--repeat", "1", "--out", str(tmp_path)])
    first, second = written(tmp_path, "step")["sizes"]
    assert (first["candidates"], first["d_in"], first["batch"]) == (200, 3, 32)
    assert second["candidates"] == 150
    assert set(first["forms"]) == {"plain", "tabr"}
    for name, form in first["forms"].items():
        assert set(form) == (OUR_TIMES if name == "tabr" else TIMES)
        assert all(ms > 0 for ms in form.values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_step_on_a_gpu_is_captured_and_tells_its_memory() -> None:
    device = torch.device("cuda")
    result = step.measure(Size(500, 3, 32), step.FORMS_OF["cuda"], device, 1)
    assert set(result["forms"]) == {"plain", "plain-tf32", "tabr"}
    for form in result["forms"].values():
        assert set(form) >= TIMES | {"peak_bytes", "captured"}
        assert form["peak_bytes"] > 500 * 4 * 4
    assert result["forms"]["tabr"]["captured"]


def test_a_form_out_of_memory_is_recorded_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(table: forms.Table) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setitem(step.FORMS, "plain", {"step": fail})
    result = step.measure(Size(200, 3, 32), ("plain", "tabr"), torch.device("cpu"), 1)
    assert result["forms"]["plain"] == {"failed": "out of memory"}
    assert result["forms"]["tabr"].keys() == OUR_TIMES
    assert "plain out of memory" in step.line(result)


def test_curve_leaves_out_the_plain_form_once_it_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curve, "_LONGEST_MS", 0.0)
    sizes = ["300x3x32", SMALL, "200x2x32"]
    curve.main(["--sizes", *sizes, "--repeat", "1", "--out", str(tmp_path)])
    found = [
        (result["candidates"], result["d_in"], "plain" in result["forms"])
        for result in written(tmp_path, "curve")["sizes"]
    ]
    assert found == [(200, 2, True), (200, 3, True), (300, 3, False)]


def test_curve_has_three_sizes_a_decade() -> None:
    narrow = [size.n for size in curve.SIZES if size.d_in == 8]
    assert narrow[::3] == [10**4, 10**5, 10**6, 10**7]


@pytest.mark.parametrize("searched", [False, True])
def test_freeze_compares_two_sizes(tmp_path: Path, searched: bool) -> None:
    more = ["--searched"] if searched else []
    options = ["--sizes", SMALL, "400x3x32", "--repeat", "1", *more]
    freeze.main([*options, "--out", str(tmp_path)])
    record = written(tmp_path, "freeze")
    few, many = record["sizes"]
    assert few["step_ms"] > 0
    assert record["ratio"] == pytest.approx(many["step_ms"] / few["step_ms"], abs=1e-3)
    assert ("freeze_seconds" in few) == searched


def test_search_compares_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--sizes", "900x4x8", "--repeat", "1", "--out", str(tmp_path)]
    search.main(options)
    (result,) = written(tmp_path, "search")["sizes"]
    assert result["same"] is True
    assert all(result["ways"][name]["ms"] > 0 for name in ("tabr", "topk"))

    def first_ones(queries: torch.Tensor) -> torch.Tensor:
        return torch.arange(timing.M).expand(len(queries), -1)

    monkeypatch.setitem(search.SEARCHES, "tabr", lambda *_: first_ones)
    search.main(options)
    (result,) = written(tmp_path, "search")["sizes"]
    assert result["same"] is False


def test_predict_keeps_all_rows_as_candidates(tmp_path: Path) -> None:
    options = ["--candidates", "300", "--features", "3", "--rows", "20"]
    predict.main([*options, "--repeat", "2", "--out", str(tmp_path)])
    record = written(tmp_path, "predict")
    assert record["candidates"] == 300
    assert record["bulk_rows"] == 20
    assert record["single_ms"] <= record["single_95_percent_ms"]
    assert record["bulk_rows_per_second"] > 0


def write_table(folder: Path, name: str, target: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((len(target), 2)), columns=["a", "b"])
    frame["target"] = target
    frame.to_parquet(folder / f"{name}.parquet")
    parts = pd.DataFrame({"part": np.resize(["train", "val", "test"], len(target))})
    parts.to_parquet(folder / f"{name}.split.parquet")


def test_memory_changes_candidates_and_explains_rows(tmp_path: Path) -> None:
    options = ["--candidates", "2600", "--changed", "50", "--explained", "2100"]
    more = ["--features", "3", "--repeat", "1", "--out", str(tmp_path)]
    memory.main([*options, *more])
    record = written(tmp_path, "memory")
    assert record["candidates"] == 2600
    assert record["explained_candidates"] == 2100
    for name in ("add", "remove", "relabel"):
        assert record[f"{name}_seconds"] > 0
    assert record["explain_one_ms"] > 0


def test_train_fits_twice_and_then_five_members(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    write_table(data, "california", np.random.default_rng(1).random(60))
    write_table(data, "covtype", np.arange(60) % 3)
    train.main(
        ["--data", str(data), "--covtype", "--max-epochs", "1", "--out", str(out)]
    )
    record = written(out, "train", beside="covtype")
    assert "--data FOLDER" in record["command"]
    california = record["california"]
    assert california["first"]["test"] == california["second"]["test"]
    assert california["five_members"]["epochs"] == 5
    assert california["five_to_one"] > 0
    assert "covtype" not in record
    covtype = written(out, "covtype", by="train", beside="train")
    assert 0 <= covtype["first"]["test"] <= 1


def test_presets_take_turns_on_each_table(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    write_table(data, "california", np.random.default_rng(1).random(60))
    write_table(data, "covtype", np.arange(60) % 3)
    options = ["--tables", "california,covtype", "--max-epochs", "2", "--repeat", "2"]
    presets.main(["--data", str(data), *options, "--out", str(out)])
    tables = written(out, "presets")["tables"]
    assert set(tables) == {"california", "covtype"}
    paper, default = (tables["california"]["presets"][p] for p in presets.WHOLE)
    assert (paper["epochs"], len(paper["best_epoch"])) == (2, 1)
    assert default["epochs"] == 2 * len(default["best_epoch"])
    assert default["test"] != paper["test"]


def test_sizes_are_read_and_refused() -> None:
    assert timing.size("13209x8x256") == Size(13_209, 8, 256)
    for text in ("13209", "0x8x256", "300x8x256"):
        with pytest.raises(argparse.ArgumentTypeError, match="however"):
            timing.size(text)


def test_every_row_of_full_batches_comes_once_an_epoch() -> None:
    rows = forms.batches(Size(200, 3, 64), torch.device("cpu"))
    first, second = (torch.cat([next(rows) for _ in range(3)]) for _ in range(2))
    assert len(first.unique()) == len(first) == 192
    assert torch.equal(first, second)


def test_tf32_is_a_setting_of_its_form_alone() -> None:
    seen = []

    def make(table: forms.Table):
        return lambda batch: seen.append(torch.get_float32_matmul_precision())

    forms.in_tf32(make)(None)(None)
    assert seen == ["high"]
    assert torch.get_float32_matmul_precision() == "highest"


def test_turns_give_the_median_of_each_call() -> None:
    log: list[str] = []
    calls = {name: lambda name=name: log.append(name) for name in "ab"}
    result = timing.medians(calls, torch.device("cpu"), 3)
    assert result.keys() == {"a", "b"}
    turns = "".join(log)[2:]  # after one call each to see how long they take
    assert turns.strip("b").startswith("a") and turns.count("ab") == 3


def test_folders_of_this_machine_stay_out_of_the_command() -> None:
    given = ["--out", "/tmp/a b", "--data=/home/me/data", "--device", "cpu"]
    assert (
        timing.command("benchmarks.train", given)
        == "python -m benchmarks.train --data=FOLDER --device cpu"
    )

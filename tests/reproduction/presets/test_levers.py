"""Levers that are taken out of the default preset."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.presets.levers import FILE, changes, means, read_levers
from tabr.errors import DataError

HEADER = "table,lever,score,metric,runs,commit"
LINES = (
    "california,none,0.4,rmse,3,123",
    "california,scale_layer,0.5,rmse,3,123",
    "california,betas,0.4,rmse,3,123",
    "adult,none,0.9,accuracy,1,123",
    "adult,scale_layer,0.8,accuracy,1,123",
)


def write(folder: Path, *lines: str, header: str = HEADER) -> None:
    (folder / FILE).write_text("\n".join([header, *lines, ""]), "utf-8")


def test_changes_are_of_errors_and_their_mean_is_of_ratios(tmp_path: Path) -> None:
    write(tmp_path, *LINES)
    lines = read_levers(tmp_path)
    assert lines is not None
    table = changes(lines)
    assert list(table.columns) == ["scale_layer", "betas"]  # of most use first
    assert table.loc["california", "scale_layer"] == pytest.approx(25)
    assert table.loc["adult", "scale_layer"] == pytest.approx(100)
    assert table["betas"].isna()["adult"]
    assert means(table)["scale_layer"] == pytest.approx(100 * (2.5**0.5 - 1))


def test_a_folder_without_the_file_has_no_levers(tmp_path: Path) -> None:
    assert read_levers(tmp_path) is None


@pytest.mark.parametrize(
    ("lines", "header", "words"),
    [
        (LINES, HEADER.replace("runs", "n"), "however runs did not come"),
        ((*LINES, LINES[1]), HEADER, "however scale_layer on california came twice"),
        (LINES[1:], HEADER, "however scale_layer on california, betas on california"),
        (("adult,none,0.9,speed,1,1",), HEADER, "however speed came"),
    ],
)
def test_a_file_that_cannot_be_compared_is_refused(
    tmp_path: Path, lines: tuple[str, ...], header: str, words: str
) -> None:
    write(tmp_path, *lines, header=header)
    with pytest.raises(DataError, match=words):
        read_levers(tmp_path)

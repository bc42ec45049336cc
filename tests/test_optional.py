import json
import xml.dom
from pathlib import Path

import pytest

from tabr.optional import require


def test_installed_library_is_returned():
    assert require("json", extra="boost") is json


def test_submodule_itself_is_returned_not_its_parent():
    assert require("xml.dom", extra="boost") is xml.dom


def test_missing_library_names_the_extra_that_brings_it():
    with pytest.raises(ImportError) as caught:
        require("no_such_library", extra="boost")
    assert str(caught.value) == (
        "no_such_library is not installed: pip install 'tabr[boost]'"
    )
    assert caught.value.name == "no_such_library"


def test_submodule_of_missing_library_counts_as_missing():
    with pytest.raises(ImportError, match=r"tabr\[plots\]"):
        require("no_such_library.part", extra="plots")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("import no_such_dependency", ModuleNotFoundError),
        ("from json import no_such_name", ImportError),
        ("raise RuntimeError('broken')", RuntimeError),
    ],
)
def test_broken_library_raises_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, error: type[Exception]
):
    (tmp_path / "broken_library.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error) as caught:
        require("broken_library", extra="boost")
    assert "is not installed" not in str(caught.value)

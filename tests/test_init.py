"""The package's public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tabr


@pytest.mark.parametrize("name", tabr.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tabr, name) is not None
    assert name in dir(tabr)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'TabX'"):
        _ = tabr.TabX


def test_estimators_are_imported_without_torch() -> None:
    code = "import sys; from tabr import TabRRegressor; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.stdout.strip() == "False", shown.stderr

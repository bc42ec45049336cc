"""Loops compiled by numba, and what happens where it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

LOOP = """
from tabr.device.compiled import compiled
@compiled
def total(n):
    out = 0
    for i in range(n):
        out += i
    return out
print(total(4))
"""


@pytest.mark.parametrize("in_file", [True, False])
def test_loops_run_with_and_without_a_place_to_keep_them(
    in_file: bool, tmp_path: Path
) -> None:
    path = tmp_path / "loop.py"
    path.write_text(LOOP, "utf-8")
    source = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import loop"
    code = source if in_file else LOOP  # text of a command has no file
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "6\n"
    assert bool(list(tmp_path.glob("__pycache__/*.nbi"))) == in_file


def test_loops_that_would_not_be_compiled_are_not_used() -> None:
    code = "from tabr.device.compiled import has_numba; print(has_numba())"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "False\n", run.stderr

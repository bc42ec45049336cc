"""Rooms that only some commands need: without one of them, all else works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# What needs a room: commands, as `outcomes` of the program below names them.
NEEDED_BY = {
    "tabr.serving": {"serving"},
    "tabr.bench": {"bench"},
    "tabr.report": {"report"},
    "tabr.audit": {"audit"},
}

PROGRAM = """
import importlib.abc, json, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if f"{name}.".startswith(f"{sys.argv[1]}."):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())

import pandas as pd
import tabr
from click.testing import CliRunner
from sklearn.datasets import load_diabetes
from tabr.cli import demo, main

SMALL = {"width": 8, "context_size": 4, "max_epochs": 1}
table = load_diabetes(as_frame=True).frame.head(120)
X, y = table.drop(columns="target"), table["target"]
model = tabr.TabRRegressor(random_state=0, **SMALL).fit(X, y)
model.save("m.tabr")
loaded = tabr.TabRRegressor.load("m.tabr")
assert (loaded.predict(X) == model.predict(X)).all()
assert len(loaded.explain(X.head(3))) == 3
table.to_csv("t.csv", index=False)
outcomes = {}

def run(*words):
    result = CliRunner().invoke(main, list(words))
    outcomes[words[0]] = [result.exit_code, result.stderr]

params = [word for name, value in SMALL.items() if name != "max_epochs"
          for word in ("--param", f"{name}={value}")]
run("fit", "t.csv", "--target", "target", "-o", "n.tabr", "--max-epochs", "1", *params)
run("predict", "n.tabr", "t.csv")
run("evaluate", "n.tabr", "t.csv")
run("neighbors", "n.tabr", "t.csv", "--rows", "0")
run("explain", "n.tabr", "t.csv", "--rows", "0")
run("add", "n.tabr", "t.csv")
run("remove", "n.tabr", "--ids", "0")
run("audit", "t.csv", "--target", "target")
run("report", "n.tabr", "t.csv", "-o", "page.html")
run("bench", "run", "t.csv", "--target", "target", "--methods", "knn", "--seeds", "1",
    "--out", "runs")
run("tune", "--help")
demo.run("wine", 1, **SMALL)
try:
    import fastapi, prometheus_client
except ImportError:
    pass
else:
    try:
        import tabr.serving.run
        outcomes["serving"] = [0, ""]
    except ImportError as error:
        outcomes["serving"] = [1, f"tabr: {error}"]
print(json.dumps(outcomes))
"""


@pytest.mark.parametrize("room", NEEDED_BY)
def test_without_a_room_only_its_own_commands_fail(room: str, tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, room],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    for command, (code, message) in outcomes.items():
        if command in NEEDED_BY[room]:
            assert code != 0
            sentence = message.splitlines()[-1]
            assert sentence.startswith("tabr: ") and room in sentence
            assert "Traceback" not in message
        elif "is not installed" not in message:  # such as a library for pictures
            assert code == 0, (command, message)

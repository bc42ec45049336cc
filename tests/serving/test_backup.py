"""A backup of a running service is one moment of it, and comes back whole."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from reliability.backups import backups
from tabr import cli
from tabr.errors import DataError
from tabr.serving.app import create_app
from tabr.serving.backup import back_up, restore
from tabr.serving.served_model import ServedModel

from .conftest import OWN, Begin, houses


@pytest.mark.parametrize("is_compacted", [False, True])
def test_what_is_restored_goes_on_where_the_backup_was(
    own_file: Path, begin: Begin, is_compacted: bool
):
    address, _ = begin()
    served = ServedModel(own_file, address, "cpu")
    n, rows = served.applied, served.schema.to_rows(houses(6, seed=7)[0])
    first = served.add(rows[:2], [1.0, 2.0], key=f"key {is_compacted}", who="anna")
    if is_compacted:
        served.compact()
    served.relabel([3], [7.0])
    file, model = own_file.with_name("b"), own_file.with_name("new.tabr")
    back_up(own_file, address, file)
    assert file.stat().st_mode & 0o777 == 0o600
    served.remove([5 + is_compacted])
    restore(file, model, None)
    again = ServedModel(model, f"{model}.memory", "cpu")
    assert again.applied == n + 2 and not again.has_begun_store
    ids = served.model.candidates_.ids
    y = again.model.candidates_.y_of(ids)
    np.testing.assert_array_equal(y, served.model.candidates_.y)
    assert again.add(rows[:2], [1.0, 2.0], key=f"key {is_compacted}") == first
    assert [e.who for e in again.store.history(n, 9)] == ["anna", None]
    assert again.remove([5 + is_compacted]).version == served.version
    again.close()
    served.close()
    with pytest.raises(DataError, match="never replaces a store"):
        restore(file, model, None)
    with pytest.raises(DataError, match="never replaces a file"):
        back_up(model, None, file)


def test_a_damaged_backup_is_refused_and_leaves_nothing(served: ServedModel):
    served.add(served.schema.to_rows(houses(1)[0]), [1.0])
    file, model = served.path.with_name("b"), served.path.with_name("new.tabr")
    back_up(served.path, served.path.with_name("store"), file)
    content, draw = file.read_bytes(), np.random.default_rng(0)
    for place in draw.integers(0, len(content), 40):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(draw.integers(8))
        file.write_bytes(damaged)
        try:
            restore(file, model, None)
        except DataError as error:
            assert "however" in str(error)
            assert not list(model.parent.glob("new*"))
        else:  # in a field of the archive that nobody reads
            again = ServedModel(model, f"{model}.memory", "cpu")
            assert again.version == served.version
            again.close()
            for left in model.parent.glob("new*"):
                left.unlink()


def test_backups_under_load_hold_what_was_acknowledged(
    model_file: Path, served: ServedModel
):
    rows = served.schema.to_rows(houses(20, seed=8)[0])
    counts = backups(model_file, rows, n_rounds=2, n_clients=2)
    assert counts["restored"] == 2 and counts["changes acknowledged"] > 0
    assert not counts["acknowledged before the backup, and not in it"]
    assert not counts["not a prefix of the changes"]


def test_who_changed_what_is_told_also_after_compaction(served: ServedModel):
    rows = served.schema.to_rows(houses(3, seed=7)[0])
    served.add(rows, [1.0, 2.0, 3.0], who="anna\n")
    served.compact()
    served.remove([4, 121], who="bert")
    with TestClient(create_app(served), OWN) as client:
        first = client.get("/v1/changes?n=1").json()["changes"]
        (second,) = client.get("/v1/changes?after=1").json()["changes"]
        assert client.get("/v1/changes?after=2").json() == {"changes": []}
        store = str(served.path.with_name("store"))
        command = ["history", str(served.path), "--store", store]
        shown = CliRunner().invoke(cli.main, [*command, "--json"])
        text = CliRunner().invoke(cli.main, [*command, "-n", "1"]).stdout
    keys = ("seq", "kind", "ids", "n", "who")
    assert [first[0][key] for key in keys] == [1, "add", "120-122", 3, "anna\\n"]
    assert [second[key] for key in keys] == [2, "remove", "4,121", 2, "bert"]
    assert [c["seq"] for c in json.loads(shown.stdout)["changes"]] == [1, 2]
    assert "bert" in text and "anna" not in text
    assert second["at"] > 1.7e9


def test_the_command_line_backs_up_and_restores(served: ServedModel, tmp_path: Path):
    served.add(served.schema.to_rows(houses(1)[0]), [1.0])
    store, file = str(served.path.with_name("store")), str(tmp_path / "b")
    command = ["backup", str(served.path), "--store", store, "-o", file]
    assert CliRunner().invoke(cli.main, command).exit_code == 0
    command = ["restore", file, "-o", str(tmp_path / "new.tabr")]
    assert CliRunner().invoke(cli.main, command).exit_code == 0
    again = CliRunner().invoke(cli.main, command)
    assert again.exit_code == 2 and "never replaces" in again.stderr
    other = CliRunner().invoke(cli.main, ["history", file])
    assert other.exit_code == 2 and "Traceback" not in other.stderr

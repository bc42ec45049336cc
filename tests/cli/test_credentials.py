from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from tabr import TabRRegressor
from tabr.cli import main
from tabr.errors import ModelFileError

pytest.importorskip("cryptography")


def tabr(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*map(str, arguments)])
    return result.exit_code, result.output


def test_signed_model_predicts_and_a_changed_one_does_not(tmp_path: Path):
    X = pd.DataFrame({"a": range(40)})
    X.to_csv(tmp_path / "t.csv", index=False)
    model, key = tmp_path / "m.tabr", tmp_path / "my.key"
    TabRRegressor(width=4, max_epochs=1, n_members=1).fit(X, X["a"]).save(model)
    predict = ("predict", model, tmp_path / "t.csv", "--key", f"{key}.pub")
    assert tabr("keygen", key)[0] == 0
    assert "a key is not replaced" in tabr("keygen", key)[1]
    code, text = tabr(*predict)
    assert code == 2 and "m.tabr.sig is missing; sign it with tabr sign" in text
    assert tabr("sign", model, "--key", key)[0] == 0
    code, text = tabr(*predict)
    assert code == 0 and text.count("\n") >= 41
    model.write_bytes(model.read_bytes() + b"0")
    code, text = tabr(*predict)
    assert code == 2 and "its signature is not of this file by this key" in text
    assert "must be a public key" in tabr(*predict[:-1], key)[1]


def test_a_service_takes_only_what_the_key_has_signed(tmp_path: Path):
    pytest.importorskip("fastapi", reason="pip install 'tabr[serve]'")
    from tabr.serving.served_model import ServedModel

    X = pd.DataFrame({"a": range(40)})
    model, key = tmp_path / "m.tabr", tmp_path / "my.key"
    TabRRegressor(width=4, max_epochs=1, n_members=1).fit(X, X["a"]).save(model)
    assert tabr("keygen", key)[0] == 0
    public, store = Path(f"{key}.pub"), tmp_path / "store"
    code, text = tabr("serve", model, "--key", public, "--port", 0)
    assert code == 2 and "m.tabr.sig is missing; sign it with tabr sign" in text
    assert not model.with_name("m.tabr.memory").exists()
    assert tabr("sign", model, "--key", key)[0] == 0
    served = ServedModel(model, store, "cpu", key=public)
    served.add([{"a": 3}], [5.0])
    served.compact()
    served.close()
    model.write_bytes(model.read_bytes() + b"0")  # not read, as there is a checkpoint
    with pytest.raises(ModelFileError, match="is not of this file by this key"):
        ServedModel(model, store, "cpu", key=public)

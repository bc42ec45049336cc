import json
from pathlib import Path

from reproduction.results_folder import extract_configs
from tabr.bench.tasks.catalog import select

(CALIFORNIA,) = select(["california"])


def test_extract_translates_a_configuration(tmp_path: Path) -> None:
    backbone = {"n_blocks": 2, "d_layer": 138, "dropout": 0.25}
    config = {
        "batch_size": 256,
        "patience": 16,
        "model": {"backbone": backbone, "num_embeddings": None},
        "optimizer": {"lr": 0.001, "weight_decay": 0.0},
    }
    source, target = tmp_path / "all.json", tmp_path / "ours.json"
    source.write_text(json.dumps({"california": {"MLP": config, "another": {}}}))
    assert extract_configs(source, target, [CALIFORNIA]) == 1
    assert json.loads(target.read_text("utf-8")) == {
        "california": {
            "mlp": {
                "n_layers": 2,
                "width": 138,
                "dropout": 0.25,
                "learning_rate": 0.001,
                "weight_decay": 0.0,
                "batch_size": 256,
                "patience": 16,
            }
        }
    }

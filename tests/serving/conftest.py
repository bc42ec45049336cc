"""Small fitted models as files, and the service around them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tabr import TabRClassifier, TabRRegressor

pytest.importorskip("fastapi", reason="pip install 'tabr[serve]'")

SMALL = {"width": 8, "context_size": 8, "max_epochs": 2, "random_state": 0}


def houses(n: int = 120, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Rows with all kinds of columns, one with gaps, and prices."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.uniform(30, 200, n).round(1),
            "rooms": rng.integers(1, 8, n),
            "town": rng.choice(["Ulm", "Bonn", "Köln"], n),
            "garden": rng.random(n) < 0.5,
            "built": pd.Timestamp("1990-01-01")
            + pd.to_timedelta(rng.integers(0, 9000, n), unit="D"),
            "latitude": rng.uniform(48, 51, n).round(3),
            "longitude": rng.uniform(7, 11, n).round(3),
            "constant": "same",
        }
    )
    frame.loc[::7, "size"] = np.nan
    price = 1000 * frame["rooms"] + 10 * frame["size"].fillna(100)
    return frame, price.rename("price")


@pytest.fixture(scope="session")
def regressor_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of prices."""
    path = tmp_path_factory.mktemp("models") / "houses.tabr"
    TabRRegressor(**SMALL, device="cpu").fit(*houses()).save(path)
    return path


@pytest.fixture(scope="session")
def classifier_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of classes that are text."""
    path = tmp_path_factory.mktemp("models") / "towns.tabr"
    frame, price = houses()
    label = pd.Series(np.where(price > price.median(), "dear", "cheap"), name="class")
    TabRClassifier(**SMALL, device="cpu").fit(frame, label).save(path)
    return path


@pytest.fixture
def model_file(regressor_file: Path, tmp_path: Path) -> Path:
    """A copy of a model, in a folder of its own."""
    path = tmp_path / "houses.tabr"
    path.write_bytes(regressor_file.read_bytes())
    return path


@pytest.fixture
def memory(model_file: Path) -> Iterator["object"]:
    """A model in use."""
    from tabr.serving.memory import Memory

    memory = Memory(model_file, model_file.with_name("store"), "cpu")
    yield memory
    memory.close()

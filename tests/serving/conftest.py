"""Small fitted models as files, what is around them, and stores of each kind."""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tabr import TabRClassifier, TabRRegressor
from tabr.serving.served_model import ServedModel
from tabr.serving.store.changes import Store, open_store

pytest.importorskip("fastapi", reason="pip install 'tabr[serve]'")

OWN = "http://localhost"  # a name that the service takes for its own
SMALL = {
    "n_members": 1,
    "width": 8,
    "context_size": 8,
    "max_epochs": 2,
    "random_state": 0,
}


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
def own_file(regressor_file: Path, tmp_path: Path) -> Path:
    """A model whose bytes no other test has, so that no store knows it."""
    path = tmp_path / "houses.tabr"
    model = TabRRegressor.load(regressor_file, "cpu")
    model.set_params(random_state=secrets.randbelow(2**32)).save(path)
    return path


@pytest.fixture
def served(model_file: Path) -> Iterator[ServedModel]:
    """A model in use."""
    served = ServedModel(model_file, model_file.with_name("store"), "cpu")
    yield served
    served.close()


# --- stores ----------------------------------------------------------------------

Open = Callable[[str | Path, str], Store]
Begin = Callable[[], tuple[str, str]]  # the address and identity of a new store


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def begin(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Begin:
    """Return what thinks of a new store, for each kind of database."""
    address: Any = None
    if request.param == "postgres":
        pytest.importorskip("psycopg", reason="pip install 'tabr[serve]'")
        address = request.getfixturevalue("postgres")

    def new() -> tuple[str, str]:
        place = address or str(tmp_path_factory.mktemp("store") / "memory.db")
        return place, secrets.token_hex(32)

    return new


@pytest.fixture
def opened() -> Iterator[Open]:
    """Return what opens stores that are closed in the end."""
    with contextlib.ExitStack() as stack:

        def open_one(address: str | Path, identity: str) -> Store:
            return stack.enter_context(
                contextlib.closing(open_store(address, identity))
            )

        yield open_one


@pytest.fixture
def store(begin: Begin, opened: Open) -> Store:
    """A new store."""
    return opened(*begin())

"""Small made-up tables under the benchmark's file names."""

from pathlib import Path

import numpy as np
import pandas as pd

TINY = {"max_epochs": 1, "width": 8, "context_size": 4}


def files(folder: Path) -> list[Path]:
    """All files in a folder and those below it."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def write_churn(folder: Path, n: int = 100) -> pd.DataFrame:
    """A binary task without a split file."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "Age": rng.integers(18, 80, n).astype(np.int16),
            "Gender": pd.Categorical(rng.choice(["Female", "Male"], n)),
            "Geography": pd.Categorical(rng.choice(["France", "Spain", "Germany"], n)),
        }
    )
    frame["target"] = (frame["Age"] > 45).astype(np.int8)
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "churn.parquet")
    return frame


def write_diamond(folder: Path, n: int = 100) -> pd.DataFrame:
    """A regression task without a split file."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"carat": rng.random(n, dtype=np.float32)})
    frame["target"] = (frame["carat"] * 5000).astype(np.int16)
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "diamond.parquet")
    return frame


def write_wine(folder: Path, n: int = 60) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A task of the second benchmark; the table and its five splits."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"ph": rng.random(n), "sugar": rng.random(n)})
    frame = frame.astype(np.float32)
    frame["target"] = np.repeat([0, 1], n // 2).astype(np.int8)
    parts = ["train", "train", "train", "val", "test", "unused"]
    splits = pd.DataFrame(
        {f"split{s}": rng.permutation(np.resize(parts, n)) for s in range(5)}
    )
    (folder / "why").mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "why" / "wine.parquet")
    splits.to_parquet(folder / "why" / "wine.split.parquet")
    return frame, splits


def write_user_table(path: Path, n: int = 120, seed: int = 0) -> pd.DataFrame:
    """A user's table, with numbers to predict."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"size": rng.random(n).round(4), "town": rng.choice(["Ulm", "Bonn"], n)}
    )
    frame["price"] = (100 * frame["size"] + (frame["town"] == "Ulm")).round(3)
    frame.to_csv(path, index=False)
    return frame


def timed(column: str, n: int = 60, classes: bool = False) -> pd.DataFrame:
    """A table whose labels follow time, in no order."""
    rng = np.random.default_rng(0)
    when = rng.permutation(n)
    target = when + rng.normal(size=n)
    return pd.DataFrame({
        column: pd.Timestamp("2020-01-01") + pd.to_timedelta(when, unit="D")
        if column != "time_index" else when,
        "a": rng.normal(size=n),
        "target": (target > n / 2).astype(int) if classes else target,
    })  # fmt: skip


def write_california(folder: Path, n: int = 100) -> pd.DataFrame:
    """A regression task with places and a split file."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({
        "Latitude": rng.uniform(36, 36.3, n),
        "Longitude": rng.uniform(-120, -119.7, n),
    })  # fmt: skip
    frame["target"] = frame["Latitude"] + rng.normal(size=n) / 10
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / "california.parquet")
    parts = pd.DataFrame({"part": np.resize(["train", "train", "val", "test"], n)})
    parts.to_parquet(folder / "california.split.parquet")
    return frame

import numpy as np
import pytest

from reliability import bits

pytest.importorskip("numba")


def test_versions_are_asked_in_many_ways(monkeypatch):
    name, model = next(bits.models())
    monkeypatch.setattr(bits, "models", lambda: [(name, model)])
    (trial,) = bits.run(3, seed=0)
    assert trial.held
    assert trial.counts["versions"] == 3
    assert trial.counts["loads"] == 1
    assert trial.counts["rows asked"] == 4 * bits.N_ROWS


def test_other_bits_are_counted(monkeypatch):
    name, model = next(bits.models())
    monkeypatch.setattr(bits, "models", lambda: [(name, model)])
    ask = bits._answers

    def rounded(model, rows):
        first, *others = ask(model, rows)
        return [np.nextafter(first, np.inf) if len(rows) == 1 else first, *others]

    monkeypatch.setattr(bits, "_answers", rounded)
    (trial,) = bits.run(1, seed=0)
    assert not trial.held
    assert trial.counts["other bits"] >= 2

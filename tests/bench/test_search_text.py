"""What a search found, as a person reads it."""

from __future__ import annotations

from tabr.bench.search_text import best_text, constructor_text
from tabr.bench.tasks.catalog import select


def test_the_best_is_shown_as_a_constructor_or_as_parameters():
    (churn,) = select(["churn"])
    params = {"width": 96, "embedding_width": 16, "frequency_scale": 0.1}
    assert constructor_text(params, "tabr", churn) == (
        "TabRClassifier(preset='paper', width=96,"
        " embedding=EmbeddingConfig('plr-lite', width=16, frequency_scale=0.1))"
    )
    text = constructor_text({"width": 96}, "tabr-d", churn)
    assert text == "TabRClassifier(preset='default', width=96)"
    text = best_text(
        {
            "method": "tabr-s",
            "params": {"width": 96},
            "metric": "log-loss",
            "val": 0.5,
            "trials": 4,
            "pruned": 0,
            "scoring": "log-loss",
        },
        churn,
    )
    assert "TabRClassifier(preset='paper', width=96, scoring='log-loss')" in text
    assert text.endswith("--methods tabr-s --config retuned --scoring log-loss")
    best = {"method": "mlp", "params": {"width": 96}, "metric": "accuracy", "val": 0.8}
    lines = best_text({**best, "trials": 4, "pruned": 2}, churn).splitlines()
    assert lines == [
        "mlp on churn split 0: validation accuracy 0.8, the best of 4 trials (2 more"
        " ended early), with",
        "  width = 96",
        "test rows have not been looked at: run it with --methods mlp --config retuned",
    ]

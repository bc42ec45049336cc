"""The command `evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tabr.cli.files import (
    feature_columns,
    model_argument,
    read_inputs,
    table_argument,
    target_of,
    target_option,
)
from tabr.cli.messages import common, show, show_json


@click.command()
@model_argument
@table_argument
@target_option
@common
def evaluate(model_file: Path, table: Path, target: str | None, as_json: bool) -> None:
    """Score the predictions for TABLE, beside a constant one."""
    model, frame = read_inputs(model_file, table)
    target = target_of(model, frame, target, table)
    scores, constant = _scores(model, feature_columns(model, frame), frame[target])
    if as_json:
        about = {"target": target, "rows": len(frame)}
        show_json({**about, "model": scores, "constant": constant})
        return
    from tabr.text import aligned, number, score

    lines = [["", "model", "constant"]]
    lines += [[name, score(scores[name]), score(constant[name])] for name in scores]
    lines.append(["rows", number(len(frame)), ""])
    show("\n".join(aligned(lines, "lr", gap=4)))


def _scores(
    model: Any, rows: Any, labels: Any
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the scores of the model, and of the usual label of its candidates."""
    import numpy as np

    from tabr.metrics import class_scores, value_scores

    truth, labels_of_candidates = model.target_.read(labels), model.candidates_.y
    if not hasattr(model, "classes_"):
        mean = np.full(len(truth), labels_of_candidates.mean())
        return value_scores(truth, model.predict(rows)), value_scores(truth, mean)
    codes = model.target_.encode(truth)
    counts = np.bincount(
        model.target_.encode(labels_of_candidates), minlength=len(model.classes_)
    )
    shares = np.tile(counts / counts.sum(), (len(codes), 1))
    return class_scores(codes, model.predict_proba(rows)), class_scores(codes, shares)

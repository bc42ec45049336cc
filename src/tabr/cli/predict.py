"""The commands `predict` and `evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tabr.cli import options
from tabr.cli.messages import Mistake, Result, common


@click.command()
@options.model
@options.table
@options.output(metavar="OUT", help="A file, not stdout.")
@click.option("--proba", is_flag=True, help="A column of probabilities for each class.")
@common
def predict(model_file: Path, table: Path, output: Path | None, proba: bool) -> Result:
    """Predict the rows of TABLE, as CSV on stdout or as a file."""
    options.check_table_output(output, table, model_file)
    model, frame = options.read_inputs(model_file, table)
    if proba and not hasattr(model, "classes_"):
        raise Mistake("--proba is for classes, however the model predicts numbers")
    import pandas as pd

    from tabr.tables.files import write_table

    rows = options.feature_columns(model, frame)
    if proba:
        names = model.classes_.astype(str)
        result = pd.DataFrame(model.predict_proba(rows), columns=names)
    else:
        result = pd.DataFrame({"prediction": model.predict(rows)})
    if output is not None:
        write_table(result, output)
        message = f"wrote {len(result)} predictions to {output}"
        return Result({"output": str(output), "rows": len(result)}, message=message)
    columns: dict[str, Any] = {str(name): result[name].to_numpy() for name in result}
    record = {"probabilities": columns} if proba else columns
    return Result(record, result.to_csv(index=False).removesuffix("\n"))


@click.command()
@options.model
@options.table
@options.target
@common
def evaluate(model_file: Path, table: Path, target: str | None) -> Result:
    """Score the predictions for TABLE, beside a constant one."""
    model, rows, labels = options.read_labelled(model_file, table, target)
    scores, constant = _scores(model, options.feature_columns(model, rows), labels)
    from tabr.text import aligned, number, score

    lines = [["", "model", "constant"]]
    lines += [[name, score(scores[name]), score(constant[name])] for name in scores]
    lines.append(["rows", number(len(rows)), ""])
    record = {"target": labels.name, "rows": len(rows), "model": scores}
    return Result(
        {**record, "constant": constant}, "\n".join(aligned(lines, "lr", gap=4))
    )


def _scores(
    model: Any, rows: Any, labels: Any
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the scores of the model, and of the usual label of its candidates."""
    import numpy as np

    from tabr.metrics import class_scores, value_scores

    target = model.target_
    truth = target.read(labels)
    usual = target.usual(model.candidates_.y)
    if target.classes is None:
        constant = np.full(len(truth), usual)
        return value_scores(truth, model.predict(rows)), value_scores(truth, constant)
    codes, constant = target.encode(truth), np.tile(usual, (len(truth), 1))
    scores = class_scores(codes, model.predict_proba(rows))
    return scores, class_scores(codes, constant)

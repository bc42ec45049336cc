"""The command `predict`."""

from __future__ import annotations

from pathlib import Path

import click

from tabr.cli.files import (
    check_table_output,
    feature_columns,
    model_argument,
    read_inputs,
    table_argument,
    table_output_option,
)
from tabr.cli.messages import Mistake, common, say, show_json


@click.command()
@model_argument
@table_argument
@table_output_option("A file, not stdout.")
@click.option("--proba", is_flag=True, help="A column of probabilities for each class.")
@common
def predict(
    model_file: Path, table: Path, output: Path | None, proba: bool, as_json: bool
) -> None:
    """Predict the rows of TABLE, as CSV on stdout or as a file."""
    check_table_output(output, table, model_file)
    model, frame = read_inputs(model_file, table)
    if proba and not hasattr(model, "classes_"):
        raise Mistake("--proba is for classes, however the model predicts numbers")
    import pandas as pd

    rows = feature_columns(model, frame)
    if proba:
        names = model.classes_.astype(str)
        result = pd.DataFrame(model.predict_proba(rows), columns=names)
    else:
        result = pd.DataFrame({"prediction": model.predict(rows)})
    if output is not None:
        from tabr.tables.files import write_table

        write_table(result, output)
        if as_json:
            show_json({"output": str(output), "rows": len(result)})
        else:
            say(f"wrote {len(result)} predictions to {output}")
    elif as_json:
        columns = {str(name): result[name].to_numpy() for name in result}
        show_json({"probabilities": columns} if proba else columns)
    else:
        click.echo(result.to_csv(index=False), nl=False)

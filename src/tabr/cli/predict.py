"""The commands `predict`, `evaluate`, `neighbors` and `explain`: a model on a table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from tabr.cli import options
from tabr.cli.messages import Mistake, Result, common, terminal_width


@click.command()
@options.model
@options.table
@options.output(metavar="OUT", help="A file, not stdout.")
@click.option("--proba", is_flag=True, help="A column of probabilities for each class.")
@click.option("--key", type=options.input_type, help="A public key that signed MODEL.")
@common
def predict(
    model_file: Path, table: Path, output: Path | None, proba: bool, key: Path | None
) -> Result:
    """Predict the rows of TABLE, as CSV on stdout or as a file."""
    options.check_table_output(output, table, model_file)
    model, frame = options.read_inputs(model_file, table, key)
    if proba and not hasattr(model, "classes_"):
        raise Mistake("--proba is for classes, however the model predicts numbers")
    import pandas as pd

    from tabr.tables.csv import to_csv
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
    return Result(record, to_csv(result).removesuffix("\n"))


@click.command()
@options.model
@options.table
@options.target
@common
def evaluate(model_file: Path, table: Path, target: str | None) -> Result:
    """Score the predictions for TABLE, beside a constant one."""
    model, rows, labels = options.read_labelled(model_file, table, target)
    scores, constant = _scores(model, rows, labels)
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


# --- where predictions come from ----------------------------------------------------

rows_option = options.integers(
    "--rows", metavar="0,5,7", help="Which rows, from 0.  [default: all]"
)
m_option = options.count("-m", default=5, help="Neighbours of each row that are shown.")


@click.command()
@options.model
@options.table
@rows_option
@m_option
@common
def neighbors(model_file: Path, table: Path, rows: list[int] | None, m: int) -> Result:
    """Show which rows the predictions for TABLE came from."""
    model, frame, rows = _read(model_file, table, rows)
    return _cases(model, frame, rows, m)


@click.command()
@options.model
@options.table
@rows_option
@m_option
@options.output(metavar="OUT", help="A table of all neighbours.")
@common
def explain(
    model_file: Path, table: Path, rows: list[int] | None, m: int, output: Path | None
) -> Result:
    """Show which rows predictions came from, and what each one did."""
    options.check_table_output(output, table, model_file)
    model, frame, rows = _read(model_file, table, rows)
    if output is None:
        return _cases(model, frame, rows, m, effects=True)
    from tabr.tables.files import write_table

    explained = model.explain(frame.iloc[rows]).to_frame()
    explained["row"] = [rows[row] for row in explained["row"]]
    write_table(explained, output)
    n = len(explained)
    message = f"wrote {n} neighbours of {len(rows)} rows to {output}"
    return Result({"output": str(output), "lines": n}, message=message)


def _read(
    model_file: Path, table: Path, rows: list[int] | None
) -> tuple[Any, Any, list[int]]:
    """Return a model, the columns that it reads, and the rows that are asked for."""
    model, frame = options.read_inputs(model_file, table)
    n = len(frame)
    if rows is None:
        rows = list(range(n))
    if not all(0 <= row < n for row in rows):
        text = ",".join(map(str, rows))
        raise Mistake(f"--rows must be from 0 to {n - 1}, however: {text!r}")
    return model, options.feature_columns(model, frame), rows


def _cases(
    model: Any, frame: Any, rows: list[int], m: int, *, effects: bool = False
) -> Result:
    """Return rows with their neighbours."""
    from tabr.cli.neighbor_view import case_lines, differing_columns, make_cases

    cases = make_cases(model, frame, rows, m, effects=effects)
    records = [dataclasses.asdict(case) for case in cases]
    for record in records:
        del record["truth"]  # which these commands do not read
    columns = differing_columns(model, cases)
    lines = case_lines(cases, columns, terminal_width(), distances=True)
    return Result({"rows": records}, "\n".join(lines).lstrip("\n"))

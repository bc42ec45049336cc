"""The command line: parses, calls the library, and words what went wrong.

Results go to stdout, messages to stderr. A user's mistake is one sentence and exit
code 2. What is slow to import is imported by the command that needs it.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from tabr import __version__
from tabr.cli.audit import audit
from tabr.cli.bench import bench
from tabr.cli.files import (
    check_output,
    features,
    load_model_file,
    model_argument,
    output_type,
    read_table,
    suffix_of,
    table_argument,
    target_of,
    write_table,
)
from tabr.cli.fit import fit
from tabr.cli.memory import add, remove
from tabr.cli.messages import Commands, Mistake, common, debug, say, show, show_json
from tabr.cli.report import report
from tabr.cli.serve import serve
from tabr.cli.tune import tune

rows_option = click.option(
    "--rows", metavar="0,5,7", help="Which rows, from 0.  [default: all]"
)
m_option = click.option(
    "-m",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Neighbours of each row that are shown.",
)
DEMO_TABLES = ("diabetes", "breast-cancer", "wine", "digits")
DEMO_MEMBERS = 5


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88},
)
@click.version_option(__version__, message="tabr %(version)s")
@debug
@click.pass_context
def main(context: click.Context) -> None:
    """Learn from tables, and see which rows a prediction came from.

    Tables are CSV (commas, semicolons or tabs; also .gz), Parquet or Feather.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


main.add_command(fit)
main.add_command(audit)
main.add_command(add)
main.add_command(remove)
main.add_command(report)
main.add_command(bench)
main.add_command(tune)
main.add_command(serve)


@main.command()
@model_argument
@table_argument
@click.option(
    "-o", "--output", metavar="OUT", type=output_type, help="A file, not stdout."
)
@click.option("--proba", is_flag=True, help="A column of probabilities for each class.")
@common
def predict(
    model_file: Path, table: Path, output: Path | None, proba: bool, as_json: bool
) -> None:
    """Predict the rows of TABLE, as CSV on stdout or as a file."""
    if output is not None:
        check_output(output, [table, model_file])
        suffix_of(output)
    frame, model = read_table(table), load_model_file(model_file)
    import pandas as pd

    if proba and not hasattr(model, "classes_"):
        raise Mistake("--proba is for classes, however the model predicts numbers")
    rows = features(model, frame)
    if proba:
        result = pd.DataFrame(
            model.predict_proba(rows), columns=model.classes_.astype(str)
        )
    else:
        result = pd.DataFrame({"prediction": model.predict(rows)})
    if output is not None:
        write_table(result, output)
    columns = {str(name): result[name].to_numpy() for name in result}
    if as_json and output is not None:
        show_json({"output": str(output), "rows": len(result)})
    elif as_json:
        show_json({"probabilities": columns} if proba else columns)
    elif output is not None:
        say(f"wrote {len(result)} predictions to {output}")
    else:
        click.echo(result.to_csv(index=False), nl=False)


@main.command()
@model_argument
@table_argument
@click.option("--target", metavar="COL", help="The column with the truth.")
@common
def evaluate(model_file: Path, table: Path, target: str | None, as_json: bool) -> None:
    """Score the predictions for TABLE, beside a constant one."""
    frame, model = read_table(table), load_model_file(model_file)
    target = target_of(model, frame, target, table)
    import numpy as np

    from tabr.metrics import class_scores, value_scores

    rows, labels = features(model, frame), model.candidates_.y
    truth = model.target_.read(frame[target])
    if hasattr(model, "classes_"):
        codes = model.target_.encode(truth)
        counts = np.bincount(
            model.target_.encode(labels), minlength=len(model.classes_)
        )
        shares = np.tile(counts / counts.sum(), (len(codes), 1))
        scores = class_scores(codes, model.predict_proba(rows))
        constant = class_scores(codes, shares)
    else:
        scores = value_scores(truth, model.predict(rows))
        constant = value_scores(truth, np.full(len(truth), labels.mean()))
    if as_json:
        show_json(
            {
                "target": target,
                "rows": len(frame),
                "model": scores,
                "constant": constant,
            }
        )
        return
    lines = [f"{'':<18}{'model':>12}{'constant':>12}"]
    lines += [f"{k:<18}{v:>12.4g}{constant[k]:>12.4g}" for k, v in scores.items()]
    show("\n".join([*lines, f"{'rows':<18}{len(frame):>12}"]))


def _read_rows(text: str | None, n: int) -> list[int]:
    if text is None:
        return list(range(n))
    try:
        rows = [int(part) for part in text.split(",")]
    except ValueError:
        rows = [-1]
    if not all(0 <= row < n for row in rows):
        raise Mistake(
            f"--rows must be like 0,5,7, each less than {n}, however: {text!r}"
        )
    return rows


@main.command()
@model_argument
@table_argument
@rows_option
@m_option
@common
def neighbors(
    model_file: Path, table: Path, rows: str | None, m: int, as_json: bool
) -> None:
    """Show which training rows the predictions for TABLE came from."""
    frame, model = read_table(table), load_model_file(model_file)
    _show_cases(model, features(model, frame), _read_rows(rows, len(frame)), m, as_json)


def _show_cases(
    model: Any, frame: Any, rows: list[int], m: int, as_json: bool, **more: bool
) -> None:
    """Show rows with their neighbours, as text or as JSON."""
    from tabr.cli.neighbor_view import case_lines, make_cases, telling_columns

    cases = make_cases(model, frame, rows, m, **more)
    if as_json:
        found = [dataclasses.asdict(case) for case in cases]
        show_json({"rows": [{k: c[k] for k in c if k != "truth"} for c in found]})
        return
    lines = case_lines(cases, telling_columns(model, cases), _width(), distances=True)
    show("\n".join(lines).lstrip("\n"))


@main.command()
@model_argument
@table_argument
@rows_option
@m_option
@click.option(
    "-o", "--output", metavar="OUT", type=output_type, help="A table of all neighbours."
)
@common
def explain(
    model_file: Path,
    table: Path,
    rows: str | None,
    m: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Show where the predictions for TABLE come from, and what each neighbour did."""
    if output is not None:
        check_output(output, [table, model_file])
        suffix_of(output)
    frame, model = read_table(table), load_model_file(model_file)
    chosen = _read_rows(rows, len(frame))
    known = features(model, frame)
    if output is not None:
        found = model.explain(known.iloc[chosen]).to_frame()
        found["row"] = [chosen[row] for row in found["row"]]
        write_table(found, output)
        if as_json:
            show_json({"output": str(output), "lines": len(found)})
        else:
            say(f"wrote {len(found)} neighbours of {len(chosen)} rows to {output}")
        return
    _show_cases(model, known, chosen, m, as_json, effects=True)


def _width() -> int:
    return max(60, min(120, shutil.get_terminal_size().columns))


@main.command()
@click.option(
    "--table", type=click.Choice(DEMO_TABLES), default=DEMO_TABLES[0], show_default=True
)
@click.option(
    "--members",
    type=click.IntRange(1),
    default=DEMO_MEMBERS,
    show_default=True,
    help="Networks whose predictions are averaged.",
)
@click.option("--serve", "served", is_flag=True, help="Serve the model over HTTP.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Where to serve it.",
)
@common
def demo(table: str, members: int, served: bool, port: int, as_json: bool) -> None:
    """Fit TabR and two baselines on a real table, without a download."""
    if served:
        from tabr.cli.serve import serve_demo

        serve_demo(table, members, port)
        return
    from tabr.cli.demo import render, run

    result = run(table, members, verbose=sys.stderr.isatty(), say=say)
    if as_json:
        values = dataclasses.asdict(result)
        show_json({key: values[key] for key in values if key != "ranked"})
    else:
        show(render(result, _width()))

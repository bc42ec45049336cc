"""The page: sections are measured, drawn, and set in a template."""

from __future__ import annotations

import datetime
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from tabr import __version__
from tabr.optional import require
from tabr.report import charts
from tabr.report.attention import FAR, measure_attention
from tabr.report.baselines import SMALLER_IS_BETTER, score_methods
from tabr.report.columns import MOST_COLUMNS, compare_columns
from tabr.report.evaluation import (
    COVERAGE,
    Evaluation,
    Model,
    evaluate,
    share_from_retrieval,
)
from tabr.report.examples import Example, make_examples, value_texts
from tabr.report.facts import model_facts
from tabr.report.reliability import (
    measure_confusion,
    measure_coverage,
    measure_reliability,
)
from tabr.tables.coordinates import find_coordinates
from tabr.tables.files import write_bytes
from tabr.text import cell, number, percent, score, short

AnyPath = str | os.PathLike[str]
MOST_NAMED = 50  # rows that an audit's findings name, on the page

# Neither HTML nor a reader has a use for them.
_CONTROLS = {code: None for code in range(32) if chr(code) not in "\t\n"} | {127: None}


def report(
    model: Model,
    X: Any,
    y: Any,
    *,
    title: str | None = None,
    audit: bool = False,
    model_file: AnyPath | None = None,
) -> str:
    """Return one HTML page about a fitted model and rows that it has not seen.

    The page holds all it needs: no script, no font, style or picture from elsewhere.
    It shows values of rows, of the table and of the candidates.

    Args:
        model: A fitted classifier or regressor.
        X: Rows that the model was not fitted on, with the columns of `fit`.
        y: Their labels (n,); the name of a series names what is predicted.
        title: Of the page; None names what is predicted.
        audit: Look for leaks, copies and drift too; it takes a while.
        model_file: The file of the model, to tell its size.
    """
    require("matplotlib", "report")  # before the work, not after it
    require("jinja2", "report")
    evaluation = evaluate(model, X, y)
    examples = make_examples(evaluation)
    now = datetime.datetime.now().astimezone()
    values = {
        "title": title or f"How {short(evaluation.target)} is predicted",
        "version": __version__,
        "when": now.strftime("%Y-%m-%d %H:%M"),
        "n": len(evaluation),
        "n_table": evaluation.n_table,
        "n_candidates": len(model.candidates_),
        "is_number": evaluation.codes is None,
        "coverage": COVERAGE,
        "label": value_texts(evaluation).label,
        "facts": model_facts(
            evaluation, None if model_file is None else Path(model_file)
        ),
        "data": _data(evaluation),
        "training": _training(evaluation),
        "scores": _scores(evaluation),
        "retrieval": _retrieval(evaluation),
        "trust": _trust(evaluation),
        "attention": _attention(evaluation),
        "examples": examples,
        "map": _map(evaluation, examples),
        "audit": _audit(evaluation) if audit else None,
    }
    return _render(values)


def save_report(model: Model, X: Any, y: Any, path: AnyPath, **options: Any) -> None:
    """Write the page to a file, whole or not at all; options as `report` takes them."""
    page = report(model, X, y, **options)
    write_bytes(Path(path), page.encode("utf-8"))


def _render(values: dict[str, Any]) -> str:
    """Return the template with values set in."""
    jinja: Any = require("jinja2", "report")
    environment = jinja.Environment(
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"number": number, "score": score, "percent": percent, "cell": cell}
    environment.filters |= filters
    text = files("tabr.report").joinpath("page.html.jinja").read_text("utf-8")
    page: str = environment.from_string(text).render(values)
    # Half of a pair, as broken texts hold it, cannot be written.
    return page.translate(_CONTROLS).encode("utf-8", "replace").decode("utf-8")


def _svg(text: str) -> Any:
    """Mark what matplotlib has escaped already."""
    return require("markupsafe", "report").Markup(text)


def _data(evaluation: Evaluation) -> dict[str, Any]:
    lines = compare_columns(evaluation)
    n = len(evaluation.model.preprocessor_.kinds_)
    return {"lines": lines, "n_hidden": n - len(lines), "most": MOST_COLUMNS}


def _training(evaluation: Evaluation) -> dict[str, Any] | None:
    history = evaluation.model.history_
    if history.empty:
        return None
    best = evaluation.model.best_epoch_
    default = evaluation.model.scoring is None
    name = "validation score"
    if default:
        name = "validation RMSE" if evaluation.codes is None else "validation accuracy"
    pictures = [
        charts.training(history, best, "loss", "training loss"),
        charts.training(history, best, "score", name),
    ]
    if "context_change" in history:
        change = charts.training(history, best, "context_change", "Delta-context")
        pictures.append(change)
    return {
        "pictures": [_svg(picture) for picture in pictures],
        "score": name,
        "epochs": [epoch + 1 for epoch in best],
    }


def _scores(evaluation: Evaluation) -> dict[str, Any]:
    methods = score_methods(evaluation)
    names = list(methods[0].scores)
    best = {}
    for name in names:
        values = np.array([method.scores[name] for method in methods])
        if not np.isnan(values).all():
            order = values if name in SMALLER_IS_BETTER else -values
            best[name] = int(np.nanargmin(order))
    return {
        "methods": methods,
        "names": names,
        "best": best,
        "smaller": SMALLER_IS_BETTER,
        "main": names[0],
        "rival": methods[-1],
        "has_rule": evaluation.model.candidates is not None,
    }


def _retrieval(evaluation: Evaluation) -> dict[str, Any]:
    share, n = share_from_retrieval(evaluation)
    return {"share": share, "n": n}


def _trust(evaluation: Evaluation) -> dict[str, Any]:
    covered = measure_coverage(evaluation)
    what = "intervals" if evaluation.codes is None else "sets"
    pictures = []
    section: dict[str, Any] = {"coverage": covered, "what": what}
    if evaluation.codes is None:
        pictures += [
            charts.predicted_and_true(evaluation),
            charts.residuals(evaluation),
        ]
    else:
        reliable = measure_reliability(evaluation)
        pictures.append(charts.reliability(reliable))
        section["reliability"] = reliable
        section["confusion"] = measure_confusion(evaluation)
    if covered is not None:
        pictures.append(charts.coverage(covered, what))
    return section | {"pictures": [_svg(picture) for picture in pictures]}


def _attention(evaluation: Evaluation) -> dict[str, Any]:
    measured = measure_attention(evaluation)
    effective, heaviest = measured.effective, measured.heaviest
    pictures = []
    if len(effective):
        pictures = [
            charts.histogram("effective", effective, "effective number of neighbours"),
            charts.histogram(
                "heaviest", heaviest, "weight of the heaviest neighbour", shares=True
            ),
        ]
    return {
        "measured": measured,
        "effective": float(np.median(effective)) if pictures else np.nan,
        "heaviest": float(np.median(heaviest)) if pictures else np.nan,
        "far": FAR,
        # Of n rows that were held out, no new row is rarer than 1 in n + 1.
        "tells_far": len(evaluation.model.calibration_.distances) * FAR >= 1,
        "pictures": [_svg(picture) for picture in pictures],
    }


def _map(evaluation: Evaluation, examples: list[Example]) -> dict[str, Any] | None:
    kinds = evaluation.model.preprocessor_.kinds_
    names = find_coordinates(evaluation.frame, kinds)
    if names is None:
        return None
    shown = next((e for e in examples if e.why == "Typical"), examples[0])
    pictures = [charts.error_map(evaluation, names)]
    degrees = evaluation.frame[list(names)].iloc[shown.at]
    if shown.lines and degrees.notna().all():
        pictures.append(charts.neighbor_map(evaluation, names, shown.at))
    return {"pictures": [_svg(picture) for picture in pictures], "example": shown}


def _audit(evaluation: Evaluation) -> dict[str, Any]:
    from tabr.audit import audit

    candidates = evaluation.model.candidates_
    shared = [c for c in candidates.columns if c in evaluation.frame.columns]
    result = audit(
        candidates.frame[shared],
        candidates.y,
        evaluation.frame,
        evaluation.truth,
        model=evaluation.model,
    )
    rows = result.to_frame()
    return {
        "findings": result.findings,
        "notes": result.notes,
        "heads": list(rows.columns),
        "lines": rows.head(MOST_NAMED).to_numpy(object).tolist(),
        "n_named": len(rows),
    }

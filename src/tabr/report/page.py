"""The page: sections are gathered, drawn, and set in a template."""

from __future__ import annotations

import datetime
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tabr import __version__
from tabr.optional import require
from tabr.report import charts
from tabr.report.attention import FAR, measure_attention
from tabr.report.baselines import SMALLER_IS_BETTER, score_methods
from tabr.report.columns import MOST_COLUMNS, compare_columns
from tabr.report.evidence import (
    COVERAGE,
    Evidence,
    Model,
    gather,
    share_from_retrieval,
)
from tabr.report.examples import Example, make_examples, make_writers
from tabr.report.places import find_coordinates
from tabr.report.trust import (
    measure_confusion,
    measure_coverage,
    measure_reliability,
)
from tabr.report.words import rule_words
from tabr.tables.files import write_bytes
from tabr.text import cell, number, percent, score, short, size_of

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
        title: Of the page; None says what is predicted.
        audit: Look for leaks, copies and drift too; it takes a while.
        model_file: The file of the model, to tell its size.
    """
    require("matplotlib", "report")  # before the work, not after it
    jinja: Any = require("jinja2", "report")
    evidence = gather(model, X, y)
    examples = make_examples(evidence)
    now = datetime.datetime.now().astimezone()
    values = {
        "title": title or f"How {short(evidence.target)} is predicted",
        "target": evidence.target,
        "version": __version__,
        "when": now.strftime("%Y-%m-%d %H:%M"),
        "n": len(evidence),
        "n_given": evidence.n_given,
        "n_candidates": len(model.candidates_),
        "is_number": evidence.codes is None,
        "coverage": COVERAGE,
        "label": make_writers(evidence).label,
        "facts": _facts(evidence, model_file),
        "data": _data(evidence),
        "training": _training(evidence),
        "scores": _scores(evidence),
        "retrieval": _retrieval(evidence),
        "trust": _trust(evidence),
        "attention": _attention(evidence),
        "examples": examples,
        "map": _map(evidence, examples),
        "audit": _audit(evidence) if audit else None,
    }
    environment = jinja.Environment(
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    writers = {"number": number, "score": score, "percent": percent, "cell": cell}
    environment.filters |= writers
    text = files("tabr.report").joinpath("page.html.jinja").read_text("utf-8")
    page: str = environment.from_string(text).render(values)
    # Half of a pair, as broken texts hold it, cannot be written.
    return page.translate(_CONTROLS).encode("utf-8", "replace").decode("utf-8")


def save_report(model: Model, X: Any, y: Any, path: AnyPath, **options: Any) -> None:
    """Write the page to a file, whole or not at all; options as `report` takes them."""
    page = report(model, X, y, **options)
    write_bytes(Path(path), page.encode("utf-8"))


def _svg(text: str) -> Any:
    """Mark what matplotlib has escaped already."""
    return require("markupsafe", "report").Markup(text)


def _facts(evidence: Evidence, model_file: AnyPath | None) -> list[tuple[str, str]]:
    model = evidence.model
    kinds = pd.Series(list(model.preprocessor_.kinds_.values()))
    counts = [f"{n} {kind}" for kind, n in kinds.value_counts().items()]
    dropped = len(model.preprocessor_.dropped)
    counts += [f"{dropped} constant, not used"] if dropped else []
    task = "a number"
    if evidence.classes is not None:
        n = len(evidence.classes)
        task = f"one of {n} classes"
        if n <= 5:
            task += ": " + ", ".join(cell(label) for label in evidence.classes)
    facts = [
        ("Predicted", f"{evidence.target}, {task}"),
        ("Networks", number(len(model.members_))),
        ("Candidates", f"{len(model.candidates_):,} rows that may be retrieved"),
        ("Context", f"{model.context_size} neighbours of each row"),
        ("Columns", ", ".join(counts)),
    ]
    if model.candidates is not None:
        facts.append(("Rule", rule_words(model.candidates)))
    if model_file is not None:
        facts.append(("File", size_of(Path(model_file).stat().st_size)))
    return facts


def _data(evidence: Evidence) -> dict[str, Any]:
    lines = compare_columns(evidence)
    n = len(evidence.model.preprocessor_.kinds_)
    return {"lines": lines, "n_hidden": n - len(lines), "most": MOST_COLUMNS}


def _training(evidence: Evidence) -> dict[str, Any] | None:
    history = evidence.model.history_
    if history.empty:
        return None
    best = evidence.model.best_epoch_
    default = evidence.model.scoring is None
    name = "validation score"
    if default:
        name = "validation RMSE" if evidence.codes is None else "validation accuracy"
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
        "context_change": "context_change" in history,
        "epochs": [epoch + 1 for epoch in best],
    }


def _scores(evidence: Evidence) -> dict[str, Any]:
    methods = score_methods(evidence)
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
        "has_rule": evidence.model.candidates is not None,
    }


def _retrieval(evidence: Evidence) -> dict[str, Any]:
    share, n = share_from_retrieval(evidence)
    return {"share": share, "n": n}


def _trust(evidence: Evidence) -> dict[str, Any]:
    covered = measure_coverage(evidence)
    what = "intervals" if evidence.codes is None else "sets"
    pictures = []
    found: dict[str, Any] = {"coverage": covered, "what": what}
    if evidence.codes is None:
        pictures += [charts.predicted_and_true(evidence), charts.residuals(evidence)]
    else:
        reliable = measure_reliability(evidence)
        pictures.append(charts.reliability(reliable))
        found |= {"reliability": reliable, "confusion": measure_confusion(evidence)}
    if covered is not None:
        pictures.append(charts.coverage(covered, what))
    return found | {"pictures": [_svg(picture) for picture in pictures]}


def _attention(evidence: Evidence) -> dict[str, Any]:
    found = measure_attention(evidence)
    pictures = []
    if len(found.effective):
        effective, heaviest = found.effective, found.heaviest
        pictures = [
            charts.histogram("effective", effective, "effective number of neighbours"),
            charts.histogram(
                "heaviest", heaviest, "weight of the heaviest neighbour", shares=True
            ),
        ]
    middle = {
        "effective": float(np.median(found.effective)) if pictures else np.nan,
        "heaviest": float(np.median(found.heaviest)) if pictures else np.nan,
    }
    return {
        "found": found,
        "far": FAR,
        # Of n rows that were held out, no new row is rarer than 1 in n + 1.
        "tells_far": len(evidence.model.calibration_.distances) * FAR >= 1,
        "pictures": [_svg(picture) for picture in pictures],
        **middle,
    }


def _map(evidence: Evidence, examples: list[Example]) -> dict[str, Any] | None:
    kinds = evidence.model.preprocessor_.kinds_
    at = find_coordinates(evidence.frame, kinds)
    if at is None:
        return None
    shown = next((e for e in examples if e.why == "Typical"), examples[0])
    pictures = [charts.error_map(evidence, at)]
    here = evidence.frame[list(at)].iloc[shown.at]
    if shown.lines and here.notna().all():
        pictures.append(charts.neighbor_map(evidence, at, shown.at))
    return {"pictures": [_svg(picture) for picture in pictures], "example": shown}


def _audit(evidence: Evidence) -> dict[str, Any]:
    from tabr.audit import audit

    candidates = evidence.model.candidates_
    shared = [c for c in candidates.columns if c in evidence.frame.columns]
    found = audit(
        candidates.frame[shared],
        candidates.y,
        evidence.frame,
        evidence.truth,
        model=evidence.model,
    )
    named = found.to_frame()
    return {
        "findings": found.findings,
        "notes": found.notes,
        "heads": list(named.columns),
        "lines": named.head(MOST_NAMED).to_numpy(object).tolist(),
        "n_named": len(named),
    }

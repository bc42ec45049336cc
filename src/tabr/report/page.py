"""The page: sections are measured, drawn, and set in a template."""

from __future__ import annotations

import datetime
import os
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tabr import __version__
from tabr.candidates.rules import Rule, pack_rule
from tabr.optional import require
from tabr.report import charts
from tabr.report.attention import FAR, measure_attention
from tabr.report.baselines import SMALLER_IS_BETTER, score_methods
from tabr.report.columns import compare_columns
from tabr.report.evaluation import (
    COVERAGE,
    Evaluation,
    Model,
    evaluate,
    share_from_retrieval,
)
from tabr.report.examples import Example, make_examples, value_texts
from tabr.report.reliability import (
    measure_confusion,
    measure_coverage,
    measure_reliability,
)
from tabr.tables.coordinates import find_coordinates
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
        title: Of the page; None names what is predicted.
        audit: Look for leaks, copies and drift too; it takes a while.
        model_file: The file of the model, to tell its size.
    """
    require("matplotlib", "report")  # before the work, not after it
    require("jinja2", "report")
    evaluation = evaluate(model, X, y)
    examples = make_examples(evaluation)
    share, n_explained = share_from_retrieval(evaluation)
    now = datetime.datetime.now().astimezone()
    values = {
        "title": title or f"How {short(evaluation.target)} is predicted",
        "version": __version__,
        "when": now.strftime("%Y-%m-%d %H:%M"),
        "n": len(evaluation),
        "n_table": evaluation.n_table,
        "n_candidates": len(model.candidates_),
        "n_columns": len(model.preprocessor_.kinds_),
        "is_number": evaluation.codes is None,
        "coverage": COVERAGE,
        "far": FAR,
        "label": value_texts(evaluation).label,
        "facts": _facts(evaluation, model_file),
        "columns": compare_columns(evaluation),
        "training": _training(evaluation),
        "scores": _scores(evaluation),
        "share": share,
        "n_explained": n_explained,
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
    environment.filters |= filters | {"median": _median}
    text = files("tabr.report").joinpath("page.html.jinja").read_text("utf-8")
    page: str = environment.from_string(text).render(values)
    # Half of a pair, as broken texts hold it, cannot be written.
    return page.translate(_CONTROLS).encode("utf-8", "replace").decode("utf-8")


def _median(values: NDArray[np.float64]) -> float:
    return float(np.median(values)) if len(values) else np.nan


def _facts(evaluation: Evaluation, model_file: AnyPath | None) -> list[tuple[str, str]]:
    """Return names of facts about the model with what is so."""
    model = evaluation.model
    kinds = Counter(model.preprocessor_.kinds_.values()).most_common()
    counts = [f"{n} {kind}" for kind, n in kinds]
    n_unused = len(model.preprocessor_.dropped)
    counts += [f"{n_unused} constant or a mere trend, not used"] if n_unused else []
    task = "a number"
    if evaluation.classes is not None:
        n = len(evaluation.classes)
        task = f"one of {n} classes"
        if n <= 5:
            task += ": " + ", ".join(cell(label) for label in evaluation.classes)
    n_candidates = number(len(model.candidates_))
    facts = [
        ("Predicted", f"{evaluation.target}, {task}"),
        ("Networks", number(len(model.members_))),
        ("Candidates", f"{n_candidates} rows that may be retrieved"),
        ("Context", f"{model.context_size_} neighbours of each row"),
        ("Columns", ", ".join(counts)),
    ]
    if model.candidates is not None:
        facts.append(("Rule", rule_text(model.candidates)))
    if model_file is not None:
        facts.append(("File", size_of(os.path.getsize(model_file))))
    return facts


def rule_text(rule: Rule) -> str:
    """Return a sentence about which candidates may be neighbours.

    >>> from tabr.candidates.rules import PastOnly
    >>> rule_text(PastOnly("sold", gap="1D"))
    "A neighbour must come before the row in 'sold', with a gap of 1D."
    """
    return f"A neighbour must {_clause(pack_rule(rule))}."


def _clause(part: Mapping[str, Any]) -> str:
    name = part["rule"]
    if name == "Joined":
        first, second = map(_clause, part["parts"])
        if part["by"] == "&":
            return f"{first}, and {second}"
        return f"either {first}, or {second}"
    if name == "Inverted":
        return f"not {_clause(part['part'])}"
    if name == "PastOnly":
        window = f", at most {part['window']} back" if part["window"] else ""
        gap = f", with a gap of {part['gap']}" if part["gap"] else ""
        return f"come before the row in {part['column']!r}{window}{gap}"
    if name == "SameGroup":
        return f"agree with the row in {part['column']!r}"
    if name == "NotSameGroup":
        return f"differ from the row in {part['column']!r}"
    columns = ", ".join(map(repr, part["reads"]))
    return f"be allowed by a function of {columns}"


def _training(evaluation: Evaluation) -> dict[str, Any] | None:
    history = evaluation.model.history_
    if history.empty:
        return None
    best = evaluation.model.best_epoch_
    score, sign = evaluation.model.stopping_score
    history, name = history.assign(score=sign * history.score), f"validation {score}"
    words = {"loss": "training loss", "score": name, "context_change": "Delta-context"}
    pictures = [
        charts.training(history, best, column, words[column])
        for column in words
        if column in history
    ]
    epochs = [epoch + 1 for epoch in best]
    return {"pictures": pictures, "score": name, "epochs": epochs}


def _scores(evaluation: Evaluation) -> dict[str, Any]:
    methods = score_methods(evaluation)
    table = pd.DataFrame([method.scores for method in methods])
    best = {
        name: column.idxmin() if name in SMALLER_IS_BETTER else column.idxmax()
        for name, column in table.dropna(axis="columns", how="all").items()
    }
    return {
        "methods": methods,
        "names": list(table),
        "best": best,
        "smaller": SMALLER_IS_BETTER,
        "main": table.columns[0],
        "rival": methods[-1],
        "has_rule": evaluation.model.candidates is not None,
    }


def _trust(evaluation: Evaluation) -> dict[str, Any]:
    covered = measure_coverage(evaluation)
    what = "intervals" if evaluation.codes is None else "sets"
    section: dict[str, Any] = {"coverage": covered, "what": what}
    if evaluation.codes is None:
        pictures = [
            charts.predicted_and_true(evaluation),
            charts.residuals(evaluation),
        ]
    else:
        section["reliability"] = measure_reliability(evaluation)
        section["confusion"] = measure_confusion(evaluation)
        pictures = [charts.reliability(section["reliability"])]
    if covered is not None:
        pictures.append(charts.coverage(covered, what))
    return section | {"pictures": pictures}


def _attention(evaluation: Evaluation) -> dict[str, Any]:
    measured = measure_attention(evaluation)
    pictures = []
    if len(measured.effective):
        words = "effective number of neighbours", "weight of the heaviest neighbour"
        pictures = [
            charts.histogram(measured.effective, words[0]),
            charts.histogram(measured.heaviest, words[1], shares=True),
        ]
    return {"measured": measured, "pictures": pictures}


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
    return {"pictures": pictures, "example": shown}


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
    return {"result": result, "rows": result.to_frame(), "most": MOST_NAMED}

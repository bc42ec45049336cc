"""The facts about a model that stand at the head of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tabr.candidates.rules import Rule, pack_rule
from tabr.report.evaluation import Evaluation
from tabr.text import cell, number, size_of


def model_facts(
    evaluation: Evaluation, model_file: Path | None
) -> list[tuple[str, str]]:
    """Return names of facts with what is so."""
    model = evaluation.model
    kinds = Counter(model.preprocessor_.kinds_.values()).most_common()
    counts = [f"{n} {kind}" for kind, n in kinds]
    n_constant = len(model.preprocessor_.dropped)
    counts += [f"{n_constant} constant, not used"] if n_constant else []
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
        ("Context", f"{model.context_size} neighbours of each row"),
        ("Columns", ", ".join(counts)),
    ]
    if model.candidates is not None:
        facts.append(("Rule", rule_text(model.candidates)))
    if model_file is not None:
        facts.append(("File", size_of(model_file.stat().st_size)))
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

"""What a search has found, as text: its best trial, its ensemble, and their code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabr.bench.methods import METHODS
from tabr.bench.methods.tabr import TabRMethod
from tabr.bench.tasks.task import Task
from tabr.bench.trial_ensembles import TrialEnsemble


def best_text(best: Mapping[str, Any], task: Task) -> str:
    """Return the best trial of a search for a terminal, and how to go on with it."""
    metric, name, scoring = best["metric"], best["method"], best.get("scoring")
    pruned = f" ({best['pruned']} more ended early)" if best["pruned"] else ""
    lines = [
        f"{name} on {task.label} split {task.split}: validation {metric}"
        f" {best['val']:.6g}, the best of {best['trials']} trials{pruned}, with"
    ]
    if _is_estimator(name):
        text = constructor_text(_scored(best["params"], scoring), name, task)
        lines.append("  " + text)
    else:
        lines += [f"  {key} = {value!r}" for key, value in best["params"].items()]
    lines.append(
        f"test rows have not been looked at: run it with --methods {name} --config"
        f" retuned{f' --scoring {scoring}' if scoring else ''}"
    )
    return "\n".join(lines)


def ensemble_text(ensemble: TrialEnsemble, task: Task) -> str:
    """Return an ensemble of trials for a terminal, and how to go on with it."""
    name, scoring, metric = ensemble.method, ensemble.scoring, ensemble.metric
    lines = [
        f"{name} on {task.label} split {task.split}: validation {metric}"
        f" {ensemble.val:.6g} of an ensemble of {len(ensemble.members)} of"
        f" {ensemble.trials} trials (the best alone {ensemble.best_val:.6g}), with"
        " weights"
    ]
    for member in ensemble.members:
        if _is_estimator(name):
            text = constructor_text(_scored(member.params, scoring), name, task)
        else:
            pairs = (f"{key}={value!r}" for key, value in member.params.items())
            text = f"trial {member.trial}: {', '.join(pairs)}"
        lines.append(f"  {member.weight:.4f}  {text}")
    if ensemble.temperature != 1:
        lines.append(
            "the mean of the probabilities is taken to the power of"
            f" 1/{ensemble.temperature} and divided by its sum"
        )
    lines += [
        "the validation rows chose the best trial and the weights, so both scores"
        " flatter",
        f"test rows have not been looked at: score it with --methods {name} --config"
        f" retuned-ensemble{f' --scoring {scoring}' if scoring else ''}",
    ]
    return "\n".join(lines)


def _is_estimator(method: str) -> bool:
    return issubclass(METHODS[method].method, TabRMethod)


def _scored(params: Mapping[str, Any], scoring: str | None) -> dict[str, Any]:
    return {**params, **({"scoring": scoring} if scoring else {})}


def constructor_text(params: Mapping[str, Any], method: str, task: Task) -> str:
    """Return the Python code of the estimator with these parameters.

    >>> from tabr.bench.tasks.catalog import select
    >>> constructor_text({"width": 96}, "tabr-s", select(["adult"])[0])
    "TabRClassifier(preset='paper', width=96)"
    """
    arguments = {"preset": "paper", **METHODS[method].fixed, **params}
    kind = arguments.pop("embedding", None)
    names = ("embedding_width", "n_frequencies", "frequency_scale")
    inner = [
        f", {name.removeprefix('embedding_')}={arguments.pop(name)!r}"
        for name in names
        if name in arguments
    ]
    texts = [f"{name}={value!r}" for name, value in arguments.items()]
    if kind is not None:
        texts.append(f"embedding=EmbeddingConfig({kind!r}{''.join(inner)})")
    estimator = "TabRRegressor" if task.kind == "regression" else "TabRClassifier"
    return f"{estimator}({', '.join(texts)})"

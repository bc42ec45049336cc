"""The studies, and their runs: a study's file tells what is done and what is not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from reproduction.results_folder import ResultsFolder
from reproduction.studies import (
    entropy,
    freeze,
    projection,
    rare,
    small,
    through_time,
    time_trees,
)
from reproduction.studies.attention import attention
from reproduction.studies.new_candidates import TABLES, new_candidates
from reproduction.studies.units import Record, Study, Unit
from tabr.errors import DataError
from tabr.tables.files import write_bytes

STUDIES: Mapping[str, Study] = {
    "attention": Study(attention, ("california",)),
    "entropy": Study(entropy.entropy, entropy.TABLES, entropy.OTHERS),
    "projection": Study(projection.projection, projection.TABLES),
    "freeze": Study(freeze.freeze, freeze.TABLES, freeze.OTHERS),
    "new-candidates": Study(new_candidates, TABLES),
    "time": Study(
        through_time.through_time, tuple(name for name, _, _ in through_time.TIMED)
    ),
    "time-trees": Study(
        time_trees.time_trees, time_trees.TABLES, methods=time_trees.METHODS
    ),
    "small": Study(
        small.small, small.TABLES, methods=small.METHODS, n_seeds=small.N_DRAWS
    ),
    "rare": Study(rare.rare, rare.TABLES, methods=rare.METHODS),
}


def run_study(
    name: str,
    folder: Path,
    results: ResultsFolder,
    seeds: Sequence[int] | None,
    params: Record,
    tables: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
) -> Path:
    """Run what is missing of a study; its file is written whole or not at all.

    Args:
        name: Which study.
        folder: Where the tables are.
        results: Where its file is.
        seeds: Seeds of the models; None is as many as the study is meant to have.
        params: Parameters of the models, the same as before if there are records.
        tables: Names of tables; None is all that the study looks at by default.
        methods: Names of methods; None is all, of a study that has any.
    """
    study = STUDIES[name]
    every = *study.tables, *study.others
    tables = study.tables if tables is None else tables
    _check(name, "tables", tables, every)
    _check(name, "methods", methods or (), study.methods)
    path = results.study_path(name)
    records = _records(path, params)
    seeds = range(study.n_seeds) if seeds is None else seeds
    for unit in study.units(tables, folder, seeds, params):
        is_chosen = methods is None or unit.about["method"] in methods
        if not is_chosen or _is_done(unit, records):
            continue
        for record in list(unit.run()):
            records.append({**unit.about, **record})
            print(" ".join(f"{k}={v}" for k, v in records[-1].items()), flush=True)
        _write(name, params, records, path)
    return path


def fold_study(name: str, file: Path, results: ResultsFolder) -> int:
    """Put the records of another file of a study into its own; return their number.

    A unit that is done stays as it is, whatever the other file has of it.
    """
    content = json.loads(file.read_text("utf-8"))
    params, others = content["params"], content["records"]
    path, study = results.study_path(name), STUDIES[name]
    records = _records(path, params)
    n_before = len(records)
    tables = *study.tables, *study.others
    seeds = range(1 + max((record["seed"] for record in others), default=0))
    for unit in study.units(tables, Path(), seeds, params):
        if not _is_done(unit, records):
            records += [r for r in others if unit.about.items() <= r.items()]
    if len(records) > n_before:
        _write(name, params, records, path)
    return len(records) - n_before


def _check(
    name: str, what: str, chosen: Sequence[str], possible: Sequence[str]
) -> None:
    """Refuse tables or methods that a study knows nothing of."""
    unknown = [one for one in chosen if one not in possible]
    if unknown:
        remedy = f"choose --{what} among the former"
        if not possible:
            remedy = f"leave --{what} out"
        raise DataError(
            f"the study {name} looks at {', '.join(possible) or f'no {what}'}; however,"
            f" these came: {', '.join(unknown)}: {remedy}"
        )


def _is_done(unit: Unit, records: Sequence[Record]) -> bool:
    """Whether a record has all that a unit is about."""
    return any(unit.about.items() <= record.items() for record in records)


def _records(path: Path, params: Record) -> list[Record]:
    """Return the records of earlier calls; refuse to mix them with other parameters."""
    if not path.is_file():
        return []
    before = json.loads(path.read_text("utf-8"))
    if _of_models(before["params"]) != _of_models(params):
        raise DataError(
            f"a study has one set of parameters, however {path} has"
            f" {before['params']}, not {params}: choose another --results"
        )
    records: list[Record] = before["records"]
    return records


def _of_models(params: Record) -> Record:
    """Return what makes models others: records name their hardware themselves."""
    return {name: value for name, value in params.items() if name != "device"}


def _write(name: str, params: Record, records: Sequence[Record], path: Path) -> None:
    """Write the file of a study, whole or not at all."""
    # Of all records: those of another call may have had more seeds.
    n_seeds = 1 + max(record["seed"] for record in records)
    command = f"python -m reproduction study {name} --data FOLDER --seeds {n_seeds}"
    content = {"command": command, "params": params, "records": records}
    write_bytes(path, (json.dumps(content, indent=1) + "\n").encode())

"""The studies, and their runs: a study's file tells what is done and what is not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from reproduction.results_folder import ResultsFolder
from reproduction.studies import entropy, freeze, projection, through_time
from reproduction.studies.attention import attention
from reproduction.studies.new_candidates import TABLES, new_candidates
from reproduction.studies.units import Record, Study
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
}


def run_study(
    name: str,
    folder: Path,
    results: ResultsFolder,
    seeds: Sequence[int],
    params: Record,
    tables: Sequence[str] | None = None,
) -> Path:
    """Run what is missing of a study; its file is written whole or not at all.

    Args:
        name: Which study.
        folder: Where the tables are.
        results: Where its file is.
        seeds: Seeds of the models.
        params: Parameters of the models, the same as before if there are records.
        tables: Names of tables; None is all that the study looks at by default.
    """
    chosen = _tables(name, tables)
    path = results.study_path(name)
    records = _records(path, params)
    for unit in STUDIES[name].units(chosen, folder, seeds, params):
        if any(unit.about.items() <= record.items() for record in records):
            continue
        for record in list(unit.run()):
            records.append({**unit.about, **record})
            print(" ".join(f"{k}={v}" for k, v in records[-1].items()), flush=True)
        # Of all records: those of another call may have had more seeds.
        n_seeds = 1 + max(record["seed"] for record in records)
        command = f"python -m reproduction study {name} --data FOLDER --seeds {n_seeds}"
        _write({"command": command, "params": params, "records": records}, path)
    return path


def _tables(name: str, tables: Sequence[str] | None) -> Sequence[str]:
    """Return the tables to look at; refuse those that the study knows nothing of."""
    study = STUDIES[name]
    if tables is None:
        return study.tables
    possible = [*study.tables, *study.others]
    unknown = [table for table in tables if table not in possible]
    if unknown:
        raise DataError(
            f"the study {name} looks at {', '.join(possible)}; however, these came:"
            f" {', '.join(unknown)}: choose --tables among the former"
        )
    return tables


def _records(path: Path, params: Record) -> list[Record]:
    """Return the records of earlier calls; refuse to mix them with other parameters."""
    if not path.is_file():
        return []
    before = json.loads(path.read_text("utf-8"))
    if before["params"] != params:
        raise DataError(
            f"a study has one set of parameters, however {path} has"
            f" {before['params']}, not {params}: choose another --results"
        )
    records: list[Record] = before["records"]
    return records


def _write(content: Record, path: Path) -> None:
    """Write the file of a study, whole or not at all."""
    write_bytes(path, (json.dumps(content, indent=1) + "\n").encode())

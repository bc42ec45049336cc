"""What the audit finds: planted leaks, clean splits, real tables.

    python -m benchmarks.audit --data FOLDER planted
    python -m benchmarks.audit --data FOLDER fresh
    python -m benchmarks.audit --data FOLDER clean
    python -m benchmarks.audit --data FOLDER kddcup99
    python -m benchmarks.audit --data FOLDER facebook
    python -m benchmarks.audit --data FOLDER covtype
    python -m benchmarks.audit page

The last writes the figures of docs/auditing.md anew from `benchmarks/results/audit`,
where each other command writes NAME.json. FOLDER holds one parquet file a table, whose
labels are the column `target`.

A planted leak is made of copies of test rows that are put into the training part.
Numbers are moved by so many ranks of their column, as a share of the training rows:
0.001 moves a number past a thousandth of them. Whole numbers stay whole, and a value
that many rows share mostly stays as it is. Then so many categories of a copy are drawn
anew. Exact repeats are dropped from a table before, as they would count as false alarms
though they are none.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

from benchmarks.report import fill
from tabr.audit import AuditReport, audit
from tabr.tables.files import write_bytes
from tabr.text import ABSENT, markdown_table

PAGE = Path(__file__).parents[1] / "docs" / "auditing.md"
RESULTS = Path(__file__).parent / "results" / "audit"
PLANTED = ("california", "house", "churn", "adult", "diamond", "higgs-small")
# Score and thresholds were chosen by looking at the tables above; not at leaks planted
# in these.
FRESH = ("otto", "beijing-pm25", "bike-sharing", "nycflights13", "covtype")
CLEAN = (*PLANTED, "bike-sharing", "black-friday", "elec2", "kddcup99")
# noise in ranks, categories drawn anew
COPIES = ((0.0001, 0), (0.0003, 1), (0.001, 0), (0.001, 2), (0.003, 0), (0.01, 0))
SHARES = (0.01, 0.05, 0.2)
MAX_ROWS = 24_000


def read(
    folder: Path, name: str, seed: int, max_rows: int = MAX_ROWS
) -> tuple[pd.DataFrame, pd.Series]:
    frame = pd.read_parquet(folder / f"{name}.parquet")
    if len(frame) > max_rows:
        frame = frame.sample(max_rows, random_state=seed)
    frame = frame.reset_index(drop=True)
    for column in frame.columns:
        if isinstance(frame[column].dtype, pd.CategoricalDtype):
            frame[column] = frame[column].astype(str)
    return frame.drop(columns="target"), frame["target"]


def split(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    order = rng.permutation(n)
    return np.sort(order[n // 5 :]), np.sort(order[: n // 5])


def moved(column: pd.Series, values: pd.Series, noise: float, rng: Any) -> np.ndarray:
    """Return values moved by ranks of the column."""
    ordered = np.sort(column.dropna().to_numpy(float))
    n = len(ordered)
    x = values.to_numpy(float)
    sides = (np.searchsorted(ordered, x, side) for side in ("left", "right"))
    rank = (sum(sides) - 1) / 2
    new_rank = np.clip(rank + rng.normal(0, noise * n, len(x)), 0, n - 1)
    places = np.arange(n)
    x = x + np.interp(new_rank, places, ordered) - np.interp(rank, places, ordered)
    return x.round() if (ordered % 1 == 0).all() else x


def plant(
    train: pd.DataFrame,
    test: pd.DataFrame,
    share: float,
    noise: float,
    n_changed: int,
    rng: np.random.Generator,
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the training rows with copies of test rows, and which rows were copied."""
    n_copies = max(1, round(share * len(test)))
    copied = rng.choice(len(test), n_copies, replace=False)
    copies = test.iloc[copied].reset_index(drop=True)
    dates = [c for c in train if is_datetime64_any_dtype(train[c].dtype)]
    numbers = [c for c in train if is_numeric_dtype(train[c].dtype)]
    categories = [c for c in train if c not in [*dates, *numbers]]
    for name in numbers:
        if train[name].nunique() > 2:
            copies[name] = moved(train[name], copies[name], noise, rng)
    for row in range(len(copies) if n_changed else 0):
        chosen = rng.permutation(len(categories))[:n_changed]
        for name in (categories[k] for k in chosen):
            copies.at[row, name] = rng.choice(train[name].to_numpy())
    return pd.concat([train, copies], ignore_index=True), copied


def exact_copies(test: pd.DataFrame, copies: pd.DataFrame, copied: np.ndarray) -> int:
    """Return how many copies noise and change left as they were."""
    originals = test.iloc[copied].to_numpy(object)
    pairs = zip(originals, copies.to_numpy(object), strict=True)
    return sum(all(a == b for a, b in zip(*pair, strict=True)) for pair in pairs)


def brief(report: AuditReport) -> dict[str, Any]:
    return {
        "verdict": report.verdict,
        "findings": [
            {"kind": f.kind, "gravity": f.gravity, "count": f.count, "of": f.total,
             "sentence": f.sentence}
            for f in report.findings
        ],
        "notes": list(report.notes),
    }  # fmt: skip


def copies_found(report: AuditReport) -> tuple[np.ndarray, bool]:
    """Return the test rows that are called copies, and whether that is a leak."""
    kinds = ("exact copies", "near copies")
    findings = [finding for finding in report.findings if finding.kind in kinds]
    rows = [finding.rows for finding in findings]
    named = np.unique(np.concatenate(rows)) if rows else np.empty(0, int)
    return named, any(finding.gravity == "leak" for finding in findings)


def planted(folder: Path) -> dict[str, Any]:
    return {"runs": plant_all(folder, PLANTED, 0)}


def fresh(folder: Path) -> dict[str, Any]:
    """The same on tables that played no part in the design, by another seed."""
    return {"runs": plant_all(folder, FRESH, 1)}


def plant_all(folder: Path, names: tuple[str, ...], seed: int) -> list[dict[str, Any]]:
    runs = []
    for name in names:
        frame, _ = read(folder, name, seed)
        frame = frame.drop_duplicates(ignore_index=True)
        n_categories = sum(not is_numeric_dtype(t) for t in frame.dtypes)
        n_categories -= sum(is_datetime64_any_dtype(t) for t in frame.dtypes)
        for noise, n_changed in COPIES:
            if n_changed > n_categories:
                continue
            for share in SHARES:
                rng = np.random.default_rng(seed)
                train, test = (frame.iloc[i] for i in split(len(frame), rng))
                leaky, copied = plant(train, test, share, noise, n_changed, rng)
                named, is_leak = copies_found(audit(leaky, X_test=test))
                hits = len(np.intersect1d(named, copied))
                n_exact = exact_copies(test, leaky.iloc[len(train) :], copied)
                runs.append({
                    "table": name, "rows": len(frame), "share": share, "noise": noise,
                    "changed_categories": n_changed, "planted": len(copied),
                    "exact": n_exact, "named": len(named),
                    "recall": round(hits / len(copied), 4),
                    "precision": round(hits / max(1, len(named)), 4),
                    "verdict_leak": is_leak,
                })  # fmt: skip
                print(runs[-1], flush=True)
    return runs


def clean(folder: Path) -> dict[str, Any]:
    runs = []
    for name in CLEAN:
        for seed in range(3):
            frame, y = read(folder, name, seed)
            _, test = split(len(frame), np.random.default_rng(seed))
            report = audit(frame, y, test_rows=test)
            near = [f for f in report.findings if f.kind == "near copies"]
            runs.append({
                "table": name, "seed": seed, "rows": len(frame),
                "near_share": round(near[0].share, 5) if near else 0.0,
                **brief(report),
            })  # fmt: skip
            print(name, seed, runs[-1]["near_share"], report.verdict, flush=True)
    return {"runs": runs}


def kddcup99(folder: Path) -> dict[str, Any]:
    frame = pd.read_parquet(folder / "kddcup99.parquet")
    y = frame.pop("target")
    again = frame.duplicated()
    start = time.perf_counter()
    report = audit(frame, y, random_state=0)
    print(report)
    seconds = time.perf_counter() - start
    return {
        "rows": len(frame), "rows_that_repeat_an_earlier_one": int(again.sum()),
        "seconds": round(seconds, 1), "peak_gib": peak_gib(), **brief(report),
    }  # fmt: skip


def covtype(folder: Path) -> dict[str, Any]:
    frame = pd.read_parquet(folder / "covtype.parquet")
    y = frame.pop("target")
    start = time.perf_counter()
    report = audit(frame, y, random_state=0)
    seconds = time.perf_counter() - start
    print(report)
    return {
        "rows": len(frame), "seconds": round(seconds, 1), "peak_gib": peak_gib(),
        **brief(report),
    }  # fmt: skip


def facebook(folder: Path) -> dict[str, Any]:
    """Audit all rows, then a part with a model, then that part with a planted leak."""
    from tabr import TabRRegressor

    frame, y = read(folder, "facebook", 0, max_rows=10**6)
    whole = audit(frame, y)
    print(whole)
    record = {"without_a_model": {"rows": len(frame), **brief(whole)}}
    rng = np.random.default_rng(0)
    some = np.sort(rng.choice(len(frame), 10_000, replace=False))
    frame, y = frame.iloc[some].reset_index(drop=True), y.iloc[some].to_numpy(float)
    train, test = split(len(frame), rng)
    X_train, X_test = (frame.iloc[i].reset_index(drop=True) for i in (train, test))
    leaky, copied = plant(X_train, X_test, 0.2, 0.001, 0, rng)
    labels = {
        "with_a_model": y[train],
        "with_a_planted_leak": y[np.r_[train, test[copied]]],
    }
    for name, X in (("with_a_model", X_train), ("with_a_planted_leak", leaky)):
        start = time.perf_counter()
        model = TabRRegressor(max_epochs=12, width=96, random_state=0)
        model.fit(X, labels[name])
        fitted = time.perf_counter() - start
        report = audit(X, labels[name], X_test, y[test], model=model)
        print(name, report, sep="\n")
        record[name] = {
            "rows": len(X), "fit_seconds": round(fitted, 1), **brief(report)
        }  # fmt: skip
        if name == "with_a_planted_leak":
            seen = [f for f in report.findings if f.kind == "attention on one copy"]
            hits = np.intersect1d(seen[0].rows, copied) if seen else []
            record[name] |= {
                "planted": len(copied), "planted_that_attention_shows": len(hits)
            }  # fmt: skip
    return record


def peak_gib() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)


def page(text: str) -> str:
    """Return the page with its figures as the results have them."""
    records = {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*")}
    text = fill(text, "example", f"```text\n{example(text)}\n```")
    for name in ("planted", "fresh"):
        text = fill(text, name, planted_table(records[name]["runs"]))
    rows = []
    for name, part in pd.DataFrame(records["clean"]["runs"]).groupby("table"):
        n_leaks = int((part["verdict"] == "leak").sum())
        worst = f"{100 * part['near_share'].max():.2f} %"
        rows.append([str(name), str(part["rows"].iloc[0]), worst, str(n_leaks)])
    head = ["table", "rows", "named as near copies, at most", "of 3 called a leak"]
    text = fill(text, "clean", markdown_table(head, rows, "lrrr"))
    lines = []
    for name in ("kddcup99", "covtype"):
        record = records[name]
        lines.append(
            f"**{name}**, {record['rows']:,} rows: {record['seconds']:.0f} s in one"
            f" thread beside other work, {record['peak_gib']} GiB at most"
            f" (`{record['command']}`).\n"
        )
        lines += [*sentences(record), ""]
    text = fill(text, "large", "\n".join(lines).strip())
    record = records["facebook"]
    lines = []
    for key, words in (
        ("without_a_model", "All rows, no model"),
        ("with_a_model", "A part, with a model"),
        ("with_a_planted_leak", "The same part, with near copies of a fifth of the test"
         " rows in the training part"),
    ):  # fmt: skip
        lines += [f"{words} ({record[key]['rows']:,} rows):", ""]
        lines += [*sentences(record[key]), ""]
        if "planted" in record[key]:
            n_seen, n = (
                record[key][k] for k in ("planted_that_attention_shows", "planted")
            )
            lines += [f"Attention alone showed {n_seen} of the {n} copies."]
    return fill(text, "facebook", "\n".join(lines).strip())


def planted_table(runs: list[dict[str, Any]]) -> str:
    """Return recall and precision by table and noise.

    Exact copies are always found, so recall is that of the others.
    """
    keys = ["table", "noise", "changed_categories"]
    rows = []
    for (name, noise, changed), part in pd.DataFrame(runs).groupby(keys, sort=False):
        exact = f"{100 * part['exact'].sum() / part['planted'].sum():.0f} %"
        cells = []
        for run in part.sort_values("share").itertuples():
            n_near = run.planted - run.exact
            hits = round(run.recall * run.planted) - run.exact
            recall = f"{hits / n_near:.2f}" if n_near else ABSENT
            mark = "" if run.verdict_leak else "*"
            cells.append(f"{recall} / {run.precision:.2f}{mark}")
        rows.append([name, f"{100 * noise:g} %", str(changed), exact, *cells])
    shares = [f"{100 * share:g} % leaked" for share in SHARES]
    head = ["table", "noise", "categories", "exact", *shares]
    return markdown_table(head, rows, "l".ljust(len(head), "r"))


def example(text: str) -> str:
    """Run the page's example and return what it prints."""
    block = text.split("```python\n")[1].split("```")[0]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block, {})
    return printed.getvalue().strip()


def sentences(record: dict[str, Any]) -> list[str]:
    findings = record["findings"]
    return [f"- {f['gravity']}: {f['sentence']}" for f in findings] or ["- nothing"]


MEASURES = {f.__name__: f for f in (planted, fresh, clean, kddcup99, covtype, facebook)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=[*MEASURES, "page"])
    parser.add_argument("--data", type=Path, default=Path("data"))
    args = parser.parse_args()
    if args.what == "page":
        PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
        return
    command = f"python -m benchmarks.audit --data FOLDER {args.what}"
    start = time.perf_counter()
    result = MEASURES[args.what](args.data)
    record = {"command": command, **result}
    record["total_seconds"] = round(time.perf_counter() - start, 1)
    text = json.dumps(record, indent=1) + "\n"
    write_bytes(RESULTS / f"{args.what}.json", text.encode())


if __name__ == "__main__":
    main()

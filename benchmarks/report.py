"""The tables of docs/speed.md and docs/serving.md, from `benchmarks/results/speed`.

    python -m benchmarks.report

Text outside the markers of the page is written by hand and stays.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.plot import plot
from benchmarks.timing import SPEED
from tabr.text import markdown_table

Record = dict[str, Any]

_DEVICES = ("cuda", "cpu")
_COMMANDS = {  # what to run where a result is missing
    "step": "step --device cuda",
    "curve": "curve --device cuda",
    "freeze": "freeze --device cuda",
    "search": "search --device cuda",
    "predict": "predict",
    "memory": "memory",
    "train": "train --data FOLDER --device cuda",
    "covtype": "train --data FOLDER --device cuda --covtype",
    "presets": "presets --data FOLDER --tables california,churn",
    "serve": "serve",
}


def read(results: Path, name: str) -> list[Record]:
    """Return what a benchmark wrote, those of a GPU first; there may be none."""
    paths = [results / f"{name}-{device}.json" for device in _DEVICES]
    return [json.loads(path.read_text("utf-8")) for path in paths if path.is_file()]


def fill(text: str, name: str, block: str) -> str:
    """Put a block between the markers of that name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
    marked = f"{begin}\n{block}\n{end}"
    text, n = re.subn(pattern, lambda _: marked, text, flags=re.DOTALL)
    if n != 1:
        raise ValueError(f"the page must have the markers of {name!r} once: {n=}")
    return text


# --- words ------------------------------------------------------------------------


def number(value: float) -> str:
    """Return a number with about three digits.

    >>> [number(x) for x in (12345.6, 45.67, 4.567, 0.4567)]
    ['12,346', '45.7', '4.57', '0.457']
    """
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:,.{decimals}f}"


def place(record: Record) -> str:
    """Return where something was measured."""
    if record["device"] == "cuda":
        return str(record["hardware"])
    return f"{record['threads']} CPU threads, {record['hardware']}"


def origin(record: Record) -> str:
    """Return where and how something was measured, as a paragraph."""
    versions = record["versions"]
    return f"On {place(record)}, torch {versions['torch']}:\n`{record['command']}`"


def size_name(result: Record) -> str:
    """Return a size in words.

    >>> size_name({"candidates": 13209, "d_in": 8, "batch": 256})
    '13,209 x 8, 256'
    """
    return f"{result['candidates']:,} x {result['d_in']}, {result['batch']}"


def _ms(form: Record, name: str) -> str:
    return number(form[name]) if name in form else str(form.get("failed", ""))


def times_faster(forms: Mapping[str, Record], other: str) -> str:
    """Return how many times faster our step is than another form's."""
    if other == "tabr" or "step_ms" not in forms[other]:
        return ""
    return f"{forms[other]['step_ms'] / forms['tabr']['step_ms']:.1f}"


def _gigabytes(fact: Record) -> str:
    return f"{fact['peak_bytes'] / 1e9:.2f}" if "peak_bytes" in fact else ""


# --- blocks of the page -----------------------------------------------------------


def step_block(record: Record) -> str:
    header = ["candidates x inputs, batch", "form", "step, ms", "search, ms"]
    header += ["learning, ms", "peak memory, GB", "tabr is faster, times"]
    rows = [
        [
            size_name(result),
            name,
            *(_ms(form, f"{part}_ms") for part in ("step", "search", "learning")),
            _gigabytes(form),
            times_faster(result["forms"], name),
        ]
        for result in record["sizes"]
        for name, form in result["forms"].items()
    ]
    return markdown_table(header, rows, "llrrrrr")


def curve_block(record: Record) -> str:
    header = ["candidates x inputs, batch", "plain, ms", "tabr, ms"]
    header += ["its search, ms", "tabr frozen, ms", "tabr's peak memory, GB"]
    rows = []
    for result in record["sizes"]:
        ours = result["forms"]["tabr"]
        plain = result["forms"].get("plain", {"failed": "left out"})
        cells = [_ms(ours, f"{part}_ms") for part in ("step", "search", "learning")]
        cells = [size_name(result), _ms(plain, "step_ms"), *cells, _gigabytes(ours)]
        rows.append(cells)
    return markdown_table(header, rows, "lrrrrr")


def freeze_block(record: Record) -> str:
    first = record["sizes"][0]["step_ms"]
    rows = [
        [size_name(r), number(r["step_ms"]), f"{r['step_ms'] / first:.2f}"]
        for r in record["sizes"]
    ]
    header = ["candidates x inputs, batch", "step, ms", "times the first"]
    text = markdown_table(header, rows, "lrr")
    freezing = [
        f"{r['candidates']:,} rows took {number(r['freeze_seconds'])} s"
        for r in record["sizes"]
        if "freeze_seconds" in r
    ]
    return f"{text}\n\nFreezing {', '.join(freezing)}." if freezing else text


def search_block(record: Record) -> str:
    header = ["candidates x width, queries", "full matrix and topk, ms", "tabr, ms"]
    header += ["topk's peak memory, GB", "tabr's peak memory, GB", "the same"]
    rows = []
    for result in record["sizes"]:
        topk, ours = (result["ways"][name] for name in ("topk", "tabr"))
        name = f"{result['candidates']:,} x {result['width']}, {result['queries']}"
        cells = [name, number(topk["ms"]), number(ours["ms"])]
        cells += [_gigabytes(topk), _gigabytes(ours), "yes" if result["same"] else "no"]
        rows.append(cells)
    return markdown_table(header, rows, "lrrrrr")


def predict_block(record: Record) -> str:
    header = ["candidates x features", "one row, ms (median)", "95 % of rows, ms"]
    header += ["rows at once", "rows a second"]
    name = f"{record['candidates']:,} x {record['features']}"
    times = (record["single_ms"], record["single_95_percent_ms"])
    bulk = (record["bulk_rows"], record["bulk_rows_per_second"])
    rows = [[name, *map(number, times), *(f"{count:,.0f}" for count in bulk)]]
    return markdown_table(header, rows, "lrrrr")


def memory_block(record: Record) -> str:
    n, k = record["candidates"], record["changed"]
    rows = [
        [f"{name} {k:,} of {n:,} candidates", number(record[f"{key}_seconds"]) + " s"]
        for name, key in (("add", "add"), ("remove", "remove"), ("relabel", "relabel"))
    ]
    name = f"{record['explained_candidates']:,} candidates"
    one, many = record["explain_one_ms"], record["explain_many_ms_each"]
    rows.append([f"explain one row, {name}", f"{number(one)} ms"])
    count = record["explain_many_rows"]
    rows.append([f"explain {count} rows at once, {name}", f"{number(many)} ms each"])
    return markdown_table([f"with {record['features']} features", "time"], rows, "lr")


def train_block(record: Record) -> str:
    california = record["california"]
    titles = {
        "first": "california, one model, first fit",
        "second": "california, one model, second fit",
        "first_five_members": "california, five members, first fit",
        "five_members": "california, five members, second fit",
    }
    text = _fits([(title, california[name]) for name, title in titles.items()])
    return (
        f"{text}\n\nFive members cost {california['five_to_one']:.2f} times one,"
        f" {california['five_to_one_per_epoch']:.2f} times per epoch."
    )


def covtype_block(record: Record) -> str:
    return _fits([("covtype, one model", record["first"])])


def presets_block(record: Record) -> str:
    header = ["table", "preset", "networks", "seconds", "epochs of all"]
    header += ["of an epoch, against paper", "test score"]
    rows = []
    for label, table in record["tables"].items():
        facts = table["presets"]
        epoch_of = {p: f["seconds"] / f["epochs"] for p, f in facts.items()}
        for preset, fact in facts.items():
            ratio = epoch_of[preset] / epoch_of.get("paper", math.nan)
            networks = str(len(fact["best_epoch"]))
            rows.append([label, preset, networks, number(fact["seconds"])])
            rows[-1] += [str(fact["epochs"]), f"{ratio:.2f}", f"{fact['test']:.4f}"]
    return markdown_table(header, rows, "llrrrrr")


def _fits(facts: list[tuple[str, Record]]) -> str:
    rows = [
        [title, number(f["seconds"]), str(f["epochs"]), f"{f['test']:.4f}"]
        for title, f in facts
    ]
    return markdown_table(["fit", "seconds", "epochs", "test score"], rows, "lrrr")


BLOCKS: Mapping[str, Callable[[Record], str]] = {
    "step": step_block,
    "curve": curve_block,
    "freeze": freeze_block,
    "search": search_block,
    "predict": predict_block,
    "memory": memory_block,
    "train": train_block,
    "covtype": covtype_block,
    "presets": presets_block,
}


def serve_block(record: Record) -> str:
    facts = record["serve"]
    header = ["candidates", "requests a second", "seconds", "requests", "errors"]
    header += ["median, ms", "p90, ms", "p99, ms", "slowest, ms"]
    row = [f"{facts['candidates']:,}", number(facts["rate"]), number(facts["seconds"])]
    row += [f"{facts['requests']:,}", str(facts["errors"])]
    row += [number(facts[name]) for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")]
    return markdown_table(header, [row], "r" * len(header))


SERVING: Mapping[str, Callable[[Record], str]] = {"serve": serve_block}


def updated(
    page: str, results: Path, blocks: Mapping[str, Callable[[Record], str]] = BLOCKS
) -> str:
    """Return the page with its tables as the results have them."""
    for name, block in blocks.items():
        records = read(results, name)
        parts = [f"{origin(record)}\n\n{block(record)}" for record in records]
        missing = f"Not measured yet: `python -m benchmarks.{_COMMANDS[name]}`."
        page = fill(page, name, "\n\n".join(parts) or missing)
    return page


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=SPEED)
    parser.add_argument("--page", type=Path, default=Path("docs/speed.md"))
    parser.add_argument("--plot", type=Path, default=Path("docs/speed.svg"))
    parser.add_argument("--serving", type=Path, default=Path("docs/serving.md"))
    options = parser.parse_args(arguments)
    page = options.serving.read_text("utf-8")
    options.serving.write_text(updated(page, options.results, SERVING), "utf-8")
    page = options.page.read_text("utf-8")
    options.page.write_text(updated(page, options.results), "utf-8")
    steps, curves = (read(options.results, name) for name in ("step", "curve"))
    plot(steps, curves, options.plot)


if __name__ == "__main__":
    main()

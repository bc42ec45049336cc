"""The README's figures, from the results of the reproduction and of the benchmarks."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import fill, number, place, read, size_name, times_faster
from benchmarks.timing import SPEED
from reproduction.default_table import compare, read_runs
from reproduction.results_folder import ResultsFolder
from tabr.tables.files import write_bytes
from tabr.text import markdown_table


def reproduction(results: ResultsFolder) -> str:
    """Return the first benchmark as a table, the second as a sentence."""
    table = compare(read_runs(results), results.published())
    is_why = table["set"].str.startswith("why/")
    rows = []
    for row in table[~is_why].to_dict("records"):
        digits = 0 if row["published"] > 1000 else 4
        ours, published = (
            f"{row[name]:,.{digits}f} ± {row[f'{name}_std']:,.{digits}f}"
            for name in ("ours", "published")
        )
        measure = "RMSE" if row["metric"] == "rmse" else "accuracy"
        split = "the paper's" if row["bound"].endswith("std") else "ours"
        rows.append([row["set"], measure, ours, published, split])
    why = table[is_why]
    n_within = int((why["verdict"] == "within").sum())
    header = ["set", "measure", "ours", "published", "split"]
    return (
        f"{markdown_table(header, rows, 'llrrl')}\n\n"
        f"On the second benchmark {n_within} of {len(why)} sets lie within two\n"
        "published standard deviations (`python -m reproduction table`)."
    )


def speed(folder: Path) -> str:
    """Return a training step beside the plain form, a table for each device."""
    parts = ["One training step, against the plain form in the same run:"]
    for record in read(folder, "step"):
        rows = []
        for result in record["sizes"]:
            plain, ours = (result["forms"][name] for name in ("plain", "tabr"))
            plain_ms = plain.get("failed") or f"{number(plain['step_ms'])} ms"
            cells = [size_name(result), plain_ms, f"{number(ours['step_ms'])} ms"]
            rows.append([*cells, times_faster(result["forms"], "plain")])
        header = ["candidates x inputs, batch", "plain form", "tabr", "times faster"]
        parts += [f"On {place(record)}\n(`{record['command']}`):"]
        parts += [markdown_table(header, rows, "lrrr")]
    return "\n\n".join(parts)


def updated(text: str, results: ResultsFolder, speeds: Path = SPEED) -> str:
    """Return the README with its figures as the results have them."""
    text = fill(text, "reproduction", reproduction(results))
    return fill(text, "speed", speed(speeds))


def write(results: ResultsFolder, path: Path) -> None:
    """Write the figures of the README anew."""
    write_bytes(path, updated(path.read_text("utf-8"), results).encode())

"""Write the README's figures anew from the files in results/.

python -m scripts.update_readme
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import fill, number, place, read, size_name, table, times_faster
from reproduction.default_table import compare, read_published, read_runs

ROOT = Path(__file__).parents[1]


def reproduction(results: Path) -> str:
    """The first benchmark as a table, the second as a sentence."""
    table = compare(read_runs(results), read_published(results))
    is_why = table["set"].str.startswith("why/")
    lines = [
        "| set | measure | ours | published | split |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for row in table[~is_why].to_dict("records"):
        digits = 0 if row["published"] > 1000 else 4
        ours, published = (
            f"{row[name]:,.{digits}f} ± {row[f'{name}_std']:,.{digits}f}"
            for name in ("ours", "published")
        )
        measure = "RMSE" if row["metric"] == "rmse" else "accuracy"
        split = "the paper's" if row["bound"].endswith("std") else "ours"
        lines.append(f"| {row['set']} | {measure} | {ours} | {published} | {split} |")
    why = table[is_why]
    n_within = int((why["verdict"] == "within").sum())
    lines += [
        "",
        f"On the second benchmark {n_within} of {len(why)} sets lie within two",
        "published standard deviations (`python -m reproduction table`).",
    ]
    return "\n".join(lines)


def speed(results: Path) -> str:
    """A training step beside the plain form, a table for each device."""
    parts = ["One training step, against the plain form in the same run:"]
    for record in read(results / "speed", "step"):
        rows = []
        for result in record["sizes"]:
            plain, ours = (result["forms"][name] for name in ("plain", "tabr"))
            plain_ms = plain.get("failed") or f"{number(plain['step_ms'])} ms"
            cells = [size_name(result), plain_ms, f"{number(ours['step_ms'])} ms"]
            rows.append([*cells, times_faster(result["forms"], "plain")])
        header = ["candidates x inputs, batch", "plain form", "tabr", "times faster"]
        parts += [f"On {place(record)}\n(`{record['command']}`):"]
        parts += [table(header, rows, n_words=1)]
    return "\n\n".join(parts)


def updated(text: str, results: Path) -> str:
    """Return the README with its figures as results/ has them."""
    for name, make in (("reproduction", reproduction), ("speed", speed)):
        text = fill(text, name, make(results))
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(updated(readme.read_text("utf-8"), ROOT / "results"), "utf-8")

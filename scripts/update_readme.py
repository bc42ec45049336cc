"""Write the README's figures anew from the files in results/.

python scripts/update_readme.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tabr.bench.report import compare, read_published, read_runs

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
        "published standard deviations (`python -m tabr.bench table`, from results/).",
    ]
    return "\n".join(lines)


def speed(results: Path) -> str:
    """A training step beside the plain form."""
    lines = [
        "One training step on two CPU cores, against the plain form in the same run",
        "(`python -m benchmarks.step --sizes california diamond higgs-small`):",
        "",
        "| candidates x inputs, batch | plain form | tabr | times faster |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name in ("california", "diamond", "higgs-small"):
        step = json.loads((results / "speed" / f"step-{name}-cpu.json").read_text())
        size = f"{step['candidates']:,} x {step['d_in']}, {step['batch']}"
        plain, ours = (f"{step[f'{form}_ms']:,.0f} ms" for form in ("plain", "tabr"))
        lines.append(f"| {size} | {plain} | {ours} | {step['ratio']:.1f} |")
    return "\n".join(lines)


def updated(text: str, results: Path) -> str:
    """Return the README with its figures as results/ has them."""
    for name, make in (("reproduction", reproduction), ("speed", speed)):
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        block = f"{begin}\n{make(results)}\n{end}"
        pattern = f"{re.escape(begin)}.*?{re.escape(end)}"
        text, n = re.subn(pattern, lambda _, b=block: b, text, flags=re.DOTALL)
        assert n == 1, name
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(updated(readme.read_text("utf-8"), ROOT / "results"), "utf-8")

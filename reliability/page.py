"""The page docs/reliability.md, made from the kept trials alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reliability.trials import RESULTS, ROOT, read
from tabr.tables.files import write_bytes

PAGE = ROOT / "docs" / "reliability.md"
_BEGIN = "<!-- trials: begin -->"
_END = "<!-- trials: end -->"


def write_page(page: Path = PAGE, results: Path = RESULTS) -> None:
    """Write the trials between their marks; what stands around them stays."""
    before, _, rest = page.read_text("utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    text = f"{before}{_BEGIN}\n{to_markdown(read(results))}{_END}{after}"
    write_bytes(page, text.encode())


def to_markdown(files: dict[str, dict[str, Any]]) -> str:
    """Return all trials, a table for each."""
    parts = [_section(record) for record in files.values()]
    return "\n".join(parts)


def _section(record: dict[str, Any]) -> str:
    lines = []
    commit = record["commit"] or "unknown"
    dirty = ", with changed files" if commit.endswith("-dirty") else ""
    origin = f"`{record['command']}`, commit `{commit[:10]}`{dirty}"
    for trial in record["trials"]:
        lines += [f"### {trial['title']}", "", trial["tried"], ""]
        lines += ["| counted | |", "| --- | ---: |"]
        lines += [f"| {k} | {_cell(v)} |" for k, v in trial["counts"].items()]
        outcome = "held" if trial["held"] else "**did not hold**"
        lines += ["", f"Outcome: {outcome}. {origin}.", ""]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)

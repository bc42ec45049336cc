"""The page docs/reliability.md, made from the kept trials alone."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
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
    """Return what was tried in a table, and then what was counted."""
    return "\n".join([_summary(files), *map(_section, files.values())])


def _summary(files: dict[str, dict[str, Any]]) -> str:
    lines = ["| tried | outcome | command | commit |", "| --- | --- | --- | --- |"]
    for record in files.values():
        commit = record["commit"] or "unknown"
        dirty = ", with changed files" if commit.endswith("-dirty") else ""
        origin = f"`{record['command']}` | `{commit[:10]}`{dirty}"
        for trial in record["trials"]:
            outcome = "held" if trial["held"] else "**did not hold**"
            lines.append(f"| {trial['title']} | {outcome} | {origin} |")
    return "\n".join([*lines, ""])


def _section(record: dict[str, Any]) -> str:
    """Return the counts of a command; those of one kind are side by side."""
    lines = []
    for tried, group in groupby(record["trials"], itemgetter("tried")):
        trials = list(group)
        title = trials[0]["title"].partition(": ")[0]
        names = [trial["title"].partition(": ")[2] for trial in trials]
        if len(trials) == 1:
            title, names = trials[0]["title"], [""]
        lines += [f"### {title}", "", tried, ""]
        lines.append(f"| counted | {' | '.join(names)} |")
        lines.append(f"| --- |{' ---: |' * len(trials)}")
        for name in trials[0]["counts"]:
            cells = [_cell(trial["counts"].get(name, "")) for trial in trials]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)

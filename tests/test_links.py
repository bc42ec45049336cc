"""Links between the pages, and who is linked at all."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"\]\(([^()\s]+)\)")


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield the file and the heading of each link that stays in the repository."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    for link in LINK.findall(text):
        if not re.match(r"\w+:", link):
            path, _, heading = link.partition("#")
            yield (page.parent / path).resolve() if path else page, heading


def headings(page: Path) -> set[str]:
    """The names by which a page's headings can be linked."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_hold(page: Path):
    for path, heading in links(page):
        assert path.exists(), path
        assert not heading or heading in headings(path), f"{path}#{heading}"


def test_the_readme_leads_to_every_page_and_picture():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [path for path, _ in links(page) if path.suffix == ".md"]
    linked = {path for page in reached for path, _ in links(page)}
    assert {path for path in DOCS.rglob("*") if path.is_file()} <= linked

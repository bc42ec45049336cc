import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
GUIDES = sorted(
    path.name
    for path in (README.parent / "docs").glob("*.md")
    if "```python" in path.read_text("utf-8")
)
BLOCK = re.compile(
    r"^(?P<not_run><!-- not run: [^\n]+ -->\n\s*)?```python\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


def python_blocks(text: str) -> list[str]:
    """The blocks to run, each moved down to its own lines for tracebacks."""
    return [
        "\n" * text.count("\n", 0, block.start("code")) + block["code"]
        for block in BLOCK.finditer(text)
        if not block["not_run"]
    ]


def test_blocks_of_the_readme_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    blocks = python_blocks(README.read_text("utf-8")) if README.exists() else []
    if not blocks:
        pytest.skip("README.md has no python block to run")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)


@pytest.mark.parametrize("name", GUIDES)
def test_blocks_of_a_guide_run_in_order(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = README.parent / "docs" / name
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "guide"}
    for block in python_blocks(path.read_text("utf-8")):
        exec(compile(block, str(path), "exec"), namespace)


def test_only_unmarked_python_blocks_are_taken():
    text = """# Title

```python
first = 1
```

<!-- not run: needs a server -->
```python
raise SystemExit
```

<!-- not run: takes an hour -->

```python
raise SystemExit
```

```
make demo
```

<!-- any other comment -->
```python
second = 2
```
"""
    blocks = python_blocks(text)
    assert [block.strip() for block in blocks] == ["first = 1", "second = 2"]
    lines = text.splitlines()
    for block in blocks:
        assert lines[len(block.splitlines()) - 1] == block.strip()


def test_figures_of_the_readme_are_those_of_the_results():
    from reproduction.readme import updated
    from reproduction.results_folder import ResultsFolder

    text = README.read_text("utf-8")
    assert updated(text, ResultsFolder()) == text

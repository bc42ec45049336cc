import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tabr"

# A module imports only from modules above it. A folder counts as one module;
# __init__ stands for the public names.
ORDER = [
    "optional",
    "config",
    "metrics",
    "growing",
    "tables",
    "files",
    "cells",
    "intervals",
    "filters",
    "normalize",
    "columns",
    "frames",
    "targets",
    "samples",
    "rows",
    "embeddings",
    "devices",
    "memory",
    "threads",
    "draws_triton",
    "members",
    "pairs_cpu",
    "pairs_triton",
    "pairs",
    "network",
    "search",
    "tagging",
    "retrieval",
    "graphs",
    "optimizers",
    "training",
    "contexts",
    "losses",
    "together",
    "fitting",
    "living",
    "candidates",
    "effects",
    "joining",
    "explanation",
    "uncertainty",
    "ensemble",
    "audit",
    "packing",
    "storage",
    "answers",
    "estimators",
    "tuning",
    "report",
    "__init__",
    "cases",
    "demo",
    "bench",
    "serving",
    "cli",
    "__main__",
]
ENDS = {"bench", "serving", "cli"}  # imported by nobody but the command line
WITHOUT_TORCH = {
    "config",
    "metrics",
    "growing",
    "tables",
    "files",
    "cells",
    "intervals",
    "filters",
    "normalize",
    "columns",
    "frames",
    "targets",
    "samples",
    "explanation",
    "uncertainty",
}
OPTIONAL = [
    "polars",
    "matplotlib",
    "jinja2",
    "optuna",
    "lightgbm",
    "catboost",
    "xgboost",
    "rtdl_num_embeddings",
    "tabm",
    "fastapi",
    "uvicorn",
    "psycopg",
    "click",  # always installed, but only the command line needs it
]
MAX_LINES = 450

FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
each_file = pytest.mark.parametrize("file", FILES, ids=str)


def module_of(file: Path) -> str:
    """The entry of ORDER that a file belongs to."""
    return file.with_suffix("").parts[0]


def imported_names(source: str, file: Path) -> Iterator[str]:
    """Full dotted names of all that a file imports, wherever in it."""
    package = ("tabr", *file.parts[:-1])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            start = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def imported_modules(source: str, file: Path) -> set[str]:
    """The entries of ORDER that a file imports."""
    modules = set()
    for name in imported_names(source, file):
        top, *rest = name.split(".")
        if top != "tabr" or rest == ["__version__"]:
            continue
        is_module = rest and (
            rest[0] in ORDER
            or (PACKAGE / rest[0]).is_dir()
            or (PACKAGE / f"{rest[0]}.py").is_file()
        )
        modules.add(rest[0] if is_module else "__init__")
    return modules


def wrong_imports(source: str, file: Path) -> set[str]:
    """Imported modules that do not stand above the file's own."""
    own = module_of(file)
    above = set(ORDER[: ORDER.index(own)])
    if own not in ("cli", "__main__"):
        above -= ENDS
    inside = {own} if len(file.parts) > 1 else set()
    return imported_modules(source, file) - above - inside


@each_file
def test_every_module_has_a_place_in_the_order(file: Path):
    assert module_of(file) in ORDER


@each_file
def test_a_module_imports_only_from_above(file: Path):
    assert not wrong_imports((PACKAGE / file).read_text("utf-8"), file)


@pytest.mark.parametrize(
    ("file", "line", "wrong"),
    [
        ("rows.py", "from tabr.frames import Schema", set()),
        ("frames.py", "from tabr.rows import Rows", {"rows"}),
        ("frames.py", "import tabr.rows", {"rows"}),
        ("frames.py", "from tabr import rows", {"rows"}),
        ("frames.py", "from .rows import Rows", {"rows"}),
        ("frames.py", "from . import config, rows", {"rows"}),
        ("frames.py", "def late():\n    from tabr import rows", {"rows"}),
        ("search/exact.py", "from ..rows import Rows", set()),
        ("search/exact.py", "from ..tagging import RuleIndex", {"tagging"}),
        ("search/exact.py", "from .. import tagging", {"tagging"}),
        ("search/exact.py", "from .tiles import walk", set()),
        ("search/exact.py", "from tabr.search.tiles import walk", set()),
        ("bench/baselines/knn.py", "from ..protocol import Task", set()),
        ("bench/baselines/knn.py", "from ...cli import main", {"cli"}),
        ("tagging.py", "from .search.exact import nearest", set()),
        ("storage.py", "from tabr import __version__", set()),
        ("storage.py", "from tabr import TabRRegressor", {"__init__"}),
        ("storage.py", "import tabr", {"__init__"}),
        ("bench/protocol.py", "from tabr import TabRRegressor", set()),
        ("__init__.py", "from tabr.estimators import TabRRegressor", set()),
        ("__init__.py", "from tabr.bench import run", {"bench"}),
        ("serving/app.py", "from tabr.bench import run", {"bench"}),
        ("cli.py", "from tabr import bench, serving", set()),
        ("frames.py", "import tabrium.rows, numpy.rows", set()),
    ],
)
def test_wrong_imports_are_seen(file: str, line: str, wrong: set[str]):
    assert wrong_imports(line, Path(file)) == wrong


@each_file
def test_no_file_outgrows_one_subject(file: Path):
    n_lines = len((PACKAGE / file).read_text("utf-8").splitlines())
    assert n_lines <= MAX_LINES, "look for the second subject in it and split"


@each_file
def test_tables_and_settings_need_no_torch(file: Path):
    if module_of(file) in WITHOUT_TORCH:
        names = imported_names((PACKAGE / file).read_text("utf-8"), file)
        assert "torch" not in {name.split(".")[0] for name in names}


def test_import_loads_no_optional_library():
    code = f"import sys, tabr; print(*(set({OPTIONAL}) & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []


def extras() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project["optional-dependencies"]


def test_extra_all_names_every_other_extra():
    others = ",".join(name for name in extras() if name != "all")
    assert extras()["all"] == [f"tabr[{others}]"]


@each_file
def test_required_extras_exist(file: Path):
    for node in ast.walk(ast.parse((PACKAGE / file).read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "require":
            for value in [*node.args[1:], *(k.value for k in node.keywords)]:
                assert not isinstance(value, ast.Constant) or value.value in extras()

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tabr"

# Imported by nobody but the command line.
ENDS = {"bench", "serving", "cli"}
WITHOUT_TORCH = {
    "config",
    "metrics",
    "tables",
    "candidates.growable",
    "candidates.rule_codes",
    "candidates.rules",
    "prediction.explanation",
    "prediction.uncertainty",
}
MOST_MODULES = 10  # beside the rooms
MOST_FILES = 14  # of a room
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
    "cryptography",
    "numba",  # always installed, but only a network on a CPU needs it
    "click",  # always installed, but only the command line needs it
]
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
each_file = pytest.mark.parametrize("file", FILES, ids=str)


def module_of(file: Path) -> str:
    """The dotted name of a file, without the package's own."""
    return ".".join(file.with_suffix("").parts)


def room_of(module: str) -> str:
    """The room that a module stands in, or its own name."""
    return module.partition(".")[0]


def read_order() -> list[str]:
    """All modules, in the order that CONTRIBUTING gives."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    block = text.split("## Order of imports")[1].split("```")[1]
    order = []
    for line in block.strip().splitlines():
        first, *names = line.split()
        if (PACKAGE / first.replace(".", "/")).is_dir():
            order += [f"{first}.{name}" for name in [*names, "__init__"]]
        else:
            order += [first, *names]
    return order


ORDER = read_order()


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
        while rest:
            dotted = ".".join(rest)
            if dotted in ORDER or f"{dotted}.__init__" in ORDER:
                break
            rest.pop()
        dotted = ".".join(rest)
        inside = [dotted, "__init__"] if rest else ["__init__"]
        modules.add(dotted if dotted in ORDER else ".".join(inside))
    return modules


def wrong_imports(source: str, file: Path) -> set[str]:
    """Imported modules that do not stand above the file's own."""
    module = module_of(file)
    above = set(ORDER[: ORDER.index(module)])
    if room_of(module) not in ("cli", "__main__"):
        above -= {m for m in ORDER if room_of(m) in ENDS - {room_of(module)}}
    return imported_modules(source, file) - above


def test_the_order_names_every_file_once():
    assert sorted(ORDER) == sorted(map(module_of, FILES))


@each_file
def test_a_file_imports_only_from_above(file: Path):
    assert not wrong_imports((PACKAGE / file).read_text("utf-8"), file)


@pytest.mark.parametrize(
    ("file", "line", "wrong"),
    [
        ("network/rows.py", "from tabr.tables.preprocessor import Arrays", set()),
        ("tables/frame.py", "from tabr.network.rows import Rows", {"network.rows"}),
        ("tables/frame.py", "import tabr.network.rows", {"network.rows"}),
        ("tables/frame.py", "from tabr.network import rows", {"network.rows"}),
        ("tables/frame.py", "from tabr.search import top", {"search.__init__"}),
        ("tables/frame.py", "from ..network.rows import Rows", {"network.rows"}),
        ("tables/frame.py", "from . import cells", {"tables.cells"}),
        ("tables/frame.py", "from . import normalize", set()),
        (
            "tables/frame.py",
            "def late():\n    from tabr.network import rows",
            {"network.rows"},
        ),
        ("search/exact.py", "from .filter import Filter", set()),
        ("search/exact.py", "from tabr.search.scan import Scan", {"search.scan"}),
        ("search/exact.py", "from tabr.search import top", {"search.__init__"}),
        ("bench/methods/knn.py", "from tabr.bench.tasks.task import Task", set()),
        ("bench/methods/knn.py", "from ...cli import main", {"cli.__init__"}),
        ("storage.py", "from tabr import __version__", set()),
        ("storage.py", "from tabr import TabRRegressor", {"__init__"}),
        ("storage.py", "import tabr", {"__init__"}),
        ("bench/protocol.py", "from tabr import TabRRegressor", set()),
        ("__init__.py", "from tabr.estimators import TabRRegressor", set()),
        ("__init__.py", "from tabr.bench import runs", {"bench.runs"}),
        ("serving/app.py", "from tabr.bench import runs", {"bench.runs"}),
        ("cli/fit.py", "from tabr.bench import runs", set()),
        ("tables/frame.py", "import tabrium.rows, numpy.rows", set()),
    ],
)
def test_wrong_imports_are_seen(file: str, line: str, wrong: set[str]):
    assert wrong_imports(line, Path(file)) == wrong


def test_the_face_of_the_package_is_small():
    modules = [file for file in FILES if len(file.parts) == 1]
    assert len(modules) <= MOST_MODULES


def test_a_room_has_few_files():
    folders = [file.parent for file in FILES if len(file.parts) > 1]
    counts = {str(f): folders.count(f) for f in set(folders)}
    for room in ("bench/methods", "cli"):  # a file each
        del counts[str(Path(room))]
    assert {room: n for room, n in counts.items() if n > MOST_FILES} == {}


def test_a_room_says_what_it_is_for():
    for folder in {file.parent for file in FILES}:
        tree = ast.parse((PACKAGE / folder / "__init__.py").read_text("utf-8"))
        assert ast.get_docstring(tree), folder


@each_file
def test_tables_and_settings_need_no_torch(file: Path):
    module = module_of(file)
    if module in WITHOUT_TORCH or room_of(module) in WITHOUT_TORCH:
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


def test_extra_all_names_every_extra_of_users():
    others = ",".join(name for name in extras() if name not in ("all", "dev", "test"))
    assert extras()["all"] == [f"tabr[{others}]"]


@each_file
def test_required_extras_exist(file: Path):
    for node in ast.walk(ast.parse((PACKAGE / file).read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "require":
            for value in [*node.args[1:], *(k.value for k in node.keywords)]:
                assert not isinstance(value, ast.Constant) or value.value in extras()


# --- the way of a row ---------------------------------------------------------------

MOST_LINES, MOST_PARAMETERS = 60, 8


def functions() -> dict[str, list[tuple[int, int]]]:
    """Lines and parameters of all functions, by name and by class and name."""
    found: dict[str, list[tuple[int, int]]] = {}
    for file in FILES:
        tree = ast.parse((PACKAGE / file).read_text("utf-8"))
        scopes = [("", tree.body)]
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                scopes.append((f"{node.name}.", node.body))
        for start, body in scopes:
            for node in body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    assert node.end_lineno is not None
                    lines = node.end_lineno - node.lineno + 1
                    names = [
                        arg.arg
                        for arg in ast.walk(node.args)
                        if isinstance(arg, ast.arg)
                    ]
                    n = len([name for name in names if name not in ("self", "cls")])
                    found.setdefault(start + node.name, []).append((lines, n))
    return found


def test_functions_on_a_rows_way_exist_and_are_short():
    """Those that docs/design.md names, and their siblings of the same name."""
    text = (ROOT / "docs" / "design.md").read_text("utf-8")
    way = text.split("## The way of a row")[1].split("\n## ")[0]
    known = functions()
    classes = {name.partition(".")[0] for name in known if "." in name}
    named = {
        name
        for name in re.findall(r"`([A-Za-z_.]+)`", way)
        if name in known or "." in name or name[0].isupper() or "_" in name
    }
    modules = {module.rpartition(".")[2] for module in ORDER}
    unknown = named - known.keys() - classes - modules
    assert not unknown, f"docs/design.md names what is not there: {unknown}"
    assert len(named & known.keys()) > 20
    for name in sorted(named & known.keys()):
        for lines, n_parameters in known[name]:
            assert lines <= MOST_LINES, name
            assert n_parameters <= MOST_PARAMETERS, name

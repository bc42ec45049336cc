import subprocess
import sys
from pathlib import Path

from tabr.bench.protocol import run_seeds
from tabr.bench.results import Plan
from tabr.bench.tasks.catalog import select
from tabr.bench.tasks.task import LabelledRows, SplitTable, load
from tabr.bench.workers import Resources

from .tables import TINY, write_churn, write_diamond, write_wine

TRIAL = Plan("tabr-s", "trial", TINY)
CPU = Resources("cpu")
CHURN, DIAMOND = select(["churn", "diamond"])


def test_result_tells_what_was_run(tmp_path: Path):
    write_churn(tmp_path)
    ((result, _),) = run_seeds(CHURN, load(CHURN, tmp_path), [3], CPU, TRIAL)
    assert (result.benchmark, result.task, result.split) == ("default", "churn", 0)
    assert result.method == "tabr-s-trial"
    assert result.params == {"batch_size": 256, **TINY}
    assert result.seed == 3
    assert 0 <= result.test <= 1 and 0 <= result.val <= 1
    assert result.best_epoch == 0
    assert set(result.versions) == {"tabr", "torch", "python"}


def test_test_rows_do_not_influence_the_fit(tmp_path: Path):
    write_diamond(tmp_path)
    parts = load(DIAMOND, tmp_path)
    other = SplitTable(
        parts.train, parts.val, LabelledRows(parts.test.X, parts.test.y[::-1])
    )
    pairs = [run_seeds(DIAMOND, p, [0], CPU, TRIAL)[0] for p in (parts, other)]
    results = [result for result, _ in pairs]
    assert results[0].val == results[1].val
    assert results[0].test != results[1].test


def test_runs_without_narwhals_and_click(tmp_path: Path):
    write_wine(tmp_path)
    code = (
        "import sys, sklearn.utils.validation\n"  # may need narwhals for itself
        "sys.modules.update(narwhals=None, click=None)\n"
        "import tabr.bench.benchmark\n"
        "from tabr.bench.protocol import run_seeds\n"
        "from tabr.bench.results import Plan\n"
        "from tabr.bench.tasks.catalog import select\n"
        "from tabr.bench.tasks.task import load\n"
        "from tabr.bench.workers import Resources\n"
        "task = select(['why/wine'])[0]\n"
        f"parts, cpu = load(task, {str(tmp_path)!r}), Resources('cpu')\n"
        f"run_seeds(task, parts, [0], cpu, {TRIAL!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

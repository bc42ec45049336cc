import pandas as pd
import pytest

from reproduction.results_folder import MODEL, ResultsFolder
from reproduction.tasks_page import WITHOUT_FIGURES
from tabr.bench.tasks.catalog import TASKS, select
from tabr.bench.tasks.task import Task
from tabr.errors import DataError

# Test rows at most, splits.
FOLDS = [(1000, 5), (3000, 3), (6000, 2), (10**9, 1)]
WHY = [task for task in TASKS if task.benchmark == "why"]
OF_THE_PAPER = [task for task in TASKS if not task.name.endswith("-part")]


def task_of(label: str, split: int = 0) -> Task:
    return next(t for t in TASKS if t.label == label and t.split == split)


def figures() -> pd.DataFrame:
    return ResultsFolder().published(MODEL).set_index("dataset")


def n_test_rows(n: int, n_most: int) -> int:
    """Test rows of the second benchmark, but for those with a new category."""
    n_train = int(n * min(0.7, n_most / n))
    return n - n_train - int(0.3 * (n - n_train))


def test_both_benchmarks_are_whole():
    assert len({t.name for t in TASKS if t.benchmark == "default"}) == 11 + 1
    whole = {task.name for task in WHY} & {task.name for task in OF_THE_PAPER}
    assert len(whole) == 43
    assert {task.name for task in WHY} - whole == {"isolet-part", "jannis-part"}


def test_every_set_of_the_paper_has_its_own_published_name():
    assert len({task.published for task in OF_THE_PAPER}) == len(OF_THE_PAPER)
    assert len({(task.label, task.split) for task in TASKS}) == len(TASKS)


def test_published_name_holds_group_split_and_name():
    assert task_of("why/rl", 2).published == "why/classif-cat-medium-2-rl"
    assert (
        task_of("why/isolet-part", 1).published
        == task_of("why/isolet", 1).published
        == "why/regression-num-medium-1-isolet"
    )


def test_the_sets_without_a_published_figure_are_those_that_say_so():
    known = set(figures().index)
    without = {task.name for task in TASKS if task.published not in known}
    assert without == set(WITHOUT_FIGURES)
    assert known <= {task.published for task in TASKS}


def test_cost_and_measure_are_the_published_ones():
    known = figures()
    for label in dict.fromkeys(task.label for task in OF_THE_PAPER):
        splits = [t for t in select([label]) if t.published in known.index]
        if splits:
            found = known.loc[[task.published for task in splits]]
            seconds = found["train_seconds"].mean()
            assert splits[0].cost == pytest.approx(seconds, abs=0.51), label
            assert {task.metric for task in splits} == set(found["metric"])


def test_the_number_of_splits_follows_from_the_test_rows():
    """As Grinsztajn et al. say: fewer test rows, more splits."""
    for task in OF_THE_PAPER:
        if task.benchmark == "why":
            n_most = 50_000 if "large" in task.published else 10_000
            assert task.origin.n_rows
            n_test = n_test_rows(task.origin.n_rows, n_most)
            n_splits = next(n for most, n in FOLDS if n_test <= most)
            assert len(select([task.label])) == n_splits, task.label


def test_every_table_can_be_had_somewhere_and_has_a_size():
    for task in TASKS:
        assert bool(task.origin.openml) != bool(task.origin.place), task.label
        assert task.origin.n_rows and task.origin.n_features
    numbers = {t.label: t.origin.openml for t in TASKS if t.origin.openml}
    assert len(set(numbers.values())) == len(numbers)


def test_forty_one_sets_of_the_second_benchmark_can_be_compared():
    names = {task.name for task in WHY if task.comparable}
    assert len(names) == 41
    assert not names & {"black_friday", "OnlineNewsPopularity"}
    assert all(task.differs for task in TASKS if not task.comparable)


def test_a_benchmark_leaves_out_what_cannot_be_compared():
    labels = {task.label for task in select(benchmark="all")}
    assert {"california", "why/california"} <= labels
    assert "why/jannis-part" not in labels
    assert {task.benchmark for task in select(benchmark="why")} == {"why"}


def test_a_task_can_be_named_even_if_it_cannot_be_compared():
    assert [t.label for t in select(["why/jannis-part"])] == ["why/jannis-part"]


def test_unknown_task_is_refused():
    with pytest.raises(DataError, match="these came: wine"):
        select(["wine"])

from tabr.bench.results import Plan
from tabr.bench.runs import Run, SeedCounts, batches_of, runs_of
from tabr.bench.tasks.catalog import select

CHURN, DIAMOND, COVTYPE = select(["churn", "diamond", "covtype"])


def test_long_tasks_and_the_second_benchmark_may_have_other_numbers_of_seeds():
    wine = select(["why/wine"])[0]
    seeds = SeedCounts(15, n_long=3, n_why=1)
    assert [seeds.of(task) for task in (CHURN, COVTYPE, wine)] == [15, 3, 1]
    assert SeedCounts(2, n_long=3).of(COVTYPE) == SeedCounts(2).of(wine) == 2
    runs = runs_of([CHURN, COVTYPE], seeds)
    assert [run.seed for run in runs if run.task is COVTYPE] == [0, 1, 2]
    assert len(runs) == 18


def test_a_method_is_left_out_of_tasks_that_it_cannot_do():
    for plan in (Plan("dkl"), Plan("modern-nca", "tuned")):
        assert runs_of([CHURN], SeedCounts(1), [plan]) == []


def test_a_line_names_the_method_and_a_config_that_is_not_the_default():
    assert str(Run(CHURN, 3)) == "tabr-s churn split 0 seed 3"
    assert str(Run(CHURN, 3, Plan("knn", "tuned"))) == "knn-tuned churn split 0 seed 3"


def test_successive_seeds_of_a_method_that_can_are_one_batch():
    trial, trees = Plan("tabr-s", "trial", {"width": 8}), Plan("xgboost")
    runs = [
        *(Run(CHURN, seed, trial) for seed in (0, 1, 2, 4, 5)),
        *(Run(DIAMOND, seed, trial) for seed in (6, 7)),
        *(Run(DIAMOND, seed, trees) for seed in (8, 9)),
    ]
    assert [len(batch.runs) for batch in batches_of(runs, 2)] == [2, 1, 2, 2, 1, 1]
    assert [batch.runs for batch in batches_of(runs, 1)] == [(run,) for run in runs]
    assert [run for batch in batches_of(runs, 9) for run in batch.runs] == runs

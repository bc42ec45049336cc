"""Presets name parameters of the estimators, and depend on rows as they say."""

from __future__ import annotations

import inspect

import pytest

from tabr import TabRClassifier, TabRRegressor
from tabr.config import PRESETS

each_preset = pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))


@each_preset
def test_a_preset_changes_what_the_estimators_know(preset) -> None:
    for estimator in (TabRRegressor, TabRClassifier):
        known = inspect.signature(estimator).parameters
        changes = [preset.parameters, *preset.recipes.values()]
        assert all(set(values) <= set(known) for values in changes)


@each_preset
def test_a_parameter_that_a_preset_has_is_none_unless_given(preset) -> None:
    params = TabRRegressor().get_params()
    assert all(params[name] is None for name in preset.parameters)


@each_preset
def test_any_number_of_rows_has_its_values(preset) -> None:
    for n_rows in (1, 999, 1_000, 50_000, 10**7):
        assert preset.n_members(n_rows) >= 1
        assert preset.batch_size(n_rows) >= preset.batch_size(1)
        assert 0 < preset.held_out_share(n_rows) < 1
        for of_classes in (False, True):
            assert 0 <= preset.column_dropout(n_rows, of_classes=of_classes) < 1


def test_larger_tables_get_larger_batches() -> None:
    batch_size = PRESETS["paper"].batch_size
    assert [batch_size(n) for n in (100, 26_048, 34_521, 371_847)] == [
        256,
        256,
        512,
        1024,
    ]


def test_a_recipe_changes_what_it_names_alone() -> None:
    best = PRESETS["best"]
    assert best.value("n_heads", "heads") == best.recipes["heads"]["n_heads"]
    assert best.value("n_heads") == best.parameters["n_heads"]
    assert best.value("width", "heads") == best.parameters["width"]

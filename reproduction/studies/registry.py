"""The list of studies: one line each."""

from __future__ import annotations

from collections.abc import Mapping

from reproduction.studies import entropy, freeze, projection, through_time
from reproduction.studies.attention import attention
from reproduction.studies.new_candidates import TABLES, new_candidates
from reproduction.studies.units import Study

STUDIES: Mapping[str, Study] = {
    "attention": Study(attention, ("california",)),
    "entropy": Study(entropy.entropy, entropy.TABLES, entropy.OTHERS),
    "projection": Study(projection.projection, projection.TABLES),
    "freeze": Study(freeze.freeze, freeze.TABLES, freeze.OTHERS),
    "new-candidates": Study(new_candidates, TABLES),
    "time": Study(
        through_time.through_time, tuple(name for name, _, _ in through_time.TIMED)
    ),
}

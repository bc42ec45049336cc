"""Studies beyond one table of scores: one file each, and what runs them."""

from reproduction.studies.registry import STUDIES
from reproduction.studies.run import run_study
from reproduction.studies.through_time import TIMED, way_through_time
from reproduction.studies.units import Record, Study, Unit

__all__ = [
    "STUDIES",
    "TIMED",
    "Record",
    "Study",
    "Unit",
    "run_study",
    "way_through_time",
]

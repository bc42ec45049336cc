"""Studies beyond one table of scores: one file each, and what runs them."""

from tabr.bench.studies.registry import STUDIES
from tabr.bench.studies.run import run_study
from tabr.bench.studies.through_time import TIMED, way_through_time
from tabr.bench.studies.units import Record, Study, Unit

__all__ = [
    "STUDIES",
    "TIMED",
    "Record",
    "Study",
    "Unit",
    "run_study",
    "way_through_time",
]

"""Studies beyond one table of scores, a file each.

In: tables and the name of a study (`run_study`), or its records from elsewhere
(`fold_study`). Out: its records in the results folder; `page` makes a page of them.
"""

from reproduction.studies.run import STUDIES, fold_study, run_study
from reproduction.studies.through_time import TIMED, way_through_time
from reproduction.studies.units import Record, Study, Unit

__all__ = [
    "STUDIES",
    "TIMED",
    "Record",
    "Study",
    "Unit",
    "fold_study",
    "run_study",
    "way_through_time",
]

"""One HTML page about a fitted model and a labelled table that it has not seen.

In: a fitted classifier or regressor, rows and their labels.
Out: the page as text, or as a file; it needs nothing but itself.
"""

from tabr.report.page import report, save_report

__all__ = ["report", "save_report"]

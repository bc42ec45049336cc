"""One page about a fitted model and a labelled table that it has not seen."""

from tabr.report.page import report, save_report

__all__ = ["report", "save_report"]

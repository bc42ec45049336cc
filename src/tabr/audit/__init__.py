"""The audit of a table: copies, leaks, contradictions, influence and drift.

In: a table, its test part where there is one, labels, and a fitted model if wanted.
Out: an `AuditReport` of findings, gravest first, with the rows that they are about.
"""

from tabr.audit.findings import AuditReport, Example, Finding
from tabr.audit.run import audit

__all__ = ["AuditReport", "Example", "Finding", "audit"]

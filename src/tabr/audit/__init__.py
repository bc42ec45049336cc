"""The audit of a table: copies, leaks, contradictions, influence and drift."""

from tabr.audit.findings import AuditReport, Example, Finding
from tabr.audit.run import audit

__all__ = ["AuditReport", "Example", "Finding", "audit"]

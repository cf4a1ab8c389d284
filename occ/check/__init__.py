"""Verifies a table: folders, files, footers, timeline, archived history and commit log."""

from .buckets import refuse_misplaced
from .check import check
from .files import data_files
from .findings import Report, Severity
from .footers import inspect
from .unique_values import OTHER_KEY, repeated, shown_values, with_values

__all__ = [
    "OTHER_KEY",
    "Report",
    "Severity",
    "check",
    "data_files",
    "inspect",
    "refuse_misplaced",
    "repeated",
    "shown_values",
    "with_values",
]

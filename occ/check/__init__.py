"""Verifies a table: folders, files, footers, timeline, archived history and commit log."""

from .buckets import refuse_misplaced
from .check import check
from .files import data_files
from .findings import Report, Severity
from .footers import inspect
from .no_files import no_files

__all__ = ["Report", "Severity", "check", "data_files", "inspect", "no_files", "refuse_misplaced"]

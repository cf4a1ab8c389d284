"""Verify a table: folders, files, footers, timeline, archived history and commit log."""

from .check import check
from .files import data_files
from .findings import Report, Severity
from .folders import no_files
from .footers import inspect
from .stored_keys import misplaced, refuse_misplaced, refuse_other_keys, refuse_other_times
from .unique_values import OTHER_KEY, repeated, shown_values, with_values

"""Merging: the winning version of a record, and rows of a base file combined with those of log files."""

from .dictionaries import TEXTS, cast, filled, holds, plain, stored_texts, without_unused
from .laws import Broken, Tried, subject_of
from .log_records import (
    alike,
    body_of,
    cleared_keys,
    comparable,
    logged_rows,
    merged_logs,
    merged_rows,
    needed_columns,
    standing,
    told_of_torn,
)
from .rows import (
    Effects,
    Merged,
    alone,
    contributions,
    deduplicate,
    joined_schema,
    merge,
    merge_by,
    ordering_of,
    refuse_nan,
    remove,
    remove_where,
    rule_of,
    supersedes,
    unrepeated,
    widened,
    with_rows,
)

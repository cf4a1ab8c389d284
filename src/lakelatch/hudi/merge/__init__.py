"""Which version of a record wins, and how rows of a base file and of log files are combined."""

from .dictionaries import TEXTS, cast, filled, holds, plain, stored_texts, without_unused
from .laws import Broken, Tried, subject_of
from .log_records import alike, body_of, cleared_keys, logged_rows, merged_rows, told_of_torn
from .merge_mode import ordering_of, rule_of
from .rows import (
    Effects,
    Merged,
    alone,
    contributions,
    deduplicate,
    joined_schema,
    merge,
    merge_by,
    refuse_nan,
    remove,
    remove_where,
    supersedes,
    unrepeated,
    widened,
    with_rows,
)

__all__ = [
    "TEXTS",
    "Broken",
    "Effects",
    "Merged",
    "Tried",
    "alike",
    "alone",
    "body_of",
    "cast",
    "cleared_keys",
    "contributions",
    "deduplicate",
    "filled",
    "holds",
    "joined_schema",
    "logged_rows",
    "merge",
    "merge_by",
    "merged_rows",
    "ordering_of",
    "plain",
    "refuse_nan",
    "remove",
    "remove_where",
    "rule_of",
    "stored_texts",
    "subject_of",
    "supersedes",
    "told_of_torn",
    "unrepeated",
    "widened",
    "with_rows",
    "without_unused",
]

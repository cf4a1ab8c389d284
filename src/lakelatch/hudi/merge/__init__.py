"""Which version of a record wins, and how rows of a base file and of log files are combined."""

from .dictionaries import TEXTS, cast, filled, holds, plain, stored_texts, without_unused
from .log_records import alike, body_of, cleared_keys, logged_rows, merged_rows, told_of_torn
from .merge_mode import ordering_of, rule_of
from .rows import Effects, Merged, alone, contributions, deduplicate, merge, merge_by, remove, remove_where, widened

__all__ = [
    "TEXTS",
    "Effects",
    "Merged",
    "alike",
    "alone",
    "body_of",
    "cast",
    "cleared_keys",
    "contributions",
    "deduplicate",
    "filled",
    "holds",
    "logged_rows",
    "merge",
    "merge_by",
    "merged_rows",
    "ordering_of",
    "plain",
    "remove",
    "remove_where",
    "rule_of",
    "stored_texts",
    "told_of_torn",
    "widened",
    "without_unused",
]

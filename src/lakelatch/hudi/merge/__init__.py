"""Which version of a record wins, and how rows of a base file and of log files are combined."""

from .dictionaries import TEXTS, cast, filled, holds, plain, stored_texts, without_unused
from .log_records import cleared_keys, merged_rows
from .merge_mode import ordering_of
from .rows import (
    Effects,
    Merged,
    deduplicate,
    joined_schema,
    merge,
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
    "Effects",
    "Merged",
    "cast",
    "cleared_keys",
    "deduplicate",
    "filled",
    "holds",
    "joined_schema",
    "merge",
    "merged_rows",
    "ordering_of",
    "plain",
    "refuse_nan",
    "remove",
    "remove_where",
    "stored_texts",
    "supersedes",
    "unrepeated",
    "widened",
    "with_rows",
    "without_unused",
]

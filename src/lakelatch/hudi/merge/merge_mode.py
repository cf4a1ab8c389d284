"""By which rule the rows of log files supersede others, as the table's properties say."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import UnsupportedTableError
from ...mergers import Rule, Ties
from ..table import COMMIT_TIME_ORDERING, EVENT_TIME_ORDERING, META_COLUMNS, TableConfig

# Before there was a merge mode, the class of the payload said it.
_MODE_OF_PAYLOAD = {
    "": None,
    "DefaultHoodieRecordPayload": EVENT_TIME_ORDERING,
    "OverwriteWithLatestAvroPayload": COMMIT_TIME_ORDERING,
}


def ordering_of(config: TableConfig) -> tuple[str, ...]:
    """The columns by which versions of a row are ordered; without any by their commits only.

    Raises:
        UnsupportedTableError: log files of the table are merged by rules that are not known here.
    """
    payload = config.raw.get("hoodie.compaction.payload.class", "").strip().rpartition(".")[2]
    if reason := _unknown(config, payload):
        raise UnsupportedTableError(
            f"Table {config.name} has log files, and {reason}: how to merge them is not known here. Read it with Hudi on "
            "Spark, or compact it with Hudi",
            table=config.name,
            feature="merge_rules",
        )
    mode = config.merge_mode or _MODE_OF_PAYLOAD[payload]
    return () if mode == COMMIT_TIME_ORDERING else config.ordered_by


def rule_of(config: TableConfig, merge: Iterable[tuple[str, str]] = (), ties: Ties = "last") -> Rule:
    """By which rule a writer of this library merges rows: that of the table's properties, and what its settings say."""
    fixed = (*config.record_key_fields, *config.partition_fields, *META_COLUMNS)
    return Rule(dict(merge), config.newer_by, ties, fixed)


def _unknown(config: TableConfig, payload: str) -> str:
    if not config.populate_meta_fields:
        return "it has no meta columns, so that rows cannot be told apart"
    if config.merge_mode not in (None, EVENT_TIME_ORDERING, COMMIT_TIME_ORDERING):
        return f"its merge mode is {config.merge_mode}"
    if config.merge_mode is None and payload not in _MODE_OF_PAYLOAD:
        return f"its payload class is {payload}"
    if config.partial_update_mode is not None and not config.for_streams:
        return f"it has partial updates ({config.partial_update_mode})"
    if named := sorted(key for key in config.raw if key.endswith("payload.delete.field")):
        return f"a column marks its deletes ({named[0]})"
    return ""

"""By which rule the rows of log files supersede others, as the table's properties say."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import UnsupportedTableError
from ...mergers import Rule, Ties
from ..table import META_COLUMNS, TableConfig


def ordering_of(config: TableConfig) -> tuple[str, ...]:
    """The columns by which versions of a row are ordered; without any by their commits only.

    Raises:
        UnsupportedTableError: log files of the table are merged by rules that are not known here.
    """
    reason = config.unknown_merge()
    if not config.populate_meta_fields:
        reason = "it has no meta columns, so that rows cannot be told apart"
    if reason:
        raise UnsupportedTableError(
            f"Table {config.name} has log files, and {reason}: how to merge them is not known here. Read it with Hudi on "
            "Spark, or compact it with Hudi",
            table=config.name,
            feature="merge_rules",
        )
    return config.newer_by


def rule_of(config: TableConfig, merge: Iterable[tuple[str, str]] = (), ties: Ties = "last") -> Rule:
    """By which rule a writer of this library merges rows: that of the table's properties, and what its settings say."""
    fixed = (*config.record_key_fields, *config.partition_fields, *META_COLUMNS)
    return Rule(dict(merge), config.newer_by, ties, fixed)

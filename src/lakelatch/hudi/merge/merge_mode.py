"""The rule by which rows of log files supersede others, from the table's properties."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import UnsupportedTableError
from ...mergers import Rule, Ties
from ..table import META_COLUMNS, TableConfig


def ordering_of(config: TableConfig) -> tuple[str, ...]:
    """Return the columns that order versions of a row; () if the order of commits does.

    Raises:
        UnsupportedTableError: the rules that merge the table's log files are unknown here.
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
    """Return the rule by which writers of this library merge rows: the properties' rule with the table's ``merge`` settings."""
    fixed = (*config.record_key_fields, *config.partition_fields, *META_COLUMNS)
    return Rule(dict(merge), config.newer_by, ties, fixed)

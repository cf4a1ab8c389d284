"""One open table: store, configuration, log, lock and clock, its views, and reads."""

from .memory import Contention, Reservations
from .outcome import (
    CommitResult,
    Saved,
    beaten_early,
    ended_by_others,
    forgotten,
    is_over,
    log_made_anew,
    lost_against,
    lost_early,
    reserved_by,
    restored_below,
    undisturbed,
    waited_in_vain,
    winner_facts,
)
from .partitions import (
    Partition,
    chosen_partitions,
    known_partition,
    listed,
    partition_path_of,
    partitions_with,
    refuse_misspelled,
    several,
    some,
)
from .properties import PROPERTIES, read_config
from .session import Session
from .snapshot_cache import View, ViewCache, arrow_schema, cold_view
from .table_lock import TableLease, TableLock, prove, settled

__all__ = [
    "PROPERTIES",
    "CommitResult",
    "Contention",
    "Partition",
    "Reservations",
    "Saved",
    "Session",
    "TableLease",
    "TableLock",
    "View",
    "ViewCache",
    "arrow_schema",
    "beaten_early",
    "chosen_partitions",
    "cold_view",
    "ended_by_others",
    "forgotten",
    "is_over",
    "known_partition",
    "listed",
    "log_made_anew",
    "lost_against",
    "lost_early",
    "partition_path_of",
    "partitions_with",
    "prove",
    "read_config",
    "refuse_misspelled",
    "reserved_by",
    "restored_below",
    "settled",
    "several",
    "some",
    "undisturbed",
    "waited_in_vain",
    "winner_facts",
]

"""One open table: store, configuration, log, lock and clock, its views, and reads."""

from .missing_files import files_there, missing, of_missing_file
from .outcome import (
    CommitResult,
    Saved,
    beaten_early,
    clashed,
    ended_by_others,
    is_over,
    log_made_anew,
    lost_against,
    lost_early,
    not_shown,
    nothing_left,
    outcome_unknown,
    refuse_landed,
    refuse_open,
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
from .settling import await_outcome, connect, outcome_not_everywhere, put_outcome
from .snapshot_cache import View, arrow_schema, cold_view, dropped_by, dropped_since, required_by
from .table_lock import TableLease, TableLock, prove, settled
from .whole_states import Savepoint, cleaned_to, kept_from, refuse_cleaned, savepoints

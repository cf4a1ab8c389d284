"""Conflict resolution decides whether a transaction may commit: pure functions over values, without I/O, clock or Spark."""

if __name__ != "lakelatch.conflict":
    raise ImportError(
        "import lakelatch.conflict, not the folder: a second copy of every class would not be equal to the first"
    )

from .operations import INGESTION, Kind, kind_of
from .predicate import ColumnStatistics, FileStatistics, Term, Where, may_match, where_of
from .reservation import Claim, Party, Reservation, candidates, first_in_the_way, in_rank_order
from .resolve import (
    ISOLATION_LEVELS,
    SNAPSHOT,
    Conflict,
    Decision,
    Repeatable,
    refuse_isolation,
    resolve,
    settle_schema,
)
from .strategies import refuse_contradiction, strategy, strategy_names
from .write_set import EVERYWHERE, NEW_KEYS, NOWHERE, ReadSet, Region, Scan, Values, WriteSet, groups_from_json

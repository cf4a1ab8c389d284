"""Who may commit: pure functions over values. No I/O, no clock, no Spark."""

if __name__ != "lakelatch.conflict":
    raise ImportError(
        "import lakelatch.conflict, not the folder: a second copy of every class would not be equal to the first"
    )

from .isolation import ISOLATION_LEVELS, refuse_isolation
from .party import Party, candidates
from .reservation import Claim, Reservation, first_in_the_way, in_rank_order
from .resolve import Conflict, Repeatable, Verdict, resolve
from .schema import settle_schema
from .strategies import refuse_contradiction, strategy_names
from .write_set import FileGroupId, ReadSet, Scan, WriteSet

__all__ = [
    "ISOLATION_LEVELS",
    "Claim",
    "Conflict",
    "FileGroupId",
    "Party",
    "ReadSet",
    "Repeatable",
    "Reservation",
    "Scan",
    "Verdict",
    "WriteSet",
    "candidates",
    "first_in_the_way",
    "in_rank_order",
    "refuse_contradiction",
    "refuse_isolation",
    "resolve",
    "settle_schema",
    "strategy_names",
]

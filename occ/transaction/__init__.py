"""One writer's attempt from begin to commit, and its retry."""

from . import replacing, row_writes, stream_writes
from .attempt import Attempt
from .beginning import begin, lay_floor
from .landing import Landing, staged_entry
from .merge_into import Asked, Clause, Clauses, Merge, merging, stage_merge
from .new_values import Computed, NewValues, sql
from .retry import Bounds, RunResult, run
from .row_writes import replaced
from .transaction import Transaction
from .unique_constraints import constrained, refuse_unique
from .validator import CommitValidator
from .workspace import Workspace
from .write import Write
from .written import Retries, WriteOptions, WriteResult, refuse_unknown

__all__ = [
    "Asked",
    "Attempt",
    "Bounds",
    "Clause",
    "Clauses",
    "CommitValidator",
    "Computed",
    "Landing",
    "Merge",
    "NewValues",
    "Retries",
    "RunResult",
    "Transaction",
    "Workspace",
    "Write",
    "WriteOptions",
    "WriteResult",
    "begin",
    "constrained",
    "lay_floor",
    "merging",
    "refuse_unique",
    "refuse_unknown",
    "replaced",
    "replacing",
    "row_writes",
    "run",
    "sql",
    "stage_merge",
    "staged_entry",
    "stream_writes",
]

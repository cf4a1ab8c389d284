"""One writer's attempt from begin to commit, and its retry."""

from . import replacing, row_writes, stream_writes
from .attempt import Attempt
from .beginning import begin, lay_floor
from .landing import Landing, staged_entry
from .merge_into import Merge
from .new_values import sql
from .retry import Bounds, RunResult, run
from .transaction import Transaction
from .unique_constraints import constrained, refuse_unique
from .validator import CommitValidator
from .workspace import Workspace
from .write import Write
from .written import Retries, WriteResult

__all__ = [
    "Attempt",
    "Bounds",
    "CommitValidator",
    "Landing",
    "Merge",
    "Retries",
    "RunResult",
    "Transaction",
    "Workspace",
    "Write",
    "WriteResult",
    "begin",
    "constrained",
    "lay_floor",
    "refuse_unique",
    "replacing",
    "row_writes",
    "run",
    "sql",
    "staged_entry",
    "stream_writes",
]

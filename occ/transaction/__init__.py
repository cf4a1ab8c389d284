"""One writer's attempt from begin to commit, and its retry."""

from .attempt import Attempt
from .beginning import begin, lay_floor
from .landing import Landing, staged_entry
from .retry import Bounds, RunResult, run
from .transaction import Transaction
from .unique_constraints import constrained
from .validator import CommitValidator
from .workspace import Workspace

__all__ = [
    "Attempt",
    "Bounds",
    "CommitValidator",
    "Landing",
    "RunResult",
    "Transaction",
    "Workspace",
    "begin",
    "constrained",
    "lay_floor",
    "run",
    "staged_entry",
]

"""One writer's attempt from begin to commit, and its retry."""

from .attempt import Attempt
from .beginning import begin, lay_floor
from .landing import Landing, staged_entry
from .retry import Bounds, RunResult, run
from .transaction import Transaction
from .unique_constraints import constrained, refuse_unique
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
    "refuse_unique",
    "run",
    "staged_entry",
]

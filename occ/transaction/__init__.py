"""One writer's attempt from begin to commit, and its retry."""

from .first_commit import lay_floor
from .retry import Bounds, Contention, RunResult, run
from .transaction import Transaction
from .unique_constraints import constrained
from .workspace import Work

__all__ = ["Bounds", "Contention", "RunResult", "Transaction", "Work", "constrained", "lay_floor", "run"]

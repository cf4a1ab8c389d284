"""One writer's attempt from begin to commit, and its retry."""

from .beginning import begin, lay_floor
from .retry import Bounds, RunResult, run
from .transaction import Transaction
from .unique_constraints import constrained
from .workspace import Work

__all__ = ["Bounds", "RunResult", "Transaction", "Work", "begin", "constrained", "lay_floor", "run"]
